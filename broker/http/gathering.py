"""Merges the answers of several brokers: the leader of each partition answers for it.

A broker answers a request for the partitions that it leads, and requests those of the other leaders from
them (`http_peers.py`). A partition without an answer has an error in its place that names the leader and
the reason, so an answer that lacks some is never mistaken for a complete one. Each route of `api` names one
of the functions below.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from tidelog.broker.http.answers import HttpError, json_line
from tidelog.broker.http.doctor import topic_of, unexamined
from tidelog.broker.http.http_peers import BrokerAnswer, NoAnswerError
from tidelog.broker.http.leader_map import LeaderMap, leader_map
from tidelog.protocol.errors import LeaderNotAvailable, NotLeaderOrFollower

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tidelog.broker.http.api_query import ApiQuery
    from tidelog.broker.http.http_peers import HttpPeers
    from tidelog.broker.http.services import Services
    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.pools import Pool

_ROWS = ("partitions", "findings")  # what an answer may have many of
_TIMES = ("at", "appended-at")
_OK = 200
_AT_ONCE = 100  # topics, until others are served

Answer = dict[str, Any]
Outcome = BrokerAnswer | NoAnswerError


class ClusterQuery(NamedTuple):
    """A request, its handler, which runs in a thread of `pool`, and the other brokers that answer it."""

    query: ApiQuery
    handle: Callable[[ApiQuery], Answer]
    path: str
    """The route, with names for the parts of the path."""
    pool: Pool
    others: HttpPeers
    is_long: bool
    from_broker: bool
    """Whether another broker sent the request: then this one answers for its own partitions only."""

    async def answer_locally(self) -> str:
        """Returns the answer of this broker alone, as text."""
        return await self.pool.run(self._text, self.handle, self.query)

    async def answer_with(
        self, brokers: Collection[int], merge: Callable[[Answer, Mapping[int, Outcome]], Answer]
    ) -> str:
        """Requests the answers of other brokers, and returns what `merge` makes of theirs and the local one.

        Raises HttpError when too many requests to other brokers are in progress.
        """
        loop = asyncio.get_running_loop()
        with self.others.reserving(len(brokers)):
            asking = {broker: loop.create_task(self.ask(broker)) for broker in brokers}
            try:
                answer = await self.pool.run(self.handle, self.query)
                outcomes = {broker: await task for broker, task in asking.items()}
            finally:
                for task in asking.values():
                    task.cancel()
        return await self.pool.run(self._text, lambda given: merge(given, outcomes), answer)

    async def ask(self, broker: int) -> Outcome:
        """Returns the answer of another broker, or why there is none."""
        try:
            return await self.others.ask(broker, self._url(), is_long=self.is_long)
        except NoAnswerError as error:
            return error

    def _url(self) -> str:
        """Returns the path and the query for other brokers; times by this broker's clock."""
        path = self.path.format_map(
            {name: quote(each, safe="") for name, each in self.query.path.items()}
        )
        given = {name: list(values) for name, values in self.query.given.items()}
        for name in _TIMES:
            if (at := self.query.time(name)) is not None:
                given[name] = [str(at)]
        return f"{path}?{urlencode(given, doseq=True)}" if given else path

    def _text(self, make: Callable[[Any], Answer], given: Any) -> str:
        """Returns a response's text, built in the thread, row by row.

        One call that formats or parses all of a long response would hold the interpreter's lock for too
        long. So another broker gets each row on a line of its own.
        """
        answer = make(given)
        name = next((name for name in _ROWS if name in answer), None)
        if name is None:
            return json_line(answer)
        first, between, last = ("\n", ",\n", "\n") if self.from_broker else ("", ", ", "")
        rows = between.join(json.dumps(row) for row in answer.pop(name))
        return f'{json.dumps(answer)[:-1]}, "{name}": [{first}{rows}{last}]}}\n'


# --- ways to gather ------------------------------------------------------------------------------


async def own(cluster_query: ClusterQuery) -> str:
    """Answers for this broker alone."""
    return await cluster_query.answer_locally()


async def by_partition(cluster_query: ClusterQuery) -> str:
    """Gathers the row of each partition from its leader."""
    query = cluster_query.query
    leaders = _leader_map(cluster_query)
    query = query._replace(here={query.topic.name: leaders.here})

    def merged(answer: Answer, outcomes: Mapping[int, Outcome]) -> Answer:
        rows = {row["partition"]: row for row in answer["partitions"]}
        for index, error in leaders.unknown.items():
            if "partition" in query.given:
                raise error
            rows[index] = {"partition": index, **_error(error.code.name, error.message)}
        for broker, indexes in leaders.others.items():
            rows |= _rows_of(cluster_query, broker, indexes, outcomes[broker])
        return {**answer, "partitions": [rows[index] for index in sorted(rows)]}

    return await cluster_query._replace(query=query).answer_with(leaders.others, merged)


async def of_one(cluster_query: ClusterQuery) -> str:
    """Returns the answer of the leader of the one partition that was requested."""
    query = cluster_query.query
    leaders = _leader_map(cluster_query)
    for error in leaders.unknown.values():
        raise error
    for broker, (index,) in leaders.others.items():
        with cluster_query.others.reserving(1):
            outcome = await cluster_query.ask(broker)
        return await cluster_query.pool.run(
            _passed_on, broker, f"{query.topic.name}-{index}", outcome
        )
    return await cluster_query.answer_locally()


