"""The wheel: what it puts into an environment, and that it serves beside a user's own packages.

Building takes some seconds, so everything happens to one wheel, made once from a copy of the sources.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("config", "protocol", "storage", "broker")


def run(command, cwd):
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, source)
    for name in (*ROOMS, "tidelog"):
        built = shutil.ignore_patterns("__pycache__", "*.so", "_kernels.c")
        shutil.copytree(ROOT / name, source / name, ignore=built)
    target = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    run([*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", str(target), "."], source)
    (path,) = target.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """A virtual environment that holds the wheel and nothing else."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, with_pip=False, symlinks=True)
    (site_packages,) = directory.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site_packages)
    return directory / "bin" / "python", site_packages


@pytest.fixture
def project(tmp_path):
    """A user's project with a `config` and a `storage` of its own."""
    for name in ("config", "storage"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("THEIRS = True\n", encoding="utf-8")
    return tmp_path


def test_its_files(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"tidelog", "tidelog-0.1.0.dist-info"}
    for room in ROOMS:
        ours = {
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / room).rglob("*.py")
            if "__pycache__" not in path.parts
        }
        packed = {
            name.removeprefix("tidelog/_house/")
            for name in names
            if name.startswith(f"tidelog/_house/{room}/") and name.endswith(".py")
        }
        assert packed == ours
    assert not [name for name in names if name.endswith((".c", ".pyx"))]
    assert "tidelog/py.typed" in names


def test_it_exposes_tidelog_alone(environment, tmp_path):
    python, site_packages = environment
    assert {path.name for path in site_packages.iterdir()} <= {
        "tidelog",
        "tidelog-0.1.0.dist-info",
        "_virtualenv.py",
        "__pycache__",
    }
    code = (
        "import importlib.util, tidelog\n"
        f"print([name for name in {ROOMS!r} if importlib.util.find_spec(name)])"
    )
    assert run([python, "-c", code], tmp_path) == "[]\n"


def test_its_command_works_beside_a_users_own_packages(environment, project):
    python, _ = environment
    assert "--log-dirs" in run([python, "-m", "tidelog", "serve", "--help"], project)
    code = "import sys; from tidelog.cli import main; sys.exit(main(['--version']))"
    assert run([python, "-c", code], project) == "tidelog 0.1.0\n"


SERVE = """
import sys
from pathlib import Path
import config, storage
from tidelog.process import BrokerProcess
with BrokerProcess(Path("data")) as broker:
    assert broker.bootstrap.startswith("127.0.0.1:")
    print("twin" if "slower Python twin" in broker.log() else "kernels")
assert config.THEIRS and storage.THEIRS
print("served")
"""


def test_it_serves_beside_a_users_own_packages(environment, project):
    """With the dependencies of this environment, but not its tidelog."""
    python, site_packages = environment
    here = sysconfig.get_path("purelib")
    (site_packages / "dependencies.pth").write_text(f"{here}\n", encoding="utf-8")
    try:
        code = "import tidelog._house; print(tidelog._house.open_house())"
        assert run([python, "-c", code], project) == f"{site_packages}/tidelog/_house\n"
        built = any(site_packages.rglob("_kernels*.so"))  # not without a C compiler
        assert run([python, "-c", SERVE], project).split() == [
            "kernels" if built else "twin",
            "served",
        ]
    finally:
        (site_packages / "dependencies.pth").unlink()
