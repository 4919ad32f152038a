"""The script files: taken apart, losing nothing, and written back."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

HERE = Path(__file__).parent


class Part:
    """One part of a script: its title, and its blocks in order."""

    def __init__(self, title):
        self.title = title
        self.blocks = []  # a list of plain lines, or (comments, command, expected lines)


def parse(text):
    """Take a script apart, losing nothing."""
    parts, plain, command = [Part("")], [], None
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("==="):
            parts[-1].blocks.append(plain)
            plain = []
            parts.append(Part(line))
        elif line == "----":
            command = plain.pop()
            expected = []
            for following in lines:
                if not following:
                    break
                expected.append(following)
            parts[-1].blocks += [plain, (command, expected)]
            plain = []
        else:
            plain.append(line)
    parts[-1].blocks.append(plain)
    return parts


def unparse(parts):
    """Write a script back."""
    lines = []
    for part in parts:
        if part.title:
            lines.append(part.title)
        for block in part.blocks:
            lines += block if isinstance(block, list) else [block[0], "----", *block[1], ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def arguments(command):
    """Split `name a=1 b=[2, none]` into the name and its arguments."""
    joined = re.sub(r"\[[^]]*\]", lambda m: m[0].replace(" ", ""), command)
    name, *rest = shlex.split(joined)
    return name, dict(word.split("=", 1) for word in rest)


def times_in(text):
    return [-1 if t == "none" else int(t) for t in text.strip("[]").split(",") if t]


SCRIPTS = {path.name: parse(path.read_text()) for path in sorted(HERE.glob("*.txt"))}
"""The scripts by the names of their files, each a list of parts."""
