"""Every command and every job in an installation that has nothing but the broker's own dependencies."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata

NAME = re.compile(r"[A-Za-z0-9._-]+")
PROGRAM = """
import contextlib, importlib.abc, io, json, sys

blocked = frozenset(json.loads(sys.stdin.read()))

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Blocker())
from tidelog.cli.parser import _ASKING, main, parser_of
from tidelog.pipeline.cli import JOBS, parser_of as parser_of_job

def run(line):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(line)
        except SystemExit as left:
            status = left.code
        except Exception as error:
            status = repr(error)
    return status, out.getvalue(), err.getvalue()

lines = [[], ["pipeline"]]
for command in ("serve", *_ASKING):
    lines += [part.prog.split()[1:] for part in parser_of(command).part(command).all_parts()]
for job in JOBS:
    lines += [part.prog.split()[1:] for part in parser_of_job(job).part(job).all_parts()]
print(json.dumps([[line, run([*line, "--help"]), run([*line, "--nonsense"])] for line in lines]))
"""


def own_dependencies():
    """The distributions that `pip install tidelog` brings, and tidelog itself."""
    found, wanted = set(), ["tidelog"]
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if name in found:
            continue
        found.add(name)
        try:
            requires = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            continue  # for another system
        wanted += [NAME.match(each)[0] for each in requires if "extra ==" not in each]
    return found


def test_help_and_mistakes_need_nothing_else():
    bare = own_dependencies()
    modules = metadata.packages_distributions()
    blocked = [
        module
        for module, names in modules.items()
        if all(re.sub(r"[-_.]+", "-", name).lower() not in bare for name in names)
    ]
    assert {"numpy", "pyarrow", "kafka", "pytest"} <= set(blocked)
    assert "rich" not in blocked
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(blocked),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert len(results) > 55
    for line, helped, refused in results:
        status, out, err = helped
        assert (status, err) == (0, ""), (line, err)
        name = " ".join(["tidelog", *line])
        assert out.startswith(f"usage: {name}")
        status, out, err = refused
        assert (status, out) == (2, ""), (line, status, out)
        assert re.fullmatch(
            rf"{name}[a-z -]*: (unrecognized arguments: --nonsense|.*required).*\n", err
        ), err
