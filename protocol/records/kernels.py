"""The loops over records: the compiled module where it was built, else its Python twin.

`TIDELOG_KERNELS=py` in the environment asks for the twin. `IMPLEMENTATION` says which one
serves ("compiled" or "python"); everything else is documented in `kernels_py`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from protocol.records import kernels_py

if TYPE_CHECKING or os.environ.get("TIDELOG_KERNELS") == "py":
    _chosen = kernels_py
else:
    try:
        from protocol.records import _kernels as _chosen
    except ImportError:
        _chosen = kernels_py

IMPLEMENTATION = _chosen.IMPLEMENTATION
checksum_ok = _chosen.checksum_ok
examine = _chosen.examine
find = _chosen.find
find_offset = _chosen.find_offset
rewrite = _chosen.rewrite
scan = _chosen.scan
stamp_messages = _chosen.stamp_messages
