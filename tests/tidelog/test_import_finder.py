"""The import finder: our packages win, foreign ones are refused, and nothing leaks into other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
