"""How the answers of several brokers are made one, without the others."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

pytest.importorskip("aiohttp")

from tidelog.broker.http import gathering, others
from tidelog.broker.http.answers import Refused
from tidelog.broker.http.leading import Answering
from tidelog.broker.http.others import Others
from tidelog.broker.http.question import Asked

TOPICS = 1_000


class Pool:
    """It runs the work at once."""

    async def run(self, work, *arguments):
        return work(*arguments)


def question(given=None):
    """A diagnosis of a broker that has no others, and many topics."""
    topics = {f"t{number}": SimpleNamespace(partitions=3) for number in range(TOPICS)}
    image = SimpleNamespace(topics=topics, brokers={1: None})
    node = SimpleNamespace(cluster="c", metadata=SimpleNamespace(image=image, node_id=1))
    asked = Asked(node, {}, given or {}, 0)

    def handle(asked):
        return {"findings": [sum(map(len, asked.here.values()))], "errors": []}

    return gathering.Question(asked, handle, "/v1/doctor", Pool(), Others(node), True, False)


async def test_others_are_served_while_a_diagnosis_asks_who_leads_many_topics(monkeypatch):
    turns, seen = 0, []

    def answering_for(_node, _topic, indexes):
        seen.append(turns)
        return Answering(frozenset(indexes), {}, {})

    async def serve():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(gathering, "answering_for", answering_for)
    serving = asyncio.create_task(serve())
    answer = json.loads(await gathering.diagnosis(question()))
    serving.cancel()
    assert answer["findings"] == [3 * TOPICS]
    assert max(map(seen.count, set(seen))) <= 100


async def test_a_partition_of_no_topic_is_a_bad_request():
    with pytest.raises(Refused, match="needs topic=NAME") as refused:
        await gathering.diagnosis(question({"partition": ["7"]}))
    assert refused.value.status == 400


async def test_what_waits_for_other_brokers_is_bounded(monkeypatch):
    """Clients that leave do not end it."""
    monkeypatch.setattr(others, "_MOST_IN_PROGRESS", 5)
    asked, answered = [], asyncio.Event()

    async def ask(_self, broker, _path, **_):
        asked.append(broker)
        await answered.wait()
        raise others.NoAnswerError("gives no answer")

    monkeypatch.setattr(Others, "ask", ask)
    one = question()

    def answer():
        return one.answered_by([2, 3], lambda answer, heard: {**answer, "heard": len(heard)})

    one = one._replace(handle=lambda _: {"errors": []})
    waiting = [asyncio.create_task(answer()) for _ in range(2)]
    while len(asked) < 4:  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0)
    with pytest.raises(Refused) as refused:
        await answer()
    assert (refused.value.status, refused.value.name, len(asked)) == (503, "BUSY", 4)
    answered.set()
    for text in [*await asyncio.gather(*waiting), await answer()]:
        assert json.loads(text)["heard"] == 2
