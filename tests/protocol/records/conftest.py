"""Every test here runs twice: on the compiled kernels and on their Python twin."""

from __future__ import annotations

import pytest

from tidelog.protocol.records import kernels
from tidelog.protocol.records.kernels import kernels_py

try:
    from tidelog.protocol.records import _kernels
except ImportError:
    _kernels = None

LOOPS = (
    "append_set",
    "checksum_ok",
    "describe_messages",
    "encode_rows",
    "examine",
    "find",
    "find_last",
    "find_other_format",
    "find_offset",
    "first_damaged",
    "offenders",
    "partitions_of",
    "rewrite",
    "scan",
    "stamp_messages",
)


@pytest.fixture(params=["compiled", "python"], autouse=True)
def implementation(request, monkeypatch):
    module = _kernels if request.param == "compiled" else kernels_py
    if module is None:
        pytest.skip("the compiled kernels are not built")
    assert request.param == module.IMPLEMENTATION
    for name in LOOPS:
        monkeypatch.setattr(kernels, name, getattr(module, name))
    monkeypatch.setattr(kernels, "keep_v2", getattr(module, "keep_v2", None))
    monkeypatch.setattr(kernels, "IMPLEMENTATION", module.IMPLEMENTATION)
    return module
