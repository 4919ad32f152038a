"""How code of ours arrives in a worker of Spark, which may never have heard of tidelog.

`Home` says where the driver has its tidelog. `arrive` imports tidelog from there where the worker has
none, adds nothing to sys.path, and compares the versions. Spark's pickler takes both by value: they run
before anything of ours can be imported.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import tidelog


class Home(NamedTuple):
    """The driver's tidelog: where the package is, and its version."""

    directory: str
    version: str


def home() -> Home:
    """Returns where this process has tidelog."""
    return Home(str(Path(str(tidelog.__file__)).parents[1]), tidelog.__version__)


def arrive(directory: str, version: str) -> None:
    """Makes the driver's tidelog importable in this process.

    Raises ImportError if there is none, or another version.
    """
    import importlib
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    try:
        is_ours = hasattr(importlib.import_module("tidelog"), "__version__")
    except ModuleNotFoundError as error:
        if error.name != "tidelog":
            raise
        is_ours = False
    if not is_ours:
        theirs = sys.modules.pop("tidelog", None)  # a directory of that name
        found = PathFinder.find_spec("tidelog", [directory])
        if found is None or found.loader is None:
            if theirs is not None:
                sys.modules["tidelog"] = theirs
                place = next(iter(theirs.__path__))
                raise ImportError(
                    f"in Spark's workers ({sys.executable}) tidelog is {place}, which is another package or "
                    "a directory of that name: rename it, since it hides an installed tidelog"
                )
            raise ImportError(
                f"the Python of Spark's workers, {sys.executable}, has no tidelog: install it there, "
                "or set PYSPARK_PYTHON to a Python that has it"
            )
        sys.modules["tidelog"] = module_from_spec(found)
        found.loader.exec_module(sys.modules["tidelog"])
    there = sys.modules["tidelog"].__version__
    if there != version:
        raise ImportError(
            f"the driver has tidelog {version}, and the Python of Spark's workers, {sys.executable}, "
            f"has tidelog {there}: install the same version in both"
        )


def arrive_whole(directory: str, version: str) -> None:
    """Does what `arrive` does; raises ImportError also if a library that tidelog needs is missing."""
    import importlib

    arrive(directory, version)
    try:
        for library in ("numpy", "pyarrow"):
            importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"the Python of Spark's workers, {sys.executable}, has no {error.name}: install tidelog "
            "with the extra `spark` there, or set PYSPARK_PYTHON to a Python that has it"
        ) from error


for _function in (arrive, arrive_whole):
    _function.__module__ = "__main__"  # what is there, Spark pickles by value
