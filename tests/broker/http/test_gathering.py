"""How the answers of several brokers are made one, without the others."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

pytest.importorskip("aiohttp")

from tidelog.broker.http import gathering, http_peers
from tidelog.broker.http.answers import HttpError
from tidelog.broker.http.api_query import ApiQuery
from tidelog.broker.http.http_peers import HttpPeers
from tidelog.broker.http.leader_map import LeaderMap

TOPICS = 1_000


class Pool:
    """It runs the work at once."""

    async def run(self, work, *arguments):
        return work(*arguments)


def cluster_query(given=None):
    """A diagnosis of a broker that has no others, and many topics."""
    topics = {f"t{number}": SimpleNamespace(partitions=3) for number in range(TOPICS)}
    image = SimpleNamespace(topics=topics, brokers={1: None}, registrations={1: None, 2: None})
    node = SimpleNamespace(metadata=SimpleNamespace(image=image, node_id=1))
    query = ApiQuery(node, {}, given or {}, 0)

    def handle(query):
        return {"findings": [sum(map(len, query.here.values()))], "errors": []}

    return gathering.ClusterQuery(query, handle, "/v1/doctor", Pool(), HttpPeers(node), True, False)


async def test_others_are_served_while_a_diagnosis_asks_who_leads_many_topics(monkeypatch):
    turns, seen = 0, []

    def leader_map(_node, _topic, indexes):
        seen.append(turns)
        return LeaderMap(frozenset(indexes), {}, {})

    async def serve():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(gathering, "leader_map", leader_map)
    serving = asyncio.create_task(serve())
    answer = json.loads(await gathering.diagnosis(cluster_query()))
    serving.cancel()
    assert answer["findings"] == [3 * TOPICS]
    assert max(map(seen.count, set(seen))) <= 100


async def test_a_partition_of_no_topic_is_a_bad_request():
    with pytest.raises(HttpError, match="needs topic=NAME") as refused:
        await gathering.diagnosis(cluster_query({"partition": ["7"]}))
    assert refused.value.status == 400


async def test_what_waits_for_other_brokers_is_bounded(monkeypatch):
    """Clients that leave do not end it."""
    monkeypatch.setattr(http_peers, "_MOST_IN_PROGRESS", 5)
    asked, answered = [], asyncio.Event()

    async def ask(_self, broker, _path, **_):
        asked.append(broker)
        await answered.wait()
        raise http_peers.NoAnswerError("gives no answer")

    monkeypatch.setattr(HttpPeers, "ask", ask)
    one = cluster_query()

    def answer():
        return one.answer_with([2, 3], lambda answer, heard: {**answer, "heard": len(heard)})

    one = one._replace(handle=lambda _: {"errors": []})
    waiting = [asyncio.create_task(answer()) for _ in range(2)]
    while len(asked) < 4:  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0)
    with pytest.raises(HttpError) as refused:
        await answer()
    assert (refused.value.status, refused.value.name, len(asked)) == (503, "BUSY", 4)
    answered.set()
    for text in [*await asyncio.gather(*waiting), await answer()]:
        assert json.loads(text)["heard"] == 2
