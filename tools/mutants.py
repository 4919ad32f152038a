"""Injects faults in the product, one at a time, and runs the tests of that room.

    make mutants ROOM=storage MUTANTS=20 SEED=1

The faults are those of cosmic-ray, chosen at random by the seed: another comparison or operator, a number
that is one off, a negated condition, a loop that does not run. One that changes only annotations is not
chosen. Each is injected in a copy of the tree. The tests are those of `make test`, first the folder that
mirrors the module's, then the room's (ROOMS); the first that fails has caught the fault. Prints each fault
with its verdict.
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
    "protocol": ("tests/protocol", "tests/storage"),
    "storage": ("tests/storage", "tests/time"),
    "broker": ("tests/broker", "tests/time", "tests/simulation"),
}
# Most of these cannot run; "|" stands in types nearly always, and "is" differs from "==" in nothing of ours.
NOT_CHOSEN = (
    *("RemoveDecorator", "ExceptionReplacer", "Variable"),
    *("_Delete_", "_Invert", "_BitOr_", "_Is"),
)
WITHIN_S = 900
NO_TESTS = 5  # the status of pytest where it finds none


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


def differ(code: str, changed: str) -> bool:
    """Whether two sources differ in more than comments and annotations; not if the second is none."""
    try:
        after = ast.parse(changed)
    except SyntaxError:  # some operators take any asterisk for a product
        return False
    return ast.unparse(_Bare().visit(after)) != ast.unparse(_Bare().visit(ast.parse(code)))


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
        if changed and differ(code, changed):
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


def nearest(path: Path) -> str:
    """Returns the folder of tests that mirrors a module's, or the first above it that there is."""
    mirrored = (Path("tests", folder) for folder in path.parents)
    return str(next(folder for folder in mirrored if (ROOT / folder).exists()))


def failing(directory: Path, tests: tuple[str, ...], marks: str, workers: str) -> str:
    """Runs tests in a copy of the tree. Returns what failed first, or nothing."""
    how = ("-q", "-x", "-n", workers, "--dist", "worksteal", "-p", "no:cacheprovider", "-m", marks)
    environ = {**os.environ, "PYTHONPATH": str(directory), "CI": "true"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *how, *tests],
            cwd=directory,
            env=environ,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "tests that do not end"
    if done.returncode in (0, NO_TESTS):
        return ""
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return named[1] if named else "tests that cannot begin"


def main() -> None:
    """Injects the faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--room", choices=ROOMS, default="storage")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--marks", required=True, help="which tests, as pytest's -m")
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
            by = ""
            for tests in ((nearest(path),), ROOMS[given.room]):
                by = by or failing(directory, tests, given.marks, given.workers)
            (directory / path).write_text(code, "utf-8")
            caught += bool(by)
            diff = difflib.unified_diff(
                code.splitlines(), changed.splitlines(), str(path), "", "", "", 0, ""
            )
            said = f"caught by {by}" if by else "NOT CAUGHT"
            print(f"{number}. {said}", *list(diff)[2:], f"   {path}", sep="\n", flush=True)
    print(f"{given.room}, seed {given.seed}: {caught} of {given.count} caught")


if __name__ == "__main__":
    main()
