"""The import finders: ours under tidelog's name beside a user's modules, or by short names in our own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog._house.finder import rewritten

ROOT = Path(__file__).parents[2]


def run(code, cwd):
    """Run Python code the way a user's own program runs: its directory first on the path."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)} | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture
def project(tmp_path):
    """A user's project with packages of its own that are called like ours."""
    for name in ("config", "storage", "broker", "protocol"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("THEIRS = True\n", encoding="utf-8")
    return tmp_path


def test_ours_win_over_a_users_own_once_the_house_is_open(project):
    done = run(
        "from tidelog._house import open_house\n"
        "directory = open_house()\n"
        "assert open_house() == directory\n"
        "import config, storage, protocol, broker\n"
        "for module in (config, storage, protocol, broker):\n"
        "    assert not hasattr(module, 'THEIRS'), module\n"
        "import config.topic, broker.metadata.local\n"
        "print(directory)\n",
        project,
    )
    assert done.stderr == ""
    assert Path(done.stdout.strip()) == ROOT


def test_nothing_happens_before_it_is_opened(project):
    done = run("import tidelog, config\nassert config.THEIRS\nprint('theirs')", project)
    assert (done.stdout, done.stderr) == ("theirs\n", "")


def test_importing_tidelog_imports_nothing_else(tmp_path):
    done = run(
        "import sys\nbefore = set(sys.modules)\nimport tidelog\nprint(sorted(set(sys.modules) - before))",
        tmp_path,
    )
    assert done.stdout == "['tidelog']\n"


def test_a_foreign_package_already_imported_is_refused(project):
    done = run("import storage\nfrom tidelog._house import open_house\nopen_house()", project)
    assert done.returncode == 1
    assert (
        f"HouseError: a package called storage is already imported from {project}/storage/__init__.py"
    ) in done.stderr


def test_a_foreign_namespace_package_is_refused_too(tmp_path):
    (tmp_path / "protocol").mkdir()
    code = "import sys; sys.path = [sys.argv[1]] + [p for p in sys.path if p not in ('', sys.argv[2])]\n"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            code + "import protocol\nsys.path.append(sys.argv[2])\n"
            "from tidelog._house import open_house\nopen_house()",
            str(tmp_path),
            str(ROOT),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert f"a package called protocol is already imported from {tmp_path}/protocol" in done.stderr


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import storage", "import tidelog._house.storage as storage"),
        ("import storage.log as log", "import tidelog._house.storage.log as log"),
        (
            "import os, storage.log",
            "import os, tidelog._house.storage.log as storage, tidelog._house.storage as storage",
        ),
        ("from client import Client", "from tidelog._house.client import Client"),
        ("def f():\n    from config.topic import X", None),
        ("import configuration", "import configuration"),
        ("from storage_tools import x", "from storage_tools import x"),
        ("from .config import x", "from .config import x"),
    ],
)
def test_imports_of_ours_are_named_in_full(source, expected):
    expected = expected or "def f():\n    from tidelog._house.config.topic import X"
    assert ast.unparse(rewritten(ast.parse(source))) == expected


def test_under_tidelogs_name_both_sides_keep_their_own(project):
    """In either order of import, and without anything of the user's being hidden."""
    ask = "import config, storage, protocol, broker\nassert config.THEIRS and storage.THEIRS\n"
    ours = (
        "from tidelog._house import room\n"
        "kernels = room('protocol.records.kernels')\n"
        "plan = room('storage.time.retention')\n"
        "assert plan.__name__ == 'tidelog._house.storage.time.retention', plan\n"
        "assert room('protocol.errors').CorruptMessage.__module__ == 'tidelog._house.protocol.errors'\n"
        "print(kernels.IMPLEMENTATION)\n"
    )
    here = subprocess.run(
        [
            sys.executable,
            "-c",
            "from protocol.records import kernels; print(kernels.IMPLEMENTATION)",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    for code in (ask + ours + ask, ours + ask + ours):
        done = run(code, project)
        assert done.stderr == ""
        assert set(done.stdout.split()) == {here.stdout.strip()}


@pytest.mark.spark  # some modules of the pipeline import PySpark
def test_every_module_can_be_imported_under_tidelogs_name(tmp_path):
    """Nothing in them names a module in a string, as the short names are not there."""
    code = (
        "import importlib, pkgutil, sys, tidelog._house\n"
        "from tidelog._house import room, ROOMS\n"
        "room('protocol.records.kernels')\n"  # which imports the compiled module in its own order
        "for name in ROOMS:\n"
        "    package = room(name)\n"
        "    for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not found.name.endswith(('__main__', 'timelog.data_source')):\n"
        "            importlib.import_module(found.name)\n"
        "list(room('protocol.message').served_apis())\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ROOMS])\n"
    )
    done = run(code, tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_kernel_that_is_loaded_twice_serves_its_first_name(tmp_path):
    """A process gets one copy of a compiled module, with one set of classes; the other name has the twin."""
    code = (
        "from tidelog._house import open_house, room\n"
        "ours = room('protocol.records.kernels')\n"
        "open_house()\n"
        "from protocol.records import kernels\n"
        "assert ours.KeyMap is not kernels.KeyMap\n"
        "print(kernels.IMPLEMENTATION)\n"
    )
    done = run(code, tmp_path)
    assert (done.stdout, done.stderr) == ("python\n", "")


def test_byte_code_is_cached_and_follows_the_source(tmp_path):
    house = tmp_path / "house"
    (house / "config").mkdir(parents=True)
    source = house / "config" / "__init__.py"
    code = (
        "import sys\nfrom pathlib import Path\nfrom tidelog._house import finder, room\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if type(f) is not finder.HouseFinder]\n"
        f"finder.install(Path({str(house)!r}))\n"
        "sys.dont_write_bytecode = False\n"
        "print(room('config').VALUE)\n"
    )
    for value in ("1", "'another'"):
        source.write_text(f"VALUE = {value}\n", encoding="utf-8")
        for _ in range(2):
            assert run(code, tmp_path).stdout.strip() == value.strip("'")
    (cached,) = (house / "config" / "__pycache__").iterdir()
    cached.write_bytes(cached.read_bytes()[:16] + b"damaged")
    assert run(code, tmp_path).stdout.strip() == "another"
