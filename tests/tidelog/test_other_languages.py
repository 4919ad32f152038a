"""The programs of docs/testing.md that start a broker themselves, run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "testing.md"
ADDRESS = re.compile(r"127\.0\.0\.1:\d+\n")


def program(language: str, beginning: str) -> str:
    """The one example in a language that contains some words."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if beginning in block]
    return found


def run(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A program with `tidelog` on its path, which must succeed, and leave no broker behind."""
    folder = directory / "bin"
    folder.mkdir()
    start = folder / "tidelog"  # as an installation writes it
    start.write_text(
        f"#!{sys.executable} -P\nimport sys\nsys.path.append({str(ROOT)!r})\n"
        "from tidelog.cli import main\nsys.exit(main())\n"
    )
    start.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(directory),
        "_JAVA_OPTIONS": f"-Djava.io.tmpdir={directory}",
        "GOCACHE": str(directory / "go"),
        "GOFLAGS": "-mod=mod",
    }
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_unittest(tmp_path):
    (tmp_path / "test_orders.py").write_text(program("python", "unittest"))
    done = run(tmp_path, sys.executable, "-m", "unittest", "test_orders")
    assert "Ran 1 test" in done.stderr
    assert not list(tmp_path.glob("tmp*")), "the directory of the broker's logs is still there"


@pytest.mark.clients
def test_java(tmp_path):
    if shutil.which("javac") is None:
        pytest.skip("needs a JDK: apt-get install default-jdk-headless")
    (tmp_path / "Broker.java").write_text(program("java", "ProcessBuilder"))
    done = run(tmp_path, "java", "Broker.java")
    assert ADDRESS.fullmatch(done.stdout), done
    assert 'msg="broker stopped"' in done.stderr


@pytest.mark.clients
def test_go(tmp_path):
    if shutil.which("go") is None:
        pytest.skip("needs Go: apt-get install golang-go")
    (tmp_path / "broker.go").write_text(program("go", "StdinPipe"))
    done = run(tmp_path, "go", "run", "broker.go")
    assert ADDRESS.fullmatch(done.stdout), done
    assert 'msg="broker stopped"' in done.stderr
