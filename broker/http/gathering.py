"""Answers of several brokers made one: each partition is answered for by its leader.

The broker that is asked answers for the partitions that it leads, and asks the other leaders for theirs
(`others.py`). What nobody answers for has an error in its place that names the leader and says why, so a
part is never taken for the whole. Each way to gather is one of the functions that a route of `api` names.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from tidelog.broker.http.answers import Refused, line
from tidelog.broker.http.doctor import topic_of, unexamined
from tidelog.broker.http.leading import Answering, answering_for
from tidelog.broker.http.others import Answered, NoAnswerError
from tidelog.protocol.errors import LeaderNotAvailable, NotLeaderOrFollower

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tidelog.broker.http.others import Others
    from tidelog.broker.http.question import Asked
    from tidelog.broker.http.services import Services
    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.pools import Pool

_ROWS = ("partitions", "findings")  # what an answer may have many of
_TIMES = ("at", "appended-at")
_OK = 200
_AT_ONCE = 100  # topics, until others are served

Answer = dict[str, Any]
Outcome = Answered | NoAnswerError


class Question(NamedTuple):
    """A request, and what answers it: here in a thread of `pool`, and at other brokers."""

    asked: Asked
    handle: Callable[[Asked], Answer]
    path: str
    """The route, with names for the parts of the path."""
    pool: Pool
    others: Others
    is_long: bool
    is_of_broker: bool
    """Another broker asks, for what this one answers for by itself."""

    async def answered_here(self) -> str:
        """Returns the answer of this broker alone."""
        return await self.pool.run(self._text, self.handle, self.asked)

    async def answered_by(
        self, brokers: Collection[int], merge: Callable[[Answer, Mapping[int, Outcome]], Answer]
    ) -> str:
        """Returns what `merge` makes of the answer here, and of what other brokers answer meanwhile.

        Raises Refused when too many are asked already.
        """
        loop = asyncio.get_running_loop()
        with self.others.asking(len(brokers)):
            asking = {broker: loop.create_task(self.ask(broker)) for broker in brokers}
            try:
                answer = await self.pool.run(self.handle, self.asked)
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
            {name: quote(each, safe="") for name, each in self.asked.path.items()}
        )
        given = {name: list(values) for name, values in self.asked.given.items()}
        for name in _TIMES:
            if (at := self.asked.time(name)) is not None:
                given[name] = [str(at)]
        return f"{path}?{urlencode(given, doseq=True)}" if given else path

    def _text(self, make: Callable[[Any], Answer], given: Any) -> str:
        """Returns a response's text, built in the thread, row by row.

        One call that formats all of a long response would hold the interpreter's lock for too long.
        Neither would one that reads it: another broker gets each row on a line of its own.
        """
        answer = make(given)
        name = next((name for name in _ROWS if name in answer), None)
        if name is None:
            return line(answer)
        first, between, last = ("\n", ",\n", "\n") if self.is_of_broker else ("", ", ", "")
        rows = between.join(json.dumps(row) for row in answer.pop(name))
        return f'{json.dumps(answer)[:-1]}, "{name}": [{first}{rows}{last}]}}\n'


# --- ways to gather ------------------------------------------------------------------------------


async def own(question: Question) -> str:
    """Answers for this broker alone."""
    return await question.answered_here()


async def by_partition(question: Question) -> str:
    """Gathers the row of each partition from its leader."""
    asked = question.asked
    if asked.services.cluster is None:
        return await question.answered_here()
    answering = _answering(question)
    asked = asked._replace(here={asked.topic.name: answering.here})

    def merged(answer: Answer, outcomes: Mapping[int, Outcome]) -> Answer:
        rows = {row["partition"]: row for row in answer["partitions"]}
        for index, error in answering.unknown.items():
            if "partition" in asked.given:
                raise error
            rows[index] = {"partition": index, **_error(error.code.name, error.message)}
        for broker, indexes in answering.others.items():
            rows |= _rows_of(question, broker, indexes, outcomes[broker])
        return {**answer, "partitions": [rows[index] for index in sorted(rows)]}

    return await question._replace(asked=asked).answered_by(answering.others, merged)


async def of_one(question: Question) -> str:
    """Passes the answer of the one leader on."""
    asked = question.asked
    if asked.services.cluster is None:
        return await question.answered_here()
    answering = _answering(question)
    for error in answering.unknown.values():
        raise error
    for broker, (index,) in answering.others.items():
        with question.others.asking(1):
            outcome = await question.ask(broker)
        return await question.pool.run(_passed_on, broker, f"{asked.topic.name}-{index}", outcome)
    return await question.answered_here()


async def diagnosis(question: Question) -> str:
    """Gathers the findings of all brokers that have a session."""
    asked = question.asked
    services = asked.services
    if services.cluster is None:
        return await question.answered_here()
    topics = services.metadata.image.topics
    name = topic_of(asked)
    if name is None:
        answering = await _answering_for_all(services, topics)
    else:
        asked_one = asked._replace(path={"topic": name})
        answering = {name: answering_for(services, asked_one.topic, asked_one.partitions())}
    asked = asked._replace(here={each: found.here for each, found in answering.items()})
    is_of_broker, me = question.is_of_broker, services.metadata.node_id
    leaders = {broker for found in answering.values() for broker in found.others}
    others = [] if is_of_broker else sorted({*services.metadata.image.brokers, *leaders} - {me})

    def merged(answer: Answer, outcomes: Mapping[int, Outcome]) -> Answer:
        for each, found in answering.items():
            for index, error in found.unknown.items():
                if "partition" in asked.given:
                    raise error
                if not is_of_broker or topics[each].assignments[index].leader == me:
                    answer["errors"].append(unexamined(each, index, error))
        for broker in others:
            led = sum(len(found.others.get(broker, ())) for found in answering.values())
            _add_diagnosis(answer, broker, led, outcomes[broker])
        return answer

    return await question._replace(asked=asked).answered_by(others, merged)


async def _answering_for_all(
    services: Services, topics: Mapping[str, Topic]
) -> dict[str, Answering]:
    """Returns who answers for each topic; others are served meanwhile."""
    found = {}
    for number, (name, topic) in enumerate(topics.items(), 1):
        found[name] = answering_for(services, topic, range(topic.partitions))
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


# --- answers of others ---------------------------------------------------------------------------


def _answering(question: Question) -> Answering:
    """Returns who answers for the partitions of a question; a broker asks nobody on for another one."""
    asked = question.asked
    topic = asked.topic
    found = answering_for(asked.services, topic, asked.partitions())
    if not question.is_of_broker:
        return found
    led = {index: broker for broker, indexes in found.others.items() for index in indexes}
    elsewhere = {
        index: NotLeaderOrFollower(f"broker {broker} leads {topic.name}-{index}")
        for index, broker in led.items()
    }
    return Answering(found.here, {}, {**found.unknown, **elsewhere})


def _rows_of(
    question: Question, broker: int, indexes: list[int], outcome: Outcome
) -> dict[int, Answer]:
    """Returns the rows that a leader has answered with, or errors in their place.

    Raises Refused, and LeaderNotAvailable, if it is the only one that was asked for.
    """
    asked = question.asked
    topic, topic_id = asked.topic.name, str(asked.topic.topic_id)
    found: dict[int, Answer] = {}
    error = _error("LEADER_NOT_AVAILABLE", "")
    try:
        status, answer, rows = _read(outcome)
        if status != _OK and "partition" in asked.given:
            raise Refused(status, answer["error"], answer["message"])
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
    if not found and "partition" in asked.given:
        raise LeaderNotAvailable(error["message"])
    return {
        index: found.get(index, {"partition": index, "leader": broker, **error})
        for index in indexes
    }


def _passed_on(broker: int, name: str, outcome: Outcome) -> str:
    """Returns the answer of a leader as a line. Raises Refused as it does, and LeaderNotAvailable."""
    try:
        status, answer, _ = _read(outcome)
    except NoAnswerError as why:
        raise LeaderNotAvailable(f"broker {broker}, which leads {name}, {why}") from None
    if status != _OK:
        raise Refused(status, answer["error"], answer["message"])
    return line(answer)


def _add_diagnosis(answer: Answer, broker: int, led: int, outcome: Outcome) -> None:
    """Adds what another broker, which leads so many of the partitions, has found to a diagnosis."""
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
