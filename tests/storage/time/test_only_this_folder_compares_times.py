"""Time is decided in one folder: nothing else in storage compares or subtracts timestamps."""

import ast
from pathlib import Path

import pytest

STORAGE = Path(__file__).parents[3] / "storage"
ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
WORDS = {"time", "times", "timestamp", "timestamps", "stamp", "now", "ms"}


def names_a_time(*operands):
    names = [
        n.id if isinstance(n, ast.Name) else n.attr
        for operand in operands
        for n in ast.walk(operand)
        if isinstance(n, ast.Name | ast.Attribute)
    ]
    return any(WORDS & set(name.lower().split("_")) for name in names)


def comparisons_of_times(source):
    """Lines that order values or take a min or max, where one value is named like a time.

    Also lines that subtract one time from another: an age, or a moment in the past.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(isinstance(op, ORDER) for op in node.ops):
            operands = [node.left, *node.comparators]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("min", "max", "sorted")
        ):
            operands = node.args
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            if names_a_time(node.left) and names_a_time(node.right):
                found.append(node.lineno)
            continue
        else:
            continue
        if names_a_time(*operands):
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    "path", sorted(STORAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(STORAGE))
)
def test_only_the_home_of_time_compares_times(path):
    found = comparisons_of_times(path.read_text())
    if path.parent.name != "time":
        assert found == []


def test_an_injected_comparison_is_found():
    assert comparisons_of_times("if batch.timestamp > largest: pass") == [1]
    assert comparisons_of_times("x = max(a.largest_time, b)") == [1]
    assert comparisons_of_times("\nx = now_ms - y <= keep") == [2]
    assert comparisons_of_times("x = written_ms(s) - job.delete_retention_ms") == [1]
    assert comparisons_of_times("x = len(times) - 1") == []
    assert comparisons_of_times("x = offset < end") == []
