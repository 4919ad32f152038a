"""The commands of docs/commandline.md, run one after the other: each prints what stands below it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.cli.parser import _ASKING
from tidelog.process import BrokerProcess

PAGE = Path(__file__).parents[3] / "docs" / "commandline.md"
EXAMPLE = re.compile(r"^    \$ (.*)\n((?:    [^$ ].*\n)*)", re.MULTILINE)


def shell(command, broker, tidelog):
    """A command in a shell in which `tidelog` asks this broker."""
    where = f"--broker {broker.bootstrap} --http {broker.http}"
    command = re.sub(r"tidelog [^|]*[^| ]", rf'"$TIDELOG" -m \g<0> {where}', command)
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=os.environ | {"TIDELOG": tidelog},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)  # thirty programs start, one after the other
def test_every_command_of_the_page_runs_in_its_order(tmp_path):
    examples = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(examples) == 29
    with BrokerProcess(tmp_path / "data") as broker:
        for command, expected in examples:
            done = shell(command, broker, sys.executable)
            assert done.returncode == 0, (command, done.stderr)
            assert done.stdout, command
            if expected:
                assert done.stdout == re.sub(r"^    ", "", expected, flags=re.MULTILINE), command
        copied = shell("tidelog consume copy --format '%T %k %s\\n'", broker, sys.executable)
        assert "-14182980000 eagle the moon landing" in copied.stdout.splitlines()


def test_every_command_there_is_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in _ASKING if name not in text] == []
