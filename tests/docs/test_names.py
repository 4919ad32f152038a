"""What pages name exists: settings, metrics, commands, options, targets; the README names every page."""

from __future__ import annotations

import argparse
import re
from functools import cache

import pytest

from tests.docs.blocks import blocks_of
from tests.docs.test_pages import PAGES, ROOT
from tidelog.broker.http import doctor, readiness
from tidelog.cli.parser import parser_of as parser_of_commands
from tidelog.config import BROKER_SETTINGS, TOPIC_SETTINGS
from tidelog.config.ignored import IGNORED_BROKER_NAMES, IGNORED_TOPIC_NAMES
from tidelog.config.unserved import CONSEQUENCES
from tidelog.pipeline.cli import parser_of as parser_of_jobs
from tidelog.storage.log.retention import findings

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
COMMAND = re.compile(
    r"(?<!-n )(?:\S*/)?tidelog (?!tidelog)((?:pipeline )?[a-z][a-z-]+)(?= |$)([^|#&;]*)",
    re.MULTILINE,
)
OPTION = re.compile(r"(?<=\s)(--[a-z-]+)")
ACTION = re.compile(r"[a-z][a-z-]+")
METRIC = re.compile(r"\b((?:tidelog|kafka)_[a-z0-9]+_[a-z0-9_]+)")
NO_METRIC = re.compile(
    r"tidelog_(\w+_)?(broker|cluster|factory|ready)(_\w+)?"
)  # of the pytest plugin
SETTING = re.compile(r"(?<![\w.=/*-])([a-z][a-z0-9-]*(?:\.[a-z][a-z0-9-]*)+)(?![\w./(*:-])")
OTHERS = {
    "broker",
    "client",
    "fetch",
    "group",
    "kafka",
    "sasl",
    "server",
    "ssl",
}  # begin names of others, too
OF_CLIENTS = {
    "auto.offset.reset",
    "offsets.parquet",
    "security.protocol",
    "transaction.timeout.ms",
    "transaction.version",
    "transactional.id",
}
FILE = re.compile(r"(?<![\w./<:-])([a-z][\w-]*(?:/[\w.-]*\w)+)")
NO_FILE = re.compile(r"(/|_)x\.py$|/[A-Z]+$|^data/|/test_$")  # an example, a key of the metadata


def names_code(page):
    """What a page writes as code within its text, and in blocks for a shell."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    spans = [" ".join(span.split()) for span in SPAN.findall(text)]
    blocks = [block for block in blocks_of(page) if block.language in ("", "sh")]
    return spans + [
        command.replace("\\\n", " ") for block in blocks for command, _ in block.commands()
    ]


@cache
def options_of(command, action):
    """The options of a command and of one of its actions; KeyError if there is no such command."""
    group, _, job = command.partition(" ")
    parser = parser_of_jobs(job) if job else parser_of_commands(group)
    name = job or group
    options = set()
    for word in (name, action):
        options |= set(parser._option_string_actions)
        choosing = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
        if choosing and word is not None:
            parser = choosing[0].choices[word]
    return options | set(parser._option_string_actions)


@pytest.mark.parametrize("name", PAGES)
def test_every_command_and_option_that_a_page_names_exists(name):
    for code in names_code(PAGES[name]):
        for command, rest in COMMAND.findall(code):
            words = rest.split()
            try:
                options = options_of(
                    command, words[0] if words and ACTION.fullmatch(words[0]) else None
                )
            except KeyError:
                options = options_of(command, None)
            assert set(OPTION.findall(rest)) <= options, code


def test_every_metric_that_a_page_names_is_there():
    declared = set(METRIC.findall((ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")))
    declared |= {re.sub(r"_bucket$", "", name) for name in declared}
    for name, page in PAGES.items():
        named = {each for code in names_code(page) for each in METRIC.findall(code)}
        assert {each for each in named - declared if not NO_METRIC.fullmatch(each)} == set(), name


def test_every_target_that_a_page_names_is_in_the_makefile():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name, page in PAGES.items():
        named = {
            target
            for code in names_code(page)
            for target in re.findall(r"^make ([a-z][a-z-]+)", code)
        }
        assert named <= targets, name


def test_the_readme_names_every_page():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = {name for name in PAGES if re.fullmatch(r"docs/\w+\.md", name)}
    assert pages - set(re.findall(r"^\| \[(docs/\w+\.md)\]", text, re.MULTILINE)) == set()


def test_every_setting_that_a_page_names_exists():
    settings = {name for each in BROKER_SETTINGS.values() for name in each.names}
    for each in TOPIC_SETTINGS.values():
        settings |= {*each.names, *each.broker_aliases, *(name.name for name in each.broker_names)}
    settings |= {*IGNORED_BROKER_NAMES, *IGNORED_TOPIC_NAMES, *CONSEQUENCES}
    begun = {name.partition(".")[0] for name in settings} - OTHERS
    for name, page in PAGES.items():
        named = {each for code in names_code(page) for each in SETTING.findall(code)}
        unknown = {each for each in named - settings if each.partition(".")[0] in begun}
        assert unknown <= OF_CLIENTS, name


def test_every_alert_that_a_page_names_is_a_rule():
    rules = (ROOT / "docker" / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
    alerts = set(re.findall(r"alert: (\w+)", rules))
    for name, page in PAGES.items():
        named = {code for code in names_code(page) if re.fullmatch(r"Tidelog[A-Z]\w+", code)}
        assert named <= alerts, name


def test_every_event_of_the_runbook_is_logged():
    page = PAGES["docs/runbook.md"].read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page.partition("## Events in the log")[2], re.MULTILINE)
    events = {event for row in rows for event in SPAN.findall(row)}
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "broker").rglob("*.py")]
    assert len(events) > 10
    assert {each for each in events if not any(f'"{each}"' in text for text in sources)} == set()


def test_the_page_has_every_finding_of_the_doctor():
    text = PAGES["docs/commandline.md"].read_text(encoding="utf-8")
    rows = text.partition("| finding | when |")[2].partition("\n\n")[0].splitlines()[2:]
    named = {
        value
        for module in (findings, readiness, doctor)
        for constant, value in vars(module).items()
        if constant.isupper() and isinstance(value, str) and " " in value
    }
    assert {row.split(" | ")[0].removeprefix("| ") for row in rows} == named - {doctor._SCRUB_ALL}


def test_every_file_that_a_page_names_is_there():
    for name, page in PAGES.items():
        for code in names_code(page):
            for path in FILE.findall(code):
                if not NO_FILE.search(path) and (ROOT / path.partition("/")[0]).is_dir():
                    assert (ROOT / path.partition("::")[0]).exists(), f"{name}: {path}"


def test_the_architecture_names_every_room_on_a_page_that_is_read_at_once():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(\w+)/", text.partition("```text\n")[2].partition("```")[0]))
    rooms = [
        room
        for package in ("config", "protocol", "client", "storage", "broker", "pipeline", "deploy")
        for room in (ROOT / package, *(ROOT / package).glob("*/__init__.py"))
    ]
    assert {(room.parent if room.suffix else room).name for room in rooms} - named == set()
    assert len(text.splitlines()) <= 150