async def diagnosis(cluster_query: ClusterQuery) -> str:
    """Gathers the findings of all brokers that have a session."""
    query = cluster_query.query
    services = query.services
    topics = services.metadata.image.topics
    name = topic_of(query)
    if name is None:
        leaders = await _leader_maps(services, topics)
    else:
        one_topic = query._replace(path={"topic": name})
        leaders = {name: leader_map(services, one_topic.topic, one_topic.partitions())}
    query = query._replace(here={each: found.here for each, found in leaders.items()})
    from_broker, me = cluster_query.from_broker, services.metadata.node_id
    others = {broker for found in leaders.values() for broker in found.others}
    asked = [] if from_broker else sorted({*services.metadata.image.brokers, *others} - {me})

    def merged(answer: Answer, outcomes: Mapping[int, Outcome]) -> Answer:
        for each, found in leaders.items():
            for index, error in found.unknown.items():
                if "partition" in query.given:
                    raise error
                if not from_broker or topics[each].assignments[index].leader == me:
                    answer["errors"].append(unexamined(each, index, error))
        for broker in asked:
            led = sum(len(found.others.get(broker, ())) for found in leaders.values())
            _add_diagnosis(answer, broker, led, outcomes[broker])
        return answer

    return await cluster_query._replace(query=query).answer_with(asked, merged)


async def _leader_maps(services: Services, topics: Mapping[str, Topic]) -> dict[str, LeaderMap]:
    """Returns the leaders of each topic's partitions, in steps between which the loop serves others."""
    found = {}
    for number, (name, topic) in enumerate(topics.items(), 1):
        found[name] = leader_map(services, topic, range(topic.partitions))
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


# --- answers of others ---------------------------------------------------------------------------


def _leader_map(cluster_query: ClusterQuery) -> LeaderMap:
    """Returns the leaders of the partitions of a query; none but itself if another broker sent the query."""
    query = cluster_query.query
    topic = query.topic
    found = leader_map(query.services, topic, query.partitions())
    if not cluster_query.from_broker:
        return found
    led = {index: broker for broker, indexes in found.others.items() for index in indexes}
    elsewhere = {
        index: NotLeaderOrFollower(f"broker {broker} leads {topic.name}-{index}")
        for index, broker in led.items()
    }
    return LeaderMap(found.here, {}, {**found.unknown, **elsewhere})


def _rows_of(
    cluster_query: ClusterQuery, broker: int, indexes: list[int], outcome: Outcome
) -> dict[int, Answer]:
    """Returns the rows of a leader's answer, or errors in their place.

    Raises HttpError, and LeaderNotAvailable, if only one partition was requested.
    """
    query = cluster_query.query
    topic, topic_id = query.topic.name, str(query.topic.topic_id)
    found: dict[int, Answer] = {}
    error = _error("LEADER_NOT_AVAILABLE", "")
    try:
        status, answer, rows = _read(outcome)
        if status != _OK and "partition" in query.given:
            raise HttpError(status, answer["error"], answer["message"])
        if status != _OK:
            error = _error(
                answer["error"], f"broker {broker}, which leads it, answers: {answer['message']}"
            )
        elif answer["topic_id"] != topic_id:
            raise NoAnswerError("has another topic of this name")
        else:
            found = {row["partition"]: {**row, "leader": broker} for row in rows}
            error["message"] = f"broker {broker} leads {topic}, and has not answered for it"
    except NoAnswerError as why:
        error["message"] = f"broker {broker}, which leads it, {why}"
    if not found and "partition" in query.given:
        raise LeaderNotAvailable(error["message"])
    return {
        index: found.get(index, {"partition": index, "leader": broker, **error})
        for index in indexes
    }


def _passed_on(broker: int, name: str, outcome: Outcome) -> str:
    """Returns the answer of a leader as a line. Raises its error as HttpError, and LeaderNotAvailable."""
    try:
        status, answer, _ = _read(outcome)
    except NoAnswerError as why:
        raise LeaderNotAvailable(f"broker {broker}, which leads {name}, {why}") from None
    if status != _OK:
        raise HttpError(status, answer["error"], answer["message"])
    return json_line(answer)


def _add_diagnosis(answer: Answer, broker: int, led: int, outcome: Outcome) -> None:
    """Adds the findings of another broker, which leads `led` of the partitions, to a diagnosis."""
    try:
        status, other, findings = _read(outcome)
        if status != _OK:
            raise NoAnswerError(f"answers: {other['message']}")
        answer["findings"] += findings
        answer["errors"] += other["errors"]
        for name in ("partitions_examined", "segments_unread"):
            answer[name] += other[name]
        missing = led - other["partitions_examined"] - len(other["errors"])
        if missing > 0:
            raise NoAnswerError(f"has not examined {missing} of the {led} partitions that it leads")
    except NoAnswerError as why:
        error = _error("LEADER_NOT_AVAILABLE", f"broker {broker} {why}")
        answer["errors"].append({"topic": None, "partition": None, "broker": broker, **error})


def _read(outcome: Outcome) -> tuple[int, Answer, list[Any]]:
    """Returns the status, the answer without its rows, and the rows. Raises NoAnswerError."""
    if isinstance(outcome, NoAnswerError):
        raise outcome
    try:
        first, *rows = outcome.text.rstrip(b"\n").split(b"\n")
        answer = json.loads(first + rows.pop() if rows else first)
        if outcome.status != _OK:
            answer = _error(str(answer["error"]), str(answer["message"]))
        return outcome.status, answer, [json.loads(row.rstrip(b",")) for row in rows if row]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NoAnswerError(f"gives an answer that cannot be read ({error})") from None


def _error(name: str, message: str) -> Answer:
    return {"error": name, "message": message}
