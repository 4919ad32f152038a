"""Every page, read line by line: each command does what the page says, or the page says why it is not run."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of
from tests.docs.reader import Reader

ROOT = Path(__file__).parents[2]
PAGES = {
    str(page.relative_to(ROOT)): page
    for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    if page.name != "CHANGELOG.md" and page.parent.name != "decisions"
}
ON_SPARK = "it needs Spark"
READ = [name for name, page in PAGES.items() if any(block.is_run for block in blocks_of(page))]
OTHER_LANGUAGES = {"text", "ini", "properties", "json", "toml", "yaml", "java", "go"}
# What changes nothing but the reader's directory, and his brokers.
PROGRAMS = re.compile(
    r"(\.venv/bin/)?tidelog|kcat|curl|python3?|echo|printf|cat|seq|sed|find|rm|for|until|\w+=.*"
)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # each command is a program that starts, on a busy machine
@pytest.mark.parametrize("name", READ)
def test_every_command_of_a_page_does_what_the_page_says(name, tmp_path):
    blocks = [block for block in blocks_of(PAGES[name]) if block.is_run]
    test_every_command_may_be_run_on_this_machine_or_says_why_it_is_not(name)
    for program in ("kcat", "curl"):
        if shutil.which(program) is None and any(
            program in line for block in blocks for line in (block.text, *block.first)
        ):
            pytest.skip(f"needs {program}: apt-get install {program}")
    with closing(Reader(tmp_path)) as reader:
        for block in blocks:
            reader.read(block)


@pytest.mark.spark
@pytest.mark.timeout(1200)  # each program starts a JVM
@pytest.mark.parametrize("name", [name for name in PAGES if ON_SPARK in PAGES[name].read_text()])
def test_every_program_of_a_page_runs_on_spark(name, tmp_path):
    pytest.importorskip("pyspark")
    with closing(Reader(tmp_path)) as reader:
        for block in blocks_of(PAGES[name]):
            if block.reason == ON_SPARK:
                reader.read(block)


def test_every_block_has_a_language_that_is_known_or_is_for_a_shell():
    for name, page in PAGES.items():
        for block in blocks_of(page):
            known = block.is_run or block.reason is not None or block.language in OTHER_LANGUAGES
            assert known, f"{name}:{block.line}: {block.language}"


@pytest.mark.parametrize("name", READ)
def test_every_command_may_be_run_on_this_machine_or_says_why_it_is_not(name):
    for block in blocks_of(PAGES[name]):
        for command, _ in block.commands() if block.is_run else ():
            assert PROGRAMS.fullmatch(command.split()[0]), f"{name}:{block.line}: {command}"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("echo moon", "sun"),
        ("echo 30 records in 1.5 s", "40 records in 2.5 s"),
        ("echo moon; echo sun", "moon"),
        ("false", ""),
        ("tidelog topics --no-such-option", ""),
    ],
)
def test_a_page_that_is_false_is_noticed(line, shown, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"A page:\n\n<!-- first: true -->\n    $ {line}\n    {shown}\n")
    (block,) = blocks_of(page)
    reader = Reader(tmp_path)
    reader._servers["none is needed"] = None
    with pytest.raises(AssertionError, match=re.escape(line)):
        reader.read(block)
