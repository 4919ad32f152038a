"""Plants faults in the product, one at a time, and runs the tests of that room.

    python tools/mutants.py --room storage --count 20 --seed 1

The faults are those of cosmic-ray, chosen at random by the seed: another comparison or operator, a number
that is one off, a negated condition, a loop that does not run. One that changes only annotations is not
chosen. Each is planted in a copy of the tree. The tests are those of `make test` for the room (ROOMS); the
first that fails has caught it. Prints each fault with its verdict.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cosmic_ray.ast import Visitor, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {
    "protocol": ("tests/protocol",),
    "storage": ("tests/storage", "tests/time"),
    "broker": ("tests/broker", "tests/time", "tests/simulation"),
}
NOT_CHOSEN = ("RemoveDecorator", "ExceptionReplacer", "Variable", "_Delete_", "_Invert")
FAST = "not (slow or oracle or clients or docker or spark or long)"
WITHIN_S = 900


class _Positions(Visitor):  # type: ignore[misc]
    """Counts where an operator applies."""

    def __init__(self, operator: object) -> None:
        self.operator, self.count = operator, 0

    def visit(self, node: object) -> object:
        """Counts those of one node."""
        self.count += sum(1 for _ in self.operator.mutation_positions(node))  # type: ignore[attr-defined]
        return node


class _Bare(ast.NodeTransformer):
    """Removes annotations."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815


def bare(code: str) -> str:
    """Returns a source without comments and annotations."""
    return ast.unparse(_Bare().visit(ast.parse(code)))


def faults(room: str, chance: random.Random) -> Iterator[tuple[Path, str]]:
    """Yields modules of a room with a fault in each, in random order and without end."""
    paths = sorted((ROOT / room).rglob("*.py"))
    sizes = [path.stat().st_size for path in paths]
    names = [name for name in operator_names() if not any(part in name for part in NOT_CHOSEN)]
    while True:
        (path,) = chance.choices(paths, sizes)
        operator = get_operator(chance.choice(names))
        try:
            operator = operator()
        except TypeError:  # it has arguments
            continue
        code = path.read_text("utf-8")
        found = _Positions(operator)
        found.walk(get_ast(code))
        if not found.count:
            continue
        changed = mutate_code(code, operator, chance.randrange(found.count))
        if changed and bare(changed) != bare(code):
            yield path.relative_to(ROOT), changed


def copied(directory: Path) -> None:
    """Copies what git knows, and the compiled kernels."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    kernels = (str(path.relative_to(ROOT)) for path in ROOT.glob("protocol/records/_kernels*.so"))
    for name in (*listed.stdout.splitlines(), *kernels):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():  # else it was deleted, and that is not committed
            shutil.copy2(ROOT / name, directory / name, follow_symlinks=False)


def verdict(directory: Path, room: str, workers: str) -> str:
    """Runs the room's tests in a copy of the tree; says which test has caught the fault."""
    how = ("-q", "-x", "-n", workers, "--dist", "worksteal", "-p", "no:cacheprovider", "-m", FAST)
    environ = {**os.environ, "PYTHONPATH": str(directory), "CI": "true"}
    command = [sys.executable, "-m", "pytest", *how, *ROOMS[room]]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environ,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "caught: the tests do not end"
    if not done.returncode:
        return "NOT CAUGHT"
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return f"caught by {named[1]}" if named else "caught: the tests cannot begin"


def main() -> None:
    """Plants the faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--room", choices=ROOMS, default="storage")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", default="2")
    given = parser.parse_args()
    chosen = faults(given.room, random.Random(given.seed))
    caught = 0
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        copied(directory)
        for number in range(1, given.count + 1):
            path, changed = next(chosen)
            code = (ROOT / path).read_text("utf-8")
            (directory / path).write_text(changed, "utf-8")
            said = verdict(directory, given.room, given.workers)
            (directory / path).write_text(code, "utf-8")
            caught += said.startswith("caught")
            diff = difflib.unified_diff(
                code.splitlines(), changed.splitlines(), str(path), "", "", "", 0, ""
            )
            print(f"{number}. {said}", *list(diff)[2:], f"   {path}", sep="\n", flush=True)
    print(f"{given.room}, seed {given.seed}: {caught} of {given.count} caught")


if __name__ == "__main__":
    main()
