"""Where our own packages are: `tidelog._house.pipeline`, `tidelog._house.protocol` and so on.

The repository has `config`, `protocol`, `storage`, `client`, `broker` and `pipeline` beside
`tidelog`. A wheel has them inside this package, so that installing tidelog installs no top-level
package called `config`. Importing this package hides the difference: a finder serves them as
`tidelog._house.<room>` (`finder.py`), whatever packages of the same names a user has. Everything
that runs in a user's process, in the driver and the workers of Spark, is imported so (`room`).

Our own processes are the broker and the commands. They may call `open_house()`, after which the
short names are ours. It raises HouseError if one of the names was already imported from elsewhere,
because two packages cannot share a name.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog._house.finder import ROOMS, install

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["ROOMS", "HouseError", "open_house", "room"]


class HouseError(ImportError):
    """The broker's packages are missing, or a foreign package has the name of one of them."""


class _OpenFinder:
    """An import finder for the short names of our packages, and for nothing else."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of one of our packages, through which its modules are found."""
        if fullname not in ROOMS:
            return None
        return PathFinder.find_spec(fullname, [str(self.directory)])


def room(name: str) -> Any:
    """Returns a module of ours by its short name (`pipeline.session`), under tidelog's own name.

    The short names stay the user's. Raises ImportError if the module or what it needs is missing.
    """
    return importlib.import_module(f"{__name__}.{name}")


def open_house() -> Path:
    """Makes the short names ours in this process; returns the packages' directory.

    A second call changes nothing.

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
    if not any(isinstance(finder, _OpenFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OpenFinder(directory))
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


with contextlib.suppress(HouseError):  # `open_house` and imports say what is missing
    install(_directory())
