"""Where a request may be suspended: at an `await`, and never between a check and the change it guards."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path

import pytest

from tests.broker.asking import batch_of, create, fetch_fields, new_name, produce_fields
from tests.broker.inside import Inside
from tests.broker.raw import request
from tidelog import broker as rooms
from tidelog.broker.api import admission, metadata, offset_delete, produce, produce_single
from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
from tidelog.broker.coordinators.groups.offset_commits import OffsetCommits
from tidelog.broker.coordinators.transactions.execution import Execution
from tidelog.broker.network import throttling
from tidelog.broker.network.dispatch import dispatch
from tidelog.broker.network.encoded import EncodedOnce
from tidelog.broker.network.routes import wrap
from tidelog.broker.network.scheduler import Scheduler
from tidelog.broker.partitions.fetch import incremental
from tidelog.broker.partitions.fetch.followers.follower_fetch import FollowerFetch
from tidelog.broker.partitions.produce.appends import Appends

# Functions, which cannot await: each checks something, and changes what the check was about.
_WHOLE = (
    admission.admit_again,
    admission.admit_commit,
    admission.admit_produce,
    produce_single.shortcut,
    produce._append_one,
    produce._append_to,
    Appends.append,
    Appends.append_now,
    OffsetCommits.commit_now,
    OffsetCommits._committing,
    GroupMetadata.commit_all,
    Execution._send_one,
    EncodedOnce.find,
    FollowerFetch._serve,
    incremental.begin,
    incremental.settle,
    throttling.RequestQuota.holds_back,
    throttling.RequestQuota.changed,
)
# Coroutines in which nothing is awaited from the one call on until the other is made.
_REGIONS = (
    (produce._append_when_admitted, "admission.admit_again", "_append_to"),
    (OffsetCommits.commit, "self._committing", "self._topic.append"),
    (OffsetCommits.commit_in_transaction, "self._committing", "self._topic.append_in_transaction"),
    (OffsetCommits._delete_some, "pending.names", "self._topic.append"),
    (offset_delete._delete_unused, "_topics_in_use", "services.coordinator.offsets.delete"),
    (Execution._send_many, "self._runtime.has", "self._send_one"),
    (metadata._answer_all, "_cached_answer", "services.encoded.make"),
    (EncodedOnce.make, "asyncio.get_running_loop().create_future", "make"),
)
# What has tasks of its own may use `asyncio.timeout`; what serves requests uses `timer.timeout`.
_IN_TASKS = {
    "controller/controller_loop.py",
    "http/answers.py",
    "lifecycle/cluster.py",
    "lifecycle/keep_alive.py",
    "logs/maintenance/clock_watch.py",
    "logs/maintenance/compaction_worker.py",
    "logs/reconciler.py",
    "metadata/etcd/etcd_watch.py",
    "metadata/watching.py",
    "partitions/leading/pending_elections.py",
    "timer.py",
}


def awaited_between(function, first: str, last: str) -> list[int]:
    """The lines of a function that may suspend it between two of its calls."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    begins = next(each for each in calls if ast.unparse(each.func) == first)
    ends = next(each for each in calls if ast.unparse(each.func) == last)
    assert place(begins) < place(ends)
    return [
        each.lineno
        for each in ast.walk(tree)
        if isinstance(each, ast.Await | ast.AsyncFor | ast.AsyncWith | ast.Yield)
        and place(begins) < place(each) < place(ends)
        and getattr(each, "value", None) is not ends
    ]


def place(node) -> tuple[int, int]:
    return node.lineno, node.col_offset


@pytest.mark.parametrize("function", _WHOLE, ids=lambda each: each.__qualname__)
def test_what_belongs_together_is_a_function(function):
    assert inspect.isfunction(function)
    assert not inspect.iscoroutinefunction(function)
    assert not inspect.isgeneratorfunction(function)


@pytest.mark.parametrize(
    ("function", "first", "last"), _REGIONS, ids=lambda each: getattr(each, "__qualname__", each)
)
def test_nothing_is_awaited_between_a_check_and_the_change_it_guards(function, first, last):
    assert awaited_between(function, first, last) == []


async def _suspended_between(check, change, checkpoint):
    if check():
        await checkpoint()
        change()


def test_a_checkpoint_between_them_is_noticed():
    assert awaited_between(_suspended_between, "check", "change") == [3]


def test_time_limits_of_requests_need_no_task():
    root = Path(rooms.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(
            word in path.read_text()
            for word in ("asyncio.timeout(", "asyncio.wait_for(", "asyncio.timeout_at(")
        )
    }
    assert found == _IN_TASKS


@pytest.fixture
def broker(tmp_path):
    with Inside(tmp_path) as broker:
        yield broker


def test_the_usual_requests_of_one_partition_are_no_coroutines(broker, monkeypatch):
    topic, served = new_name(), []
    with broker.connect() as asking:
        create(asking, topic)
        (connection,) = broker.node.connections
        records = batch_of("x" * 5_000)
        frames = [
            request("Produce", 7, **produce_fields(topic, records)),
            request("Fetch", 11, **fetch_fields(topic, max_wait_ms=0)),
            request("Heartbeat", 2, group_id="g", generation_id=1, member_id="m"),
        ]
        monkeypatch.setattr(Scheduler, "serve", lambda _, work: served.append(work))
        wrap(lambda route: route._replace(shortcut=None))
        try:
            answers = [
                broker.call(lambda data=data: dispatch(broker.node, connection, data))
                for data in frames
            ]
        finally:
            wrap(None)
        assert all(isinstance(each, list) for each in answers)
        assert served == []
