"""A reader of a page who types each command, in the page's order, and looks at what it prints.

He is in an empty directory with `tidelog` on his path, also as `.venv/bin/tidelog`. What `tidelog serve`
starts, serves until he has read the page, or until another one is started on its ports. Where a page starts
none, a broker serves on the default ports. The ports of a page are others in truth, free ones, so that pages
can be read side by side.

What a command prints has to be what stands below it, on standard output or on standard error, but for
times, durations and sizes (numbers with a point, a comma or a colon, or before a unit), the width of spaces,
and what `...` stands for. A command with nothing below it has to succeed.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.docs.blocks import Block

ROOT = Path(__file__).parents[2]
WITHIN_S = 300
_ADDRESS = re.compile(r"\b(127\.0\.0\.1|localhost):(\d+)(\d)\b")
_SERVE = re.compile(r"(?:\S*/)?tidelog serve\b")
_SERVE_BY_DEFAULT = "tidelog serve --log-dirs data --http 127.0.0.1:8080"
_NUMBER = re.compile(r"[-+]?\d+(?:[T,.:-]\d+)+Z?|\d+(?= (?:[KMG]iB|ms|s|h)\b)")
_PROGRESS = re.compile(r"^\{.*\}\n", re.MULTILINE)
_TIDELOG = """#!{python} -P
import sys
sys.path.append({root!r})
from tidelog.cli import main
sys.exit(main())
"""


class Reader:
    """Reads the blocks of one page, in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._tens: dict[str, str] = {}  # of ports of the page, all digits but the last: in truth
        self._servers: dict[str, subprocess.Popen[str]] = {}
        programs = directory / ".venv" / "bin"
        programs.mkdir(parents=True)
        command = programs / "tidelog"
        command.write_text(_TIDELOG.format(python=sys.executable, root=str(ROOT)))
        command.chmod(0o755)
        paths = (str(programs), str(Path(sys.executable).parent), os.environ["PATH"])
        self._environment = os.environ | {
            "PATH": os.pathsep.join(paths),
            "PYTHONPATH": str(ROOT),
            "TIDELOG_BROKER": self._told("127.0.0.1:9092"),
            "TIDELOG_HTTP": self._told("127.0.0.1:8080"),
        }

    def read(self, block: Block) -> None:
        """Does what a block says. Raises AssertionError where something else comes of it."""
        commands = [*((command, "") for command in block.first), *block.commands()]
        if not self._servers and not _SERVE.match(commands[0][0]):
            self._serve(_SERVE_BY_DEFAULT)
        typed: list[tuple[str, str]] = []
        for command, shown in commands:
            if _SERVE.match(command) and not shown:
                self._type(typed)
                typed = []
                self._serve(command)
            else:
                typed.append((command, shown))
        self._type(typed)

    def close(self) -> None:
        """Stops what serves."""
        for command in [*self._servers]:
            self._stop(command)

    def _told(self, text: str) -> str:
        """Returns a text with the ports that they are in truth."""

        def port(address: re.Match[str]) -> str:
            host, tens, digit = address.groups()
            if tens not in self._tens:
                self._tens[tens] = _free_tens()
            return f"{host}:{self._tens[tens]}{digit}"

        return _ADDRESS.sub(port, text)

    def _as_on_the_page(self, text: str) -> str:
        for tens, truly in self._tens.items():
            text = re.sub(rf":{truly}(\d)\b", rf":{tens}\1", text)
        return text

    def _serve(self, command: str) -> None:
        """Starts one broker or several, and waits until clients can connect."""
        command = command.partition(" #")[0].rstrip(" &")
        if "--listeners" not in command:
            command += " --listeners PLAINTEXT://127.0.0.1:9092"
        for before in [*self._servers]:
            if {match[0] for match in _ADDRESS.finditer(before)} & {
                match[0] for match in _ADDRESS.finditer(command)
            }:
                self._stop(before)
        log = (self.directory / f"serve-{len(self._servers)}.log").open("w+")
        server = subprocess.Popen(
            ["bash", "-c", f"exec {self._told(command)} --stop-at-eof"],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.PIPE,  # a broker does not outlive the test
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self._servers[command] = server
        assert server.stdout is not None
        ready = server.stdout.readline()
        assert ready.startswith("ready "), (command, ready, Path(log.name).read_text())
        log.close()

    def _stop(self, command: str) -> None:
        server = self._servers.pop(command)
        server.terminate()
        server.communicate(timeout=WITHIN_S)
        assert server.returncode == 0, command

    def _type(self, commands: list[tuple[str, str]]) -> None:
        """Types commands into one shell."""
        if not commands:
            return
        mark = "== the next command =="
        ends = f'\nprintf "\\n%s %s\\n" $? "{mark}" | tee /dev/stderr\n'
        script = ends.join([*(self._told(command) for command, _ in commands), ""])
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", script],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S * 2,
            check=False,
        )
        outputs = self._as_on_the_page(done.stdout).split(f" {mark}\n")
        errors = self._as_on_the_page(done.stderr).split(f" {mark}\n")
        assert len(outputs) == len(commands) + 1, (commands, done)
        for (command, shown), output, error in zip(commands, outputs, errors, strict=False):
            printed, _, status = output.rpartition("\n")
            said = _PROGRESS.sub("", error.rpartition("\n")[0])
            if shown:
                assert any(_is_as(shown, each) for each in (printed, said, said + printed)), (
                    f"{command}\nprinted\n{printed}\n{said}"
                )
            else:
                assert status == "0", f"{command}\nfailed with {status}:\n{printed}\n{said}"


def _free_tens() -> str:
    """Returns ten free ports that follow each other, without their last digit."""
    while True:
        tens = random.SystemRandom().randrange(1200, 3200)
        with contextlib.suppress(OSError), contextlib.ExitStack() as bound:
            for port in range(tens * 10, tens * 10 + 10):
                each = bound.enter_context(socket.socket())
                each.bind(("127.0.0.1", port))
            return str(tens)


def _is_as(shown: str, printed: str) -> bool:
    """Whether what was printed is what a page shows."""
    pattern = re.escape(_plain(shown)).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, _plain(printed), re.DOTALL) is not None


def _plain(text: str) -> str:
    """Returns a text without what is another one every time."""
    return re.sub(r"\s+", " ", re.sub("─+", "─", _NUMBER.sub("#", text))).strip()
