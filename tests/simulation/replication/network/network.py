"""A network between brokers, clients and the coordinator that loses, delays, doubles and reorders.

A message is a call that is made later, at its target, or never. Cuts are one-way. Brokers are named
by their ids, the coordinator by `COORDINATOR`, clients by ids from `CLIENTS` on; so links between
brokers and links to the coordinator are cut apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.replication.timeline import Timeline

COORDINATOR = 0
CLIENTS = 100


class Weather(NamedTuple):
    """How bad the network is: each is the probability for one message."""

    loss: float
    twice: float
    slow: float  # up to a second
    late: float  # up to 20 seconds: long after everybody has given up


CALM = Weather(0.0, 0.0, 0.0, 0.0)
WEATHERS = (
    CALM,
    Weather(0.005, 0.005, 0.02, 0.002),
    Weather(0.03, 0.02, 0.1, 0.01),
)


class Network:
    """All links between all nodes."""

    def __init__(self, timeline: Timeline, weather: Weather) -> None:
        self.timeline = timeline
        self.weather = weather
        self.is_cut: dict[tuple[int, int], bool] = {}
        self.slow: dict[tuple[int, int], int] = {}  # links that take so much longer, in ms
        self.latency_ms = timeline.random.choice([(0, 2), (1, 5), (5, 40)])

    def send(self, source: int, target: int, call: Callable[..., None], *args: Any) -> None:
        """Makes a call at the target when the message arrives, if it does."""
        pick = self.timeline.random
        if self.is_cut.get((source, target)):
            return
        weather = self.weather
        if weather is CALM:
            self._deliver(source, target, call, args)
            return
        chance = pick.random()
        if chance < weather.loss:
            return
        copies = 2 if weather.loss <= chance < weather.loss + weather.twice else 1
        for _ in range(copies):
            self._deliver(source, target, call, args)

    def _deliver(
        self, source: int, target: int, call: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        pick, weather = self.timeline.random, self.weather
        delay_ms = pick.randint(*self.latency_ms) + self.slow.get((source, target), 0)
        if weather is not CALM:
            chance = pick.random()
            if chance < weather.late:
                delay_ms += pick.randint(1_000, 20_000)
            elif chance < weather.late + weather.slow:
                delay_ms += pick.randint(10, 1_000)
        self.timeline.after(delay_ms, self._arrive, source, target, call, args)

    def _arrive(
        self, source: int, target: int, call: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        if not self.is_cut.get((source, target)):
            call(*args)

    def cut(self, source: int, target: int, *, both_ways: bool) -> None:
        """Cuts a link, and with `both_ways` the one back."""
        self.is_cut[source, target] = True
        if both_ways:
            self.is_cut[target, source] = True

    def heal(self) -> None:
        """Joins all links again, at full speed."""
        self.is_cut.clear()
        self.slow.clear()
