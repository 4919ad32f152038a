"""The plan of `tidelog cluster rebalance`: what is moved and copied, what is under way, and how it is told.

Topics are asked about one after another, and may be created or deleted meanwhile: a plan has the
partitions that were there when it was begun.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.brokers.assignments import replicas_of
from tidelog.cli.brokers.balance import balanced
from tidelog.cli.connecting import raised_as_sentences
from tidelog.cli.shared import print_lines, print_table, span_of
from tidelog.client.calls import reassignments
from tidelog.client.calls import topics as topic_calls
from tidelog.client.errors import ClientError
from tidelog.text import size_of, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.cli.brokers.balance import Replicas
    from tidelog.cli.cluster import Cluster
    from tidelog.client import Client
    from tidelog.protocol.topic_partition import TopicPartition

    Assignment = dict[TopicPartition, Replicas]

_SHOWN = 20  # partitions


class Copying:
    """The new replicas: the bytes that each will have, and those that it had when somebody last looked."""

    def __init__(
        self,
        added: Mapping[TopicPartition, Replicas],
        sizes: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
    ) -> None:
        """`added` are the new replicas of each partition, which its leader sends; `sizes` its bytes."""
        self._added, self._leaders = added, leaders
        self._copied = {(place, each): 0 for place, brokers in added.items() for each in brokers}
        self._expected = {(place, each): sizes.get(place, 0) for place, each in self._copied}

    @property
    def total(self) -> int:
        """The bytes of all new replicas."""
        return sum(self._expected.values())

    @property
    def copied(self) -> int:
        """The bytes that are there."""
        return sum(self._copied.values())

    @property
    def left(self) -> int:
        """The bytes that are missing."""
        return self.total - self.copied

    def largest_of_a_broker(self) -> int:
        """Returns how many bytes are left for the broker that gets most, or for the one that sends most."""
        gets, sends = Counter[int](), Counter[int]()
        for (place, broker), size in self._expected.items():
            left = size - self._copied[place, broker]
            gets[broker] += left
            if place in self._leaders:
                sends[self._leaders[place]] += left
        return max((*gets.values(), *sends.values()), default=0)

    def look(self, client: Client, places: Iterable[TopicPartition]) -> None:
        """Asks the brokers how much of some partitions they have; one that is away has what it had."""
        asked = defaultdict[tuple[str, int], list[int]](list)
        for topic, index in places:
            for broker in self._added.get((topic, index), ()):
                asked[topic, broker].append(index)
        for (topic, broker), indexes in asked.items():
            try:
                found = client.perform(topic_calls.log_sizes(topic, indexes, broker))
            except ClientError:
                continue
            for index, size in found.items():
                key = ((topic, index), broker)
                self._copied[key] = max(self._copied[key], min(size, self._expected[key]))

    def done(self, place: TopicPartition) -> None:
        """A partition is moved: all of it is there."""
        for broker in self._added.get(place, ()):
            self._copied[place, broker] = self._expected[place, broker]


class Plan(NamedTuple):
    """What is to be moved.

    `has` are the replicas of all partitions now, `whole` those of them that a move under way does not
    add, and `before` the replicas when what is `under_way` is done; the `moves` come after that. `added`
    are the replicas that a partition does not have yet, by either, and `copying` how much of them is
    there.
    """

    has: Assignment
    whole: Assignment
    before: Assignment
    under_way: Assignment
    moves: Assignment
    added: Assignment
    copying: Copying


def make_plan(cluster: Cluster, answer: Any, racks: Mapping[int, str | None]) -> Plan:
    """Returns the plan for the topics of a Metadata answer. Raises CommandError.

    `racks` are those of the brokers that may take replicas.
    """
    with raised_as_sentences():
        moving = cluster.client.perform(reassignments.under_way())
    has, leaders = replicas_of(answer), _leaders(answer)
    sizes = _sizes(cluster, leaders)
    under_way = {place: move.target for place, move in moving.items() if place in has}
    before, whole = {**has, **under_way}, dict(has)
    for place in under_way:
        whole[place] = _without(has[place], moving[place].adding)
    moves = balanced(before, racks, sizes)
    new = added(whole, {**under_way, **moves})
    copying = Copying(new, sizes, leaders)
    copying.look(cluster.client, under_way)
    return Plan(has, whole, before, under_way, moves, new, copying)


def added(assigned: Mapping[TopicPartition, Replicas], moves: Assignment) -> Assignment:
    """Returns the replicas that each partition gets and does not have yet, where there are any."""
    found = {place: _without(after, assigned[place]) for place, after in moves.items()}
    return {place: brokers for place, brokers in found.items() if brokers}


def _without(replicas: Replicas, others: Replicas) -> Replicas:
    return tuple(broker for broker in replicas if broker not in others)


def _leaders(answer: Any) -> dict[TopicPartition, int]:
    return {
        (topic.name, one.partition_index): one.leader_id
        for topic in answer.topics
        for one in topic.partitions
        if one.leader_id >= 0
    }


def _sizes(cluster: Cluster, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Returns the bytes of each partition's leader."""
    led = defaultdict[tuple[str, int], list[int]](list)
    for (topic, index), leader in leaders.items():
        led[topic, leader].append(index)
    found: dict[TopicPartition, int] = {}
    for (topic, leader), indexes in led.items():
        with raised_as_sentences():
            sizes = cluster.client.perform(topic_calls.log_sizes(topic, indexes, leader))
        found.update({(topic, index): size for index, size in sizes.items()})
    return found


