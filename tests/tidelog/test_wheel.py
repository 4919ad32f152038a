"""The wheel: what it puts into an environment, and that it serves beside a user's own packages.

Building takes a compiler some seconds, so everything happens to one wheel, made once a run from a copy of the
sources, whatever module or worker asks first; and to another that was made where there is no compiler.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tidelog.process import BrokerProcess

ROOT = Path(__file__).parents[2]
ROOMS = ("config", "protocol", "storage", "client", "broker", "pipeline")


pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a compiler on a busy machine
BUILD_WITHIN_S = 600


def run(command, cwd, environ=None, within_s=600):
    """Run it where nobody says where modules are: pip would not install what it finds on PYTHONPATH."""
    told = os.environ if environ is None else environ
    done = subprocess.run(
        command,
        cwd=cwd,
        env={name: value for name, value in told.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built_once(tmp_path_factory, name, **environ):
    """A wheel that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    target = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            build(tmp_path_factory, **environ).parent.rename(target)
    (path,) = target.glob("*.whl")
    return path


def build(tmp_path_factory, **environ):
    """A wheel of a copy of the sources, made with these in the environment."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, source)
    for name in (*ROOMS, "tidelog"):
        built = shutil.ignore_patterns("__pycache__", "*.so")  # Cython judges an old _kernels.c
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=built)
    target = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    command = [*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", str(target), "."]
    run(command, source, os.environ | environ, BUILD_WITHIN_S)
    (path,) = target.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built_once(tmp_path_factory, "wheel")


@pytest.fixture(scope="module")
def wheel_without_compiler(tmp_path_factory):
    return built_once(tmp_path_factory, "wheel-without-compiler", CC="false", CXX="false")


def install(wheel, directory):
    """Put a wheel into a virtual environment that holds nothing else, with pip."""
    venv.create(directory, with_pip=False, symlinks=True)
    python = directory / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    run([*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)], directory)
    (site_packages,) = directory.glob("lib/python*/site-packages")
    return python, site_packages


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """A virtual environment that holds the wheel and nothing else."""
    return install(wheel, tmp_path_factory.mktemp("environment"))


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
            name.removeprefix("tidelog/")
            for name in names
            if name.startswith(f"tidelog/{room}/") and name.endswith(".py")
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
    assert run([python.with_name("tidelog"), "--version"], project) == "tidelog 0.1.0\n"
    assert "--log-dirs" in run([python, "-m", "tidelog", "serve", "--help"], project)
    code = "import sys; from tidelog.cli import main; sys.exit(main(['--version']))"
    assert run([python, "-c", code], project) == "tidelog 0.1.0\n"


SERVE = """
import re
import sys
import urllib.request
from pathlib import Path
import config, storage
from tidelog.process import BrokerProcess
with BrokerProcess(Path("data")) as broker:
    assert broker.bootstrap.startswith("127.0.0.1:")
    print("twin" if "slower Python kernels" in broker.log() else "kernels")
    page = urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=60).read().decode()
    print(*re.findall(r'tidelog_kernels{implementation="(\\w+)"} 1.0', page))
assert config.THEIRS and storage.THEIRS
print("served")
"""


@contextlib.contextmanager
def lent(site_packages):
    """The dependencies of this environment, but not its tidelog."""
    here = sysconfig.get_path("purelib")
    (site_packages / "dependencies.pth").write_text(f"{here}\n", encoding="utf-8")
    yield
    (site_packages / "dependencies.pth").unlink()


@pytest.fixture
def with_dependencies(environment):
    """The environment with the dependencies of this one, but not its tidelog."""
    with lent(environment[1]):
        yield environment


def test_it_serves_beside_a_users_own_packages(with_dependencies, project):
    python, site_packages = with_dependencies
    code = "from tidelog import broker; print(broker.__file__)"
    assert run([python, "-c", code], project) == f"{site_packages}/tidelog/broker/__init__.py\n"
    assert "--to-brokers" in run([python, "-m", "tidelog", "pipeline", "mirror", "--help"], project)
    built = any(site_packages.rglob("_kernels*.so"))  # not without a C compiler
    assert run([python, "-c", SERVE], project).split() == [
        *(("kernels", "compiled") if built else ("twin", "python")),
        "served",
    ]


TOPICS = """
import sys
from tidelog.cli import main
assert main(["topics", *sys.argv[1:]]) == 0
assert not {"kafka", "confluent_kafka", "aiokafka"} & set(sys.modules)
"""


def test_its_commands_ask_a_broker_with_its_own_client(with_dependencies, project):
    """`tidelog topics` makes and lists a topic, and needs no foreign client for it."""
    python, _ = with_dependencies
    with BrokerProcess(project / "data") as broker:
        where = ["--broker", broker.bootstrap, "--http", broker.http]
        made = run([python.with_name("tidelog"), "topics", "create", "orders", *where], project)
        assert made == "Created orders.\n"
        (told,) = json.loads(run([python, "-c", TOPICS, "--json", *where], project))
        assert (told["topic"], told["partitions"]) == ("orders", 1)


def test_without_a_compiler_the_twin_serves_and_says_so(wheel_without_compiler, project, tmp_path):
    python, site_packages = install(wheel_without_compiler, tmp_path / "environment")
    assert not list(site_packages.rglob("*.so"))
    with lent(site_packages):
        said = run([python, "-c", SERVE], project).split()
    assert said == ["twin", "python", "served"], "in the log and as a metric"


EIGHT = """
def test_eight_brokers_side_by_side(tidelog_broker_factory):
    brokers = [tidelog_broker_factory(clock="manual") for _ in range(8)]
    for year, broker in enumerate(brokers, 2026):
        broker.clock.set(f"{year}-01-01T00:00Z")
    times_ms = [broker.clock.now_ms() for broker in brokers]
    assert len(set(times_ms)) == 8
    assert times_ms == sorted(times_ms)
"""


def test_the_examples_of_the_readme_beside_a_users_own_packages(with_dependencies, project):
    """Every test in the README, and eight brokers with eight times, in an empty environment."""
    python, _ = with_dependencies
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    examples = [block for block in blocks if "def test_" in block]
    assert any("clock.step" in block and "faults.add" in block for block in examples)
    for number, block in enumerate((*examples, EIGHT)):
        (project / f"test_{number}.py").write_text(block, encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", "t"],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(examples) + 1} passed" in done.stdout
