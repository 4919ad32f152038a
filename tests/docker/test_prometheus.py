"""The scrape configuration and the alert rules of docker/prometheus, judged by Prometheus' own promtool.

alerts_test.yml has for every alert a case in which it speaks and one in which it is silent.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tidelog.cli import main
from tools.check_links import anchors

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "docker" / "prometheus"
RUNBOOK = ROOT / "docs" / "runbook.md"
CASES = Path(__file__).with_name("alerts_test.yml")
PROMTOOL = shutil.which("promtool")

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not here (on Debian: apt install prometheus)"
)


def alerts():
    return re.findall(r"- alert: (\w+)", (PROMETHEUS / "alerts.yml").read_text(encoding="utf-8"))


def promtool(*arguments):
    return subprocess.run(
        [PROMTOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


def test_every_alert_has_a_case_that_speaks_and_one_that_is_silent():
    expected = re.findall(
        r"alertname: (\w+)\n +exp_alerts:( \[\])?", CASES.read_text(encoding="utf-8")
    )
    speaking = {name for name, silent in expected if not silent}
    silent = {name for name, silent in expected if silent}
    # Of this one both are in one answer: two brokers, one with kernels.
    assert speaking == set(alerts())
    assert silent == set(alerts()) - {"TidelogPythonTwin"}


def test_every_alert_has_its_entry_in_the_runbook():
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    urls = [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]]
    assert urls == [f"docs/runbook.md#{alert.lower()}" for alert in alerts()]
    page = RUNBOOK.read_text(encoding="utf-8")
    others = {"runbook", "events-in-the-log"}
    assert anchors(page) == others | {alert.lower() for alert in alerts()}


def test_the_commands_of_the_runbook_are_there():
    page = RUNBOOK.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|^    )tidelog ([a-z-]+)", page, re.MULTILINE))
    assert {"doctor", "explain", "cluster"} <= named
    for command in named:
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0, command


@needs_promtool
def test_the_configuration_is_sound():
    done = promtool("check", "config", PROMETHEUS / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(alerts())} rules found" in done.stdout


@needs_promtool
def test_the_alerts_speak_when_they_should():
    done = promtool("test", "rules", CASES)
    assert done.returncode == 0, done.stdout + done.stderr


# What each injected bug changes; the cases must notice every one.
MISTAKES = {
    "TidelogDown": ("== 0\n        for: 1m", "== 0\n        for: 5m"),
    "TidelogLogOffline": ("tidelog_offline_logs > 0", "tidelog_offline_logs > 5"),
    "TidelogDiskFull": ("tidelog_log_dir_full > 0", "sum(tidelog_log_dir_full) > 0"),
    "TidelogDiskFillsUp": ("< 0.1\n        for: 5m", "< 0.1\n        for: 1m"),
    "TidelogBadBatches": ("tidelog_scrub_bad_batches > 0", "tidelog_scrub_bad_batches > 5"),
    "TidelogOfflinePartitions": ("max(kafka_controller", "sum(kafka_controller"),
    "TidelogUnderMinIsr": (
        "underminisrpartitioncount > 0\n        for: 1m",
        "underminisrpartitioncount > 0\n        for: 5m",
    ),
    "TidelogUnderReplicated": (
        "underreplicatedpartitions > 0\n        for: 5m",
        "underreplicatedpartitions > 0\n        for: 1m",
    ),
    "TidelogNoController": ("sum(kafka_controller", "min(kafka_controller"),
    "TidelogUncleanElection": (
        "increase(kafka_controller_controllerstats_uncleanleaderelections_total[10m])",
        "kafka_controller_controllerstats_uncleanleaderelections_total",
    ),
    "TidelogUnexpectedError": (
        "increase(tidelog_unexpected_errors_total[10m])",
        "tidelog_unexpected_errors_total",
    ),
    "TidelogPythonTwin": ('implementation!="compiled"', 'implementation="compiled"'),
    "TidelogSlowProduce": ('request="Produce"', 'request=~".*"'),
    "TidelogLoopLags": (
        "sum by (instance, le)\n          (rate(tidelog_loop",
        "sum by (le)\n          (rate(tidelog_loop",
    ),
    "TidelogMemoryRefused": (
        "increase(tidelog_memory_refused_total[10m])",
        "tidelog_memory_refused_total",
    ),
    "TidelogDoomedOnArrival": (
        "or (tidelog_doomed_records_total unless tidelog_doomed_records_total offset 10m) > 0",
        "",
    ),
    "TidelogSuspectTimes": ("tidelog_suspect_time_batches_total offset 10m", "vector(0)"),
    "TidelogWindowRefuses": (
        "increase(tidelog_window_refused_batches_total[10m]) > 0",
        "vector(0) > 0",
    ),
    "TidelogGroupBehind": ("max_over_time(tidelog_group_members[1h]) > 0", "tidelog_group_members"),
    "TidelogHangingTransaction": (
        "latetransactionscount > 0\n        for: 5m",
        "latetransactionscount > 0\n        for: 1m",
    ),
    "TidelogTransactionNotEnded": ("oldest_seconds > 1200", "oldest_seconds > 600"),
    "TidelogTransactionsTimeOut": ('{outcome="timed out"}[10m]', "[10m]"),
    "TidelogClockLeapt": ("leap_ms / 1000 > 0", "leap_ms / 1000 > 90000"),
    "TidelogClockBehind": ("60\n        for: 5m", "60\n        for: 1m"),
    "TidelogAppendTimeAhead": ("ahead_ms / 1000 > 60", "ahead_ms > 60"),
    "TidelogMaxEventTimeAhead": ('finding="maxEventTime ahead of the clock"', 'finding!=""'),
    "TidelogSegmentCannotRoll": ('finding="segment cannot roll"', 'finding!=""'),
    "TidelogRecordsOutliveRetention": (
        'finding="records outlive their retention"} > 0\n        for: 30m',
        'finding="records outlive their retention"} > 0\n        for: 1m',
    ),
    "TidelogCorrectionsInForce": ('finding="corrections in force"', 'finding!=""'),
    "TidelogUnknownAppendTimes": (
        "sum by (instance, topic) (tidelog_append_times_unknown_bytes)",
        "max by (instance, topic) (tidelog_append_times_unknown_bytes)",
    ),
}


def test_there_is_a_mistake_for_every_alert():
    assert set(MISTAKES) == set(alerts())


@pytest.mark.slow
@needs_promtool
@pytest.mark.parametrize("alert", MISTAKES)
def test_the_cases_notice_a_wrong_rule(alert, tmp_path):
    right, wrong = MISTAKES[alert]
    rules = (PROMETHEUS / "alerts.yml").read_text(encoding="utf-8")
    assert right in rules
    (tmp_path / "alerts.yml").write_text(rules.replace(right, wrong), encoding="utf-8")
    cases = CASES.read_text(encoding="utf-8")
    assert "../../docker/prometheus/alerts.yml" in cases
    moved = tmp_path / "alerts_test.yml"
    moved.write_text(
        cases.replace("../../docker/prometheus/alerts.yml", "alerts.yml"), encoding="utf-8"
    )
    done = promtool("test", "rules", moved)
    assert done.returncode == 1
    assert f"alertname: {alert}," in done.stdout + done.stderr
