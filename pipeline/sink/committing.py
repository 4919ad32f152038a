"""Writes what the tasks have staged: by a plan that is recorded first, each record once.

`staging/<name>/plan.json` says which files go where, in which order and with which producer. It
appears whole before the first record is written. A commit that finds one continues it, and ignores
what a second attempt has staged. `done.json` says which commit was the last; a repetition of that
one writes nothing. <name> is the run of a batch, or the id of a streaming query.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.client import Client
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.plan import at_work
from tidelog.pipeline.replay import targets
from tidelog.pipeline.replay.delivery import POSITION
from tidelog.pipeline.replay.replay import Task, replay_partition
from tidelog.pipeline.sink.staging import INCOMING, ArrowSource
from tidelog.pipeline.tasks import unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.pipeline.replay.replay import Outcome
    from tidelog.pipeline.sink.sink_options import SinkOptions
    from tidelog.pipeline.sink.staging import StagedFile

_log = logging.getLogger("tidelog.pipeline")
_PLAN: Final = "plan.json"
_DONE: Final = "done.json"
_THREADS: Final = 8  # the encoder and the network release the interpreter


def by_query(messages: Sequence[Any]) -> dict[str | None, list[StagedFile]]:
    """Returns the staged files of each query, in the order of the tasks; there is one query.

    A message has a pickled file and the query's id; None stands for that of a task that failed.
    """
    found: dict[str | None, list[StagedFile]] = {}
    for message in messages:
        if message is not None:
            file = unpack(message.file)
            found.setdefault(message.query, []).extend([] if file is None else [file])
    return found


def commit(
    options: SinkOptions, directory: Path, number: int, files: Sequence[StagedFile]
) -> dict[str, int]:
    """Writes the files of a commit; returns how many records each topic has been given.

    `number` is that of the micro-batch, and 0 for a batch. Raises PipelineError, OSError and the
    client's errors; then the same commit has to be repeated. It raises PipelineError, too, while
    another process commits for the same run or query.
    """
    options.brokers.has_answered = True  # to the tasks: brokers that are away may be restarting
    with at_work(directory):
        return _commit(options, directory, number, files)


def _commit(
    options: SinkOptions, directory: Path, number: int, files: Sequence[StagedFile]
) -> dict[str, int]:
    done = _read(directory / _DONE)
    if done is not None and number <= done["number"]:
        if options.run is not None:
            _log.warning("run %s was written before: nothing is written again", options.run)
        _clean(directory)
        return {}
    plan = _read(directory / _PLAN)
    if plan is None or plan["number"] != number:
        plan = _planned(options, number, files, {} if done is None else done["left"])
        _write(directory / _PLAN, plan)
    tasks = _tasks(options, directory.name, plan)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="tidelog-commit") as pool:
        outcomes = list(pool.map(replay_partition, tasks))
    errors = [one.error for one in outcomes if one.error]
    if errors:
        raise PipelineError(errors[0])
    counts: dict[str, int] = {}
    for one in outcomes:
        counts[one.topic] = counts.get(one.topic, 0) + one.count
        for doubt in one.doubts:
            _log.warning("%s-%d: %s", one.topic, one.partition, doubt)
    left = _left({} if done is None else done["left"], plan["notes"], outcomes)
    _write(directory / _DONE, {"number": number, "left": left})
    (directory / _PLAN).unlink()
    _clean(directory)
    return counts


def discard(directory: Path, files: Sequence[StagedFile]) -> None:
    """Removes the files of a commit that will not be; those that a plan names stay for the next."""
    plan = _read(directory / _PLAN)
    named = set() if plan is None else _named(plan)
    for one in files:
        if one.path not in named:
            Path(one.path).unlink(missing_ok=True)


def _named(plan: dict[str, Any]) -> set[str]:
    return {
        path
        for partitions in plan["places"].values()
        for files in partitions.values()
        for path, _ in files
    }


def _planned(
    options: SinkOptions, number: int, files: Sequence[StagedFile], left: dict[str, int]
) -> dict[str, Any]:
    places: dict[str, dict[str, list[tuple[str, list[int]]]]] = {}
    for file in files:
        for topic, partitions in file.batches.items():
            for partition, numbers in partitions.items():
                parts = places.setdefault(topic, {}).setdefault(partition, [])
                parts.append((file.path, numbers))
    keys = [(topic, int(one)) for topic, partitions in places.items() for one in partitions]
    wanted = targets.Writing(
        to_broker=options.brokers,
        delivery=options.delivery,
        exclusive=options.exclusive == "true",
    )
    with Client(options.brokers) as client:
        notes = targets.settle(client, sorted(keys), wanted, left=left)
    return {"number": number, "places": places, "notes": notes}


def _tasks(options: SinkOptions, name: str, plan: dict[str, Any]) -> list[Task]:
    tasks = []
    with Client(options.brokers) as client:
        targets.refuse_anew(client, plan["notes"])
        for topic, partitions in sorted(plan["places"].items()):
            target = targets.look_at(client, topic)
            for partition, files in sorted(partitions.items()):
                run = f"sink/{name}/{plan['number']}"
                source = ArrowSource(tuple((path, tuple(numbers)) for path, numbers in files))
                tasks.append(
                    Task(
                        brokers=options.brokers,
                        topic=topic,
                        partition=int(partition),
                        delivery=targets.delivery_of(plan["notes"], run, topic, int(partition)),
                        source=source,
                        source_topic=topic,
                        source_partition=int(partition),
                        compression=targets.codec_of(options.compression),
                        batch_limit=target.batch_limit,
                        changes_times=target.changes_times,
                    )
                )
    return tasks


def _left(
    before: dict[str, int], notes: dict[str, Any], outcomes: Sequence[Outcome]
) -> dict[str, int]:
    """Returns where we left each partition; one that ends there has records of ours alone since then.

    Of a partition that may be written by others too nothing is kept: it may end where we left it by
    chance, and they go on.
    """
    left = dict(before)
    for one in outcomes:
        key = f"{one.topic}-{one.partition}"
        left.pop(key, None)
        if notes["delivery"] == POSITION:
            left[key] = notes["ends"][key] + one.count
    return left


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    return found


def _write(path: Path, value: dict[str, Any]) -> None:
    """Writes a file that is there whole or not at all, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with new.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _clean(directory: Path) -> None:
    """Removes what tasks have staged, those of failed attempts too: no commit needs it any more."""
    shutil.rmtree(directory / INCOMING, ignore_errors=True)
