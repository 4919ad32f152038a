"""Makes the broker's own packages importable under their short names, in this process only.

The repository has `config`, `protocol`, `storage`, `client`, `broker` and `pipeline` beside
`tidelog`. A wheel has them inside this package, so that installing tidelog installs no top-level
package called `config`. `open_house()` hides the difference: imports of these names find our
packages before anything on sys.path, so a user's own `config/` or `storage/` is never imported
instead. Only tidelog's own processes call it: the broker, the commands and the pipeline. It raises
HouseError if one of the names was already imported from elsewhere, because two packages cannot
share a name.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

ROOMS = ("config", "protocol", "storage", "client", "broker", "pipeline")


class HouseError(ImportError):
    """The broker's packages are missing, or a foreign package has the name of one of them."""


class _HouseFinder:
    """An import finder for our packages in one directory, and for nothing else."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of one of our packages, through which its modules are found."""
        if fullname not in ROOMS:
            return None
        return PathFinder.find_spec(fullname, [str(self.directory)])


def open_house() -> Path:
    """Makes the packages importable; returns their directory. A second call changes nothing.

    Raises HouseError if they are missing, or if a foreign package of the same name is imported.
    """
    directory = _directory()
    for room in ROOMS:
        imported = sys.modules.get(room)
        if imported is not None and not _is_in(imported, directory / room):
            raise HouseError(
                f"a package called {room} is already imported from {_place(imported)}, and tidelog "
                f"has one of that name: run the broker in a process of its own (tidelog serve)"
            )
    if not any(isinstance(finder, _HouseFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _HouseFinder(directory))
    return directory


def _directory() -> Path:
    """Returns the directory of the packages: in tidelog (a wheel), or beside it (a checkout)."""
    here = Path(__file__).resolve().parent
    for directory in (here, here.parent.parent):
        if all((directory / room / "__init__.py").is_file() for room in ROOMS):
            return directory
    raise HouseError(
        f"the packages {', '.join(ROOMS)} are missing from this installation of tidelog"
    )


def _is_in(module: ModuleType, directory: Path) -> bool:
    origin = getattr(module, "__file__", None)
    return origin is not None and Path(origin).resolve().parent == directory


def _place(module: ModuleType) -> str:
    origin = getattr(module, "__file__", None)
    return origin or str(next(iter(getattr(module, "__path__", [])), "an unknown place"))
