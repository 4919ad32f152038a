"""The unit of deploy/systemd, judged by systemd's own tool, and the settings beside it by ours."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.config import load

SYSTEMD = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = SYSTEMD / "tidelog.service"
ANALYZE = shutil.which("systemd-analyze")
MOST_EXPOSED = 20  # tenths: below is what systemd calls OK

needs_systemd = pytest.mark.skipif(
    ANALYZE is None, reason="systemd-analyze is not here (on Debian: apt install systemd)"
)


def analyze(*arguments):
    return subprocess.run(
        [ANALYZE, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


@needs_systemd
def test_the_unit_has_no_mistake(tmp_path):
    """With a program that is here, in the place of the one that will be installed."""
    unit = tmp_path / "tidelog.service"
    text = UNIT.read_text(encoding="utf-8")
    assert "\nExecStart=/opt/tidelog/bin/tidelog serve " in text
    unit.write_text(text.replace("/opt/tidelog/bin/tidelog", sys.executable), encoding="utf-8")
    done = analyze("verify", "--man=no", unit)
    mistakes = [line for line in done.stderr.splitlines() if "tidelog.service" in line]
    assert mistakes == []


@needs_systemd
def test_the_unit_has_few_rights():
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", UNIT)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert re.search(r"Overall exposure level .*: [01]\.\d", told)


def test_the_settings_beside_it_are_known_and_on_loopback():
    config = load(SYSTEMD / "server.properties", {}, {})
    assert config.ignored == {}
    assert [at.host for at in config.listeners] == ["127.0.0.1"]
    assert config.http.address == ("127.0.0.1", 8080)
    text = UNIT.read_text(encoding="utf-8")
    assert [
        f"StateDirectory={directory.removeprefix('/var/lib/')}\n" in text
        for directory in config.log_dirs
    ] == [True]
