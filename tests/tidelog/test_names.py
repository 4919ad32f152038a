"""Each module has one name, `tidelog.protocol.wire`, and is imported by it alone."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("config", "protocol", "storage", "client", "broker", "pipeline")
SHORT = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(ROOMS)})\b", re.MULTILINE)


def test_no_source_imports_a_room_by_its_short_name():
    """But for the tests whose programs are a user's, with modules of the same names."""
    folders = (*ROOMS, "tidelog", "tests", "tools", "benchmarks", "docker")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert {ROOT / "broker/server.py", Path(__file__)} <= set(sources)
    found = {path.name for path in sources if SHORT.search(path.read_text("utf-8"))}
    assert found <= {"test_isolation.py", "test_wheel.py", "test_jobs.py"}


def test_each_room_is_one_package():
    from tidelog import broker

    assert Path(broker.__file__).parent.resolve() == ROOT / "broker"