# --- telling it ----------------------------------------------------------------------------------


def print_plan(plan: Plan, brokers: list[int], rate: int | None) -> None:
    """Prints what each broker has and will have, the first moves, and how much is to be copied."""
    now, then = plan.before.values(), {**plan.before, **plan.moves}.values()
    rows = [[str(broker)] for broker in sorted(brokers)]
    for first in (None, 1):  # all replicas, and the preferred leaders
        has, will = (
            Counter(each for all_ in whole for each in all_[:first]) for whole in (now, then)
        )
        for row, broker in zip(rows, sorted(brokers), strict=True):
            row.append(f"{has[broker]} -> {will[broker]}")
    print_table(("broker", "replicas", "leads by preference"), rows)
    going = sorted(plan.under_way.keys() - plan.moves.keys())
    if not plan.moves and not going:
        print_lines("Nothing is moved: the brokers have as many replicas as each other.")
        return
    moves = [(place, plan.before[place], after, "") for place, after in sorted(plan.moves.items())]
    moves += [(place, plan.whole[place], plan.under_way[place], "under way") for place in going]
    print_lines("")
    print_table(
        ("partition", "replicas", ""),
        [
            (f"{topic}-{index}", f"{_ids(now)} -> {_ids(after)}", state)
            for (topic, index), now, after, state in moves[:_SHOWN]
        ],
    )
    if len(moves) > _SHOWN:
        print_lines(f"and {some(len(moves) - _SHOWN, 'more partition')}: --json names all.")
    parts = [f"{are(len(plan.moves))} to be moved"] if plan.moves else []
    parts += [f"{are(len(going))} being moved already"] if going else []
    print_lines("", f"{' and '.join(parts)}; {to_copy(plan.copying, rate)}.")


def are(count: int) -> str:
    """Returns a count of partitions with its verb: "1 partition is", "2 partitions are"."""
    return f"{some(count, 'partition')} {'is' if count == 1 else 'are'}"


def to_copy(copying: Copying, rate: int | None) -> str:
    """Returns how much is to be copied, and how long that takes at least if a rate limits it.

    The broker that sends or gets most does so at the rate at best.
    """
    if not copying.total:
        return "nothing is to be copied"
    text = f"{size_of(copying.total)} are to be copied"
    if copying.copied:
        text = f"{size_of(copying.left)} of {size_of(copying.total)} are still to be copied"
    if rate is None:
        return text
    least_s = -(-copying.largest_of_a_broker() // rate)
    return f"{text}, which takes {span_of(least_s * 1000)} at least at {size_of(rate)}/s"


def _ids(brokers: Replicas) -> str:
    return ",".join(map(str, brokers)) or "none"


def as_json(plan: Plan, rate: int | None) -> dict[str, Any]:
    """Returns a plan with all its partitions as values of JSON."""

    def moved(place: TopicPartition, after: Replicas, **more: Any) -> dict[str, Any]:
        return {"topic": place[0], "partition": place[1], **more, "new_replicas": list(after)}

    return {
        "bytes": plan.copying.total,
        "bytes_left": plan.copying.left,
        "throttle": rate,
        "under_way": [moved(place, after) for place, after in plan.under_way.items()],
        "moves": [
            moved(place, after, replicas=list(plan.before[place]))
            for place, after in plan.moves.items()
        ],
    }
