"""CRC-32C, the checksum of record batches of format 2 and of tidelog's own files.

The package `crc32c` computes it in hardware. Only its extension module is loaded: the package also imports
the reader of package metadata and a parser of command lines, which take 2.5 MB of memory in each process and
some of the time of its start.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

_PACKAGE, _EXTENSION = "crc32c", "crc32c._crc32c"


def _loaded() -> Any:
    """Returns the extension module, or the package where there is no such module."""
    package = find_spec(_PACKAGE)
    paths = None if package is None else package.submodule_search_locations
    spec = None if paths is None else PathFinder.find_spec(_EXTENSION, list(paths))
    if spec is None or spec.loader is None:
        import crc32c as whole

        return whole
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from crc32c import crc32c as crc32c  # noqa: PLC0414 - who imports it from here is to see its type
else:
    crc32c = _loaded().crc32c
