"""plan.json: frozen when a run first starts, and refused where it is of something else."""

from __future__ import annotations

import json

import pytest

from tidelog.pipeline.errors import PipelineError, UsageError
from tidelog.pipeline.plan import ScanPlan, described
from tidelog.pipeline.source.splits import Split

ARGUMENTS = {"brokers": "b:9092", "topics": "t", "from_ms": None, "limits": (1, 2)}


def opened(directory, end=100, job="mirror", arguments=ARGUMENTS, **more):
    def make():
        return [Split("t", 0, 0, 50, 500), Split("t", 0, 50, end, 600), Split("t", 1, 5, 6, 7)], {
            "k": (1,)
        }

    return ScanPlan.open(
        directory, job=job, run="r", arguments=arguments, now_ms=9, make=make, **more
    )


def test_the_first_plan_is_kept_whatever_the_log_has_grown_to(tmp_path):
    first = opened(tmp_path / "new")
    assert first.is_new
    assert first.offsets == {("t", 0): (0, 100), ("t", 1): (5, 6)}
    second = opened(tmp_path / "new", end=999)
    assert not second.is_new
    assert (second.offsets, second.size_bytes, second.notes) == (first.offsets, 1107, {"k": [1]})
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["plan.json"]


def test_a_dry_run_leaves_nothing(tmp_path):
    plan = opened(tmp_path / "new", save=False, arguments={"logs": ["d"]})
    assert not (tmp_path / "new").exists()
    assert described(plan).splitlines() == [
        "t-0: offsets 0 to 100 (100), 2 splits, 1,100 bytes",
        "t-1: offsets 5 to 6 (1), 1 split, 7 bytes",
        "2 partitions, 101 offsets, 3 splits, 1,107 bytes",
    ]
    # Brokers do not report sizes, and the assumed ones are not shown.
    from_brokers = opened(tmp_path / "new", save=False)
    assert described(from_brokers).splitlines()[-1] == "2 partitions, 101 offsets, 3 splits"


def test_a_plan_of_other_arguments_is_refused(tmp_path):
    opened(tmp_path)
    with pytest.raises(UsageError, match='was started with topics = "t", and is now asked for "u"'):
        opened(tmp_path, arguments={**ARGUMENTS, "topics": "u"})
    with pytest.raises(UsageError, match="was started with more = null"):
        opened(tmp_path, arguments={**ARGUMENTS, "more": 1})
    with pytest.raises(UsageError, match="is a run of mirror, not of audit"):
        opened(tmp_path, job="audit")
    assert not opened(tmp_path).is_new


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": 1}', "not json"])
def test_a_file_that_is_no_plan_is_refused_and_kept(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(PipelineError, match="is no plan of a run"):
        opened(tmp_path)
    assert (tmp_path / "plan.json").read_text() == text


def test_a_plan_of_a_later_version_is_refused(tmp_path):
    opened(tmp_path)
    told = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps({**told, "version": 2}))
    with pytest.raises(PipelineError, match="has version 2"):
        opened(tmp_path)
