"""States of partitions in a few characters, for tests, and any state for Hypothesis.

`state("1* 2 3", "1 2", "3")` is a partition with the replicas 1, 2 and 3 in this order. 1 leads it, the
ISR is 1 and 2, and the ELR is 3.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tidelog.broker.metadata.records import NO_LEADER, PartitionRecord


def state(replicas, isr="", elr="", **fields):
    """Returns a state; among the replicas the leader has a `*`."""
    leader = next((int(each[:-1]) for each in replicas.split() if each.endswith("*")), NO_LEADER)
    return PartitionRecord(
        replicas=_ids(replicas.replace("*", "")),
        isr=_ids(isr),
        leader=leader,
        leader_epoch=fields.pop("leader_epoch", 5),
        partition_epoch=fields.pop("partition_epoch", 9),
        elr=_ids(elr),
        **fields,
    )


def written(record):
    """Returns a state as `state` takes it: replicas, ISR, ELR."""
    replicas = (f"{each}*" if each == record.leader else str(each) for each in record.replicas)
    return " ".join(replicas), " ".join(map(str, record.isr)), " ".join(map(str, record.elr))


def _ids(text):
    return tuple(map(int, text.split()))


@st.composite
def states(draw):
    """Any state that rules allow: the leader in the ISR, ISR and ELR disjoint and within the replicas.

    There may be an ISR without a leader: it has left because it started unclean.
    """
    replicas = draw(st.permutations(range(1, 6)).map(lambda ids: tuple(ids[:4])))
    replicas = replicas[: draw(st.integers(1, 4))]
    isr = tuple(each for each in replicas if draw(st.booleans()))
    elr = tuple(each for each in replicas if each not in isr and draw(st.booleans()))
    leader = draw(st.sampled_from((*isr, NO_LEADER)))
    return PartitionRecord(
        replicas,
        isr,
        leader,
        draw(st.integers(0, 3)),
        draw(st.integers(0, 9)),
        elr,
        draw(st.sampled_from(replicas)) if leader == NO_LEADER else NO_LEADER,
        is_recovering=draw(st.booleans()),
        nonce=draw(st.sampled_from(("", "n"))),
    )


brokers = st.frozensets(st.integers(1, 5))
min_insyncs = st.integers(1, 4)
