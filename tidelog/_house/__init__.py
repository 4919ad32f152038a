"""Makes the broker's own packages importable under their short names, in this process only.

The repository keeps `config`, `protocol`, `storage`, `client`, `broker` and `pipeline` beside
`tidelog`. A wheel carries them inside this package, so that installing tidelog puts no package called
`config` into anybody's environment. `open_house()` makes both layouts look the same: their names come
from ours, before anything on sys.path, so a user's own `config/` or `storage/` never wins. Only
processes of tidelog's own call it: the broker's, the commands', the pipeline's. It refuses if one of the
names was already imported from elsewhere: two packages cannot share a name.
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
    """The broker's packages are missing, or a foreign one has the name of one of them."""


class _HouseFinder:
    """Finds our packages in one directory, and nothing else."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of one of our packages; their modules are found through them."""
        if fullname not in ROOMS:
            return None
        return PathFinder.find_spec(fullname, [str(self.directory)])


def open_house() -> Path:
    """Make the packages importable; returns the directory they are in. Calling it again changes nothing.

    Raises HouseError if they are not there, or if a foreign package of the same name is imported.
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
    """Where the packages are: inside this one (a wheel), or beside tidelog (a checkout)."""
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
