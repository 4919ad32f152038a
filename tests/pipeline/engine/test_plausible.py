"""Which times cannot be right: the columns against the broker's rule for one time after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipeline.engine.audit import Auditor, AuditSettings, Times
from tidelog.pipeline.engine.plausible import UNKNOWN, are_odd
from tidelog.storage.time.arrivals import find_unit_mismatch

NOON = 1_700_000_000_000
stamps = st.one_of(
    st.integers(NOON - 10**8, NOON + 10**8),
    st.integers(NOON // 1000 - 10**6, NOON // 1000 + 10**6),
    st.sampled_from([NOON * 1000, NOON * 10**6, 0, -2, 2**63 - 1, -(2**63), NOON + 60_000]),
    st.integers(-(2**63), 2**63 - 1).filter(lambda at: at != -1),
)
appended = st.one_of(st.just(UNKNOWN), st.integers(NOON - 10**8, NOON), st.just(2**63 - 1))


def ints(values):
    return np.array(list(values), np.int64)


@given(st.lists(st.tuples(stamps, appended), max_size=20), st.sampled_from([0, 60_000, 10**7]))
def test_the_columns_agree_with_the_rule_and_with_the_audit(records, margin):
    times, append_times = ints(at for at, _ in records), ints(at for _, at in records)
    odd = are_odd(times, append_times, NOON, margin)
    for (at, appended_ms), is_odd in zip(records, odd.tolist(), strict=True):
        limit = (NOON if appended_ms == UNKNOWN else appended_ms) + margin
        assert is_odd == (at > limit or find_unit_mismatch(at, NOON) is not None)
    auditor = Auditor(AuditSettings(NOON, margin))
    count = np.arange(len(times))
    auditor.note(Times(count, times, append_times, np.zeros(len(times), np.bool_), count))
    assert auditor.counts.plausible == len(times) - int(odd.sum())
