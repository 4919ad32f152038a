"""The packages that the wheel has: pyproject.toml lists them, and test_wheel.py builds it, slowly."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_package_is_in_the_wheel():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    here = {
        ".".join((name, *init.parent.relative_to(ROOT / directory).parts))
        for name, directory in declared["package-dir"].items()
        for init in (ROOT / directory).rglob("__init__.py")
    }
    assert set(declared["packages"]) == here
