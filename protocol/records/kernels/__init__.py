"""The loops over records: the compiled module if it was built, else its Python twin.

`TIDELOG_KERNELS=py` in the environment selects the twin. `IMPLEMENTATION` says which one is used
("compiled" or "python"). `kernels_py` documents every function except `keep_v2`, a shortcut through
`prepare` that only the compiled module has. The loops over the records of one batch take a
`layout.Region`. Raises ImportError for a module that was compiled from other sources.

The twin, in plain Python:
- checking batches (CRC, times), and the other loops of produce and lookups: `kernels_py.py`
- finding batches and reading their headers: `scan_py.py`
- encoding rows as batches, and choosing their partitions, for the jobs on Spark: `rows_py.py`
- decoding batches into columns, for the jobs on Spark: `columns_py.py`
- which record of each key compaction keeps, and copying those records: `key_map.py`
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.protocol.records.layout import Batch
    from tidelog.protocol.records.plan import AppendPlan, Prepared
    from tidelog.protocol.wire import Buffer

INTERFACE = 6  # raised with every change of a signature; the compiled module names the same

# The twin is not imported where it is not used.
if TYPE_CHECKING or os.environ.get("TIDELOG_KERNELS") == "py":
    from tidelog.protocol.records.kernels import kernels_py as _chosen
else:
    try:
        from tidelog.protocol.records import _kernels as _chosen
    except ImportError:
        from tidelog.protocol.records.kernels import kernels_py as _chosen
    else:
        if getattr(_chosen, "INTERFACE", None) != INTERFACE:
            raise ImportError(
                "the compiled kernels are not of these sources: run `make setup`, "
                "or set TIDELOG_KERNELS=py"
            )

IMPLEMENTATION = _chosen.IMPLEMENTATION
append_set = _chosen.append_set
checksum_ok = _chosen.checksum_ok
describe_messages = _chosen.describe_messages
encode_rows = _chosen.encode_rows
examine = _chosen.examine
find = _chosen.find
find_last = _chosen.find_last
find_other_format = _chosen.find_other_format
find_offset = _chosen.find_offset
first_damaged = _chosen.first_damaged
offenders = _chosen.offenders
partitions_of = _chosen.partitions_of
rewrite = _chosen.rewrite
scan = _chosen.scan
stamp_messages = _chosen.stamp_messages

# Compaction; documented in `key_map`.
KeyMap = _chosen.KeyMap
select = _chosen.select

# keep_v2(data, batch, decompressed records, plan) returns what `prepare` returns for a format-2
# batch that breaks no rule and whose bytes are kept. For any other batch it returns None, and
# `prepare` continues without it.
keep_v2: Callable[[Buffer, Batch, Buffer, AppendPlan], Prepared | None] | None = getattr(
    _chosen, "keep_v2", None
)
