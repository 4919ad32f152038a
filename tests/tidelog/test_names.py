"""Each module has one name, `tidelog.protocol.wire`, and is imported by it alone."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = {"config", "protocol", "storage", "client", "broker", "pipeline"}


def imported(path):
    """The top-level packages that a source imports by absolute names."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def test_no_source_imports_a_room_by_its_short_name():
    folders = (*ROOMS, "tidelog", "tests", "tools", "benchmarks", "docker")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert {ROOT / "broker/server.py", Path(__file__)} <= set(sources)
    assert [str(path) for path in sources if ROOMS & set(imported(path))] == []


def test_each_room_is_one_package():
    from tidelog import broker

    assert Path(broker.__file__).parent.resolve() == ROOT / "broker"
