"""The plan of `tidelog cluster rebalance`: what is moved and copied, what is under way, and its output.

Topics may be created or deleted meanwhile: a plan has the partitions that were there when it was begun.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tidelog.cli.brokers.assignments import replicas_of
from tidelog.cli.brokers.balance import balanced
from tidelog.cli.output import print_lines, print_table, span_of
from tidelog.client.calls import reassignments
from tidelog.text import are, size_of, some

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.cli.brokers.balance import Racks, Replicas
    from tidelog.cli.cluster import Cluster
    from tidelog.protocol.topic_partition import TopicPartition

_SHOWN = 20  # partitions


class RebalancePlan:
    """What is to be moved, and how many bytes of that are left to be copied.

    `has` are the replicas of all partitions now, `under_way` those to which some are moved already, and
    `moves` those that come after that. `added` are the replicas that a partition gets by either.
    """

    def __init__(self, cluster: Cluster, answer: Any, racks: Racks) -> None:
        """Makes the plan for the topics of a Metadata answer. Raises CommandError.

        `racks` are those of the brokers that may take replicas.
        """
        self._cluster, self.has = cluster, replicas_of(answer)
        moving = cluster.perform(reassignments.under_way())
        self.under_way = {place: moving[place].target for place in moving if place in self.has}
        self.before = {**self.has, **self.under_way}
        self._leaders = {
            (topic.name, one.partition_index): one.leader_id
            for topic in answer.topics
            for one in topic.partitions
            if one.leader_id >= 0
        }
        sizes = cluster.log_sizes(self._leaders.items(), may_lack=False)
        self._sizes = Counter({place: size for (place, _), size in sizes.items()})
        self.moves = balanced(self.before, racks, self._sizes)
        self.whole = {
            place: _without(replicas, moving[place].adding if place in moving else ())
            for place, replicas in self.has.items()
        }
        after = {**self.under_way, **self.moves}
        new = {place: _without(after[place], self.whole[place]) for place in after}
        self.added = {place: brokers for place, brokers in new.items() if brokers}
        self._left = {
            (each, one): self._sizes[each] for each in self.added for one in self.added[each]
        }
        self.total = self.left
        self.look(self.under_way)

    @property
    def left(self) -> int:
        """The bytes that are to be copied."""
        return sum(self._left.values())

    @property
    def left_of_a_broker(self) -> int:
        """The bytes that are to be copied by the broker that gets most, or by the one that sends most."""
        gets, sends = Counter[int](), Counter[int]()
        for (place, broker), size in self._left.items():
            gets[broker] += size
            if place in self._leaders:
                sends[self._leaders[place]] += size
        return max((*gets.values(), *sends.values()), default=0)

    def look(self, places: Iterable[TopicPartition]) -> None:
        """Asks brokers how much of some partitions they have; one that is away has what it had."""
        asked = [(place, broker) for place in places for broker in self.added.get(place, ())]
        for each, size in self._cluster.log_sizes(asked).items():
            self._left[each] = min(self._left[each], max(self._sizes[each[0]] - size, 0))

    def done(self, place: TopicPartition) -> None:
        """A partition is moved: all of it is there."""
        self._left.update({(place, broker): 0 for broker in self.added.get(place, ())})

    def to_copy(self, rate: int | None) -> str:
        """Returns how much is to be copied, and how long that takes at least if a rate limits it."""
        if not self.total:
            return "nothing is to be copied"
        text = f"{size_of(self.total)} are to be copied"
        if self.left < self.total:
            text = f"{size_of(self.left)} of {size_of(self.total)} are still to be copied"
        if rate is None:
            return text
        least_s = -(-self.left_of_a_broker // rate)
        return f"{text}, which takes {span_of(least_s * 1000)} at least at {size_of(rate)}/s"

    def as_json(self, rate: int | None) -> dict[str, Any]:
        """Returns the plan with all its partitions as values of JSON."""

        def moved(place: TopicPartition, after: Replicas, **more: list[int]) -> dict[str, Any]:
            return {"topic": place[0], "partition": place[1], **more, "new_replicas": list(after)}

        moves = [
            moved(place, after, replicas=list(self.before[place]))
            for place, after in self.moves.items()
        ]
        going = [moved(place, after) for place, after in self.under_way.items()]
        sizes = {"bytes": self.total, "bytes_left": self.left, "throttle": rate}
        return {**sizes, "under_way": going, "moves": moves}


def print_plan(plan: RebalancePlan, brokers: Iterable[int], rate: int | None) -> None:
    """Prints what each broker has and will have, the first moves, and how much is to be copied."""
    now, then = plan.before.values(), {**plan.before, **plan.moves}.values()
    has, will, leads, will_lead = (
        Counter(broker for replicas in whole for broker in replicas[:first])
        for first in (None, 1)
        for whole in (now, then)
    )
    print_table(
        ("broker", "replicas", "leads by preference"),
        [
            (each, f"{has[each]} -> {will[each]}", f"{leads[each]} -> {will_lead[each]}")
            for each in sorted(brokers)
        ],
    )
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
            (f"{topic}-{index}", f"{_ids(before)} -> {_ids(after)}", state)
            for (topic, index), before, after, state in moves[:_SHOWN]
        ],
    )
    if len(moves) > _SHOWN:
        print_lines(f"and {some(len(moves) - _SHOWN, 'more partition')}: --json names all.")
    parts = [f"{are(len(plan.moves), 'partition')} to be moved"] if plan.moves else []
    parts += [f"{are(len(going), 'partition')} being moved already"] if going else []
    print_lines("", f"{' and '.join(parts)}; {plan.to_copy(rate)}.")


def _without(replicas: Replicas, others: Iterable[int]) -> Replicas:
    return tuple(broker for broker in replicas if broker not in others)


def _ids(brokers: Replicas) -> str:
    return ",".join(map(str, brokers)) or "none"
