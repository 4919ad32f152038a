"""What the shared options mean, and what each refuses."""

from __future__ import annotations

import pytest

from tidelog.command_line import Parser
from tidelog.pipeline import cli, options
from tidelog.pipeline.declaring import declared
from tidelog.pipeline.errors import UsageError
from tidelog.pipeline.plan import PLAN, ScanPlan
from tidelog.text import with_signed_values


@declared
class Job(options.RunOptions, options.TimedSource):
    job = "j"


def parsed(*arguments):
    parser = Parser()
    cli.add_options(parser, Job)
    return Job(**vars(parser.parse_args(with_signed_values(list(arguments)))))


def test_times_are_event_times_of_any_year():
    found = parsed("--logs", "d", "--from", "-0044-03-15T12:00Z", "--to", "-1")
    selection = options.selection_of(found)
    assert (selection.low_time, selection.high_time) == (-63549316800000, -1)


def test_times_may_be_told_from_now_on(monkeypatch):
    monkeypatch.setattr(options.time, "time_ns", lambda: 1_700_000_000_000_000_000)
    found = parsed("--brokers", "b:9092", "--from", "-2h", "--to", "now")
    assert (found.from_, found.to) == (1_699_992_800_000, 1_700_000_000_000)


def begun(directory, *arguments):
    """The options of a run of these arguments, and its plan: made now, or found."""
    found = parsed("--brokers", "b:9092", *arguments)
    found = options.as_begun(found, directory / PLAN)
    told = options.read_arguments(found)
    plan = ScanPlan.open(
        directory, job="j", run="r", arguments=told, now_ms=9, make=lambda: ((), {})
    )
    return options.selection_of(found), plan


def test_a_time_from_now_on_means_what_it_meant_when_the_run_began(tmp_path, monkeypatch):
    now_ns = 1_700_000_000_000_000_000
    monkeypatch.setattr(options.time, "time_ns", lambda: now_ns)
    given = ("--from", "-2h", "--to", "now")
    first, plan = begun(tmp_path, *given)
    assert plan.is_new
    assert (first.low_time, first.high_time) == (1_699_992_800_000, 1_700_000_000_000)
    now_ns += 3_600_000_000_000
    for _ in range(2):
        again, plan = begun(tmp_path, *given)
        assert (again, plan.is_new) == (first, False)
    same, _ = begun(tmp_path, "--from", "2023-11-14T20:13:20Z", "--to", "1700000000000")
    assert same == first


@pytest.mark.parametrize(
    ("began", "asked", "said"),
    [
        (("--from", "-2h"), ("--from", "-3h"), "with --from -2h, and is now asked for --from -3h"),
        (("--from", "-2h"), (), "with --from -2h, and is now asked for no --from"),
        ((), ("--to", "now"), "with no --to, and is now asked for --to now"),
        (
            ("--from", "2026-01-01T00:00Z"),
            ("--from", "-2h"),
            "with --from 2026-01-01T00:00:00.000Z, and is now asked for --from -2h",
        ),
    ],
)
def test_another_time_than_the_run_began_with_is_refused(tmp_path, began, asked, said):
    begun(tmp_path, *began)
    with pytest.raises(UsageError, match=said):
        begun(tmp_path, *asked)


def test_a_range_that_is_empty_is_refused():
    with pytest.raises(UsageError, match=r"--from 1970.*is not before --to 1970"):
        options.selection_of(parsed("--logs", "d", "--from", "5", "--to", "5"))


@pytest.mark.parametrize(
    ("text", "names", "pattern"),
    [
        (None, (), None),
        ("a", ("a",), None),
        ("a,b.c,a", ("a", "b.c"), None),
        ("orders.*", (), "orders.*"),
        ("a|b", (), "a|b"),
    ],
)
def test_topics_are_names_or_a_regular_expression(text, names, pattern):
    assert options.topics_of(text) == (names, pattern)


def test_a_broken_expression_is_refused():
    with pytest.raises(UsageError, match="no regular expression"):
        options.selection_of(parsed("--logs", "d", "--topics", "a("))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--brokers", "b:9092", "--logs", "d"),
        ("--brokers", "b"),
        ("--logs", "d", "--from", "yesterday"),
        ("--logs", "d", "--split-bytes", "0"),
        ("--logs", "d", "--run", "../x"),
        ("--logs", "d", "--run", ".."),
        ("--logs", "d", "--conf", "x"),
        ("--logs", "d", "--report", "pdf"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments):
    with pytest.raises((UsageError, SystemExit)):
        parsed(*arguments)


def test_sizes():
    sizes = {"1": 1, "64k": 65536, "128M": 128 << 20, "1g": 1 << 30}
    assert {text: options.size(text) for text in sizes} == sizes


def test_a_run_that_was_given_no_name_gets_one():
    first, second = options.new_run_id("audit", 0), options.new_run_id("audit", 0)
    assert first.startswith("audit-19700101T000000Z-")
    assert first != second
    assert options.run_id(first) == first


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["archive", "--task-offsets", "70"], "task_offsets", 70),
        (
            ["mirror", "--to-brokers", "b:1", "--brokers", "a:1", "--batch-bytes", "2k"],
            "batch_bytes",
            2048,
        ),
    ],
)
def test_a_deprecated_option_works_and_says_what_stands_for_it(arguments, name, value, capsys):
    parser = cli.parser_of(arguments[0])
    assert getattr(cli.options_from(arguments), name) == value
    option = f"--{name.replace('_', '-')}"
    said = capsys.readouterr().err
    assert said.startswith(f"tidelog pipeline {arguments[0]}: {option} is deprecated: ")
    assert said.count("\n") == 1
    parser.parse_args([each for each in arguments if each not in (option, arguments[-1])])
    assert capsys.readouterr().err == ""
    with pytest.raises(SystemExit):
        parser.parse_args([arguments[0], "--help"])
    assert option not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("retention.ms=7d", ("retention.ms", "604800000")),
        ("retention.ms=-1", ("retention.ms", "-1")),
        ("retention.ms=soon", ("retention.ms", "soon")),
        ("segment.bytes=64MiB", ("segment.bytes", "67108864")),
    ],
)
def test_a_setting_may_have_a_unit(text, expected):
    """As for `configs set`; what is none is left to the error about the setting."""
    assert options.setting(text) == expected


MASTERS = (
    "auto inline local local[2] local[*] local[2,4] local-cluster[2,1,1024] yarn k8s://https://h"
)
NO_MASTERS = "locl local[ local[x] local2 spark yarn-client local-cluster[2,1]"


@pytest.mark.parametrize(
    "text",
    [
        *(*MASTERS.split(), "local[*, 4]"),
        *("spark://h:7077", "spark://a:1,b:2", "spark://[::1]:7077"),
    ],
)
def test_a_master_has_a_known_form(text):
    assert options.master(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *(*NO_MASTERS.split(), "", "spark://nonsense", "spark://"),
        *("spark://h:", "spark://h:port", "spark://a:1,b", "spark://a b:1"),
    ],
)
def test_another_master_is_refused_before_spark_starts(text):
    with pytest.raises(ValueError, match=r"is no master: give auto, inline, local"):
        options.master(text)
