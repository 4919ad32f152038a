"""One random schedule: calls of several clients, lost answers, kills, pauses, and time that passes.

The seed decides what is called, by whom, which calls overlap, which answers are lost, who is killed
or stands still in the middle of a call, and when time passes. `model.Worlds` judges the answers.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from tests.broker.metadata.contract.calls import explains, position
from tests.broker.metadata.contract.engines import KEPT
from tests.broker.metadata.contract.model import BARRIER, FORGOTTEN, BrokenContract, Worlds
from tidelog.broker.metadata.store import Compare, Delete, Put, WentBackError
from tidelog.protocol.errors import KafkaStorageError

KEYS = ("live/1", "live/2", "part/1", "part/2", "part/3")
SPANS_MS = (5, 10, 40)
PAUSES_S = (0, 0.0002, 0.0005, 0.001, 0.002)  # from the beginning of a call on
WAIT_S = 20
MOST_UNKNOWN = 4  # each doubles what may be true


class Lost(Exception):
    """A call was made and will not be answered: its client has ended."""


class Schedule:
    """What one seed does to an engine."""

    def __init__(self, seed, engine, steps=25):
        self.seed = seed
        self.chance = random.Random(seed)
        self.engine = engine
        self.steps = steps
        self.worlds = Worlds(KEPT, self._note_barriers)
        self.counts = Counter()
        self.trace = []
        self._numbers = 0
        self._now_ms = 0
        self._unknown = 0  # calls that have failed: they may be applied until the end
        self._may_forget = False  # changes may be forgotten although they are young
        self._late = []  # calls that were sent and have not arrived
        self._watched = []  # what ended watches were told
        self._revision, self._mods, self._leases = 0, {}, [1]  # as far as the clients have heard

    async def run(self):
        """Raises BrokenContract, with the seed and what happened."""
        await self.engine.open()
        try:
            for _ in range(self.steps):
                await self._step()
            await self._settle()
        except (BrokenContract, WentBackError) as error:  # nothing is restored here
            lines = "\n".join(map(str, self.trace))
            raise BrokenContract(f"seed {self.seed}: {error}\n{lines}", self.seed) from None
        finally:
            await self.engine.close()
        return self.counts

    async def _step(self):
        act = self.chance.choices(
            (
                *(self._one, self._several, self._lose, self._pass_time, self._watch),
                *((self._kill, self._pause) if self.engine.has_processes else ()),
                *((self._trouble,) if self.engine.has_troubles else ()),
            ),
            (
                *(40, 14, 14, 16, 10),
                *((6, 6) if self.engine.has_processes else ()),
                *((30,) if self.engine.has_troubles else ()),
            ),
        )[0]
        await act()
        if self._late and self.chance.random() < 0.3:
            await self._arrive(self._late.pop(self.chance.randrange(len(self._late))))
        if self.chance.random() < 0.5:
            await self.engine.let_watches_run()

    # -- what happens ---------------------------------------------------------------------------

    async def _one(self):
        await self._overlapping([(self._client(), self._call())])
        if not self.engine.has_processes:
            # Leases end before the call's own work, also if the call itself is refused.
            stored = await self.engine.stored_revision()
            self.worlds.check(lambda state: state.revision == stored, f"revision {stored}")

    async def _several(self):
        """Calls that overlap, of different clients or of one."""
        count = self.chance.choice((2, 2, 3))
        calls = [self._call() for _ in range(count)]
        if self.chance.random() < 0.4:  # all on one key, of which at most one may win
            self.counts["races"] += 1
            key = self.chance.choice(KEYS)
            unchanged = Compare(key, "mod", "=", self._mods.get(key, 0))
            calls = [("transact", (unchanged,), (Put(key, b"%d" % n),)) for n in range(count)]
        self.counts["overlapping"] += 1
        await self._overlapping([(self._client(), call) for call in calls])

    async def _overlapping(self, made):
        calls = [(self._begin(client, call), client) for client, call in made]
        outcomes = await asyncio.gather(
            *(self.engine.call(client, self.worlds.calls[number]) for number, client in calls),
            return_exceptions=True,
        )
        self._learnt(calls, outcomes)

    async def _lose(self):
        """A call whose answer is lost: it was applied, or never is, or later; then a second try."""
        call, client = self._call(writes=True), self._client()
        number = self._begin(client, call)
        how = self.chance.choice(("applied", "never", "late"))
        self.counts["lost: " + how] += 1
        self.trace.append(f"  its answer is lost; {how}")
        if how == "late":
            self._late.append((number, client))
        elif how == "applied":
            await self._unheard(client, number)
        else:
            self.worlds.ended(number)
        if call[0] == "transact" and self.chance.random() < 0.7:
            await self._try_again(call)

    async def _try_again(self, call):
        """An unknown outcome is settled by the same comparisons with another value."""
        _, compares, operations = call
        other = tuple(
            each._replace(value=each.value + b"'") if isinstance(each, Put) else each
            for each in operations
        )
        await self._overlapping([(self._client(), ("transact", compares, other))])

    async def _arrive(self, late):
        """A call arrives after others that were made later; nobody hears its answer."""
        number, client = late
        self.trace.append(f"{number} arrives")
        await self._unheard(client, number)

    async def _unheard(self, client, number):
        """A call is made whose answer nobody hears; if it fails, it may be applied later."""
        try:
            await self.engine.call(client, self.worlds.calls[number])
        except KafkaStorageError as error:
            self._failed(number, error)
        else:
            self.worlds.ended(number)

    async def _pass_time(self):
        self._now_ms += self.chance.choice((1, 2, 4, 5, 9, 30))
        self.trace.append(f"time is {self._now_ms}")
        await self.engine.set_time(self._now_ms)
        self.worlds.time_is(self._now_ms)
        if self.engine.has_service:  # it has ended the leases now
            self.worlds.leases_have_ended()

    async def _watch(self):
        client = self._client()
        await self._stop_watch(client)
        after = self.chance.choice((self._revision, max(0, self._revision - KEPT // 2), 0))
        self.trace.append(f"client {client} watches after {after}")
        await self.engine.follow(client, after)

    async def _stop_watch(self, client):
        told = await self.engine.told(client)
        if told is not None:
            self._watched.append(told)

    async def _kill(self):
        """Kill -9 while a client's calls are being applied, and others are calling."""
        client = self._client()
        await self._stop_watch(client)
        calls = [self._call(writes=True) for _ in range(self.chance.choice((1, 1, 2)))]
        numbers = [self._begin(client, call) for call in calls]
        self.counts["killed"] += 1
        self.trace.append(f"  client {client} is killed")
        others = []
        if self.chance.random() < 0.5:
            other = self.chance.choice([each for each in self.engine.clients if each != client])
            others = [(self._begin(other, self._call()), other)]
        pause_s = self.chance.choice(PAUSES_S)
        outcomes = await asyncio.gather(
            *(self.engine.call(client, call) for call in calls),
            *(self.engine.call(other, self.worlds.calls[number]) for number, other in others),
            self.engine.kill(client, pause_s),
            return_exceptions=True,
        )
        for number, outcome in zip(numbers + [each for each, _ in others], outcomes, strict=False):
            if isinstance(outcome, Lost):
                self.counts["killed in a call"] += 1
                self.trace.append(f"{number} has no answer")
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._heard(number, outcome)
        for number, outcome in zip(numbers, outcomes, strict=False):
            if isinstance(outcome, Lost):
                self.worlds.ended(number)
        await self.engine.start(client)

    async def _pause(self):
        """A process stands still in the middle of a call, while others call and leases end."""
        client = self._client()
        number = self._begin(client, self._call(writes=True))
        answer = asyncio.create_task(self.engine.call(client, self.worlds.calls[number]))
        waited_for = [answer]
        try:
            await self.engine.stop(client, self.chance.choice(PAUSES_S))
            self.counts["paused"] += 1
            self.trace.append(f"  client {client} stands still")
            await self._pass_time()
            other = self.chance.choice([each for each in self.engine.clients if each != client])
            second = self._begin(other, self._call())
            other_answer = asyncio.create_task(self.engine.call(other, self.worlds.calls[second]))
            waited_for.append(other_answer)
            # If the process that stands still has the file's lock, the other waits for it to go on.
            done, _ = await asyncio.wait([other_answer], timeout=0.05)
            if done:
                self._heard(second, await other_answer)
            self.counts["paused with the lock"] += not done
            self.engine.go_on(client)
            self.trace.append(f"  client {client} goes on")
            self._heard(number, await answer)
            if not done:
                self._heard(second, await other_answer)
        finally:
            for each in waited_for:
                each.cancel()  # a broken contract is raised while others are still waited for
            await asyncio.gather(*waited_for, return_exceptions=True)

    async def _trouble(self):
        """Something happens to the service of the stores while clients are calling."""
        if self._unknown >= MOST_UNKNOWN:
            return
        trouble = self.chance.choice(self.engine.TROUBLES)
        self.counts[trouble] += 1
        calls = [self._call(writes=True) for _ in range(self.chance.choice((1, 2, 2)))]
        made = [
            (self._begin(client, call), client) for call in calls for client in [self._client()]
        ]
        self.trace.append(f"  {trouble}")
        self._may_forget |= trouble == "compaction"
        *outcomes, harm = await asyncio.gather(
            *(self.engine.call(client, self.worlds.calls[number]) for number, client in made),
            self.engine.trouble(trouble, self.chance),
            return_exceptions=True,
        )
        if harm is not None:
            raise harm
        self._learnt(made, outcomes)
        await self.engine.recover()

    def _learnt(self, made, outcomes):
        """Calls were answered, or have failed: then they may still be applied."""
        for (number, _), outcome in zip(made, outcomes, strict=True):
            if isinstance(outcome, KafkaStorageError):
                self._failed(number, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._heard(number, outcome)

    def _failed(self, number, error):
        """A call has no answer. Raises the error where no service can have kept it.

        A store that says that it went back is wrong: no schedule restores one.
        """
        if not self.engine.has_service or isinstance(error, WentBackError):
            raise error
        self._unknown += 1
        self.counts["unknown"] += 1
        self.trace.append(f"{number} has failed: {error.message}")

    async def _settle(self):
        """No more faults: every watch arrives, and everything that was told is explained."""
        while self._late:
            await self._arrive(self._late.pop())
        number = self._begin(0, ("read", ""))
        answer = await self.engine.call(0, ("read", ""))
        self._heard(number, answer)
        end = self.worlds.last_change()
        for client in self.engine.clients:
            try:
                async with asyncio.timeout(WAIT_S):
                    told = await self.engine.told(client)
                    while told is not None and not told[2] and position(told) < end:
                        await self.engine.let_watches_run()
                        told = await self.engine.told(client)
            except TimeoutError:
                raise BrokenContract(f"a watch stays behind {end}: {told}") from None
            await self._stop_watch(client)
        for told in self._watched:
            self.counts["watched lists"] += len(told[1])
            self.counts["watches too late"] += told[2]
        self.worlds.check(
            lambda state: all(explains(state, told, self._may_forget) for told in self._watched),
            self._watched,
        )
        self.counts["revisions"] += answer[0]

    def _note_barriers(self):
        """Takes what stores have done for themselves, since the last look."""
        while self.engine.barriers:
            number, news = self.engine.barriers.popleft()
            self.trace.append(f"  barrier {number} {news}")
            if news == "begins":
                self.worlds.begin(("barrier", number), BARRIER)
            elif news == "has failed":
                self._unknown += 1
            else:
                self.counts["barriers"] += 1
                self.worlds.answered(("barrier", number), news)

    # -- calls ----------------------------------------------------------------------------------

    def _client(self):
        return self.chance.choice(self.engine.clients)

    def _begin(self, client, call):
        self._numbers += 1
        self.counts["calls"] += 1
        self.trace.append(f"{self._numbers} of client {client}: {call}")
        self.worlds.begin(self._numbers, call)
        return self._numbers

    def _heard(self, number, answer):
        self.trace.append(f"{number} is answered {answer}")
        call = self.worlds.calls[number]
        if answer == FORGOTTEN and self._may_forget:
            self.worlds.ended(number)
            return
        self.worlds.answered(number, answer)
        if call[0] == "read":
            self._revision = max(self._revision, answer[0])
            if not call[1]:
                self._mods = {pair.key: pair.mod_revision for pair in answer[1]}
        elif call[0] == "grant":
            self._leases.append(answer)
        elif call[0] == "transact" and isinstance(answer, int):
            self._revision = max(self._revision, answer)
            for each in call[2]:
                self._mods[each.key] = answer if isinstance(each, Put) else 0

    def _call(self, *, writes=False):
        names = ("transact", "grant", "keep_alive", "revoke", "read", "changes")
        weights = (50, 12, 12, 5, 12 * (not writes), 10 * (not writes))
        name = self.chance.choices(names, weights)[0]
        if name == "transact":
            keys = self.chance.sample(KEYS, self.chance.choice((1, 1, 2, 3)))
            compared = self.chance.sample(KEYS, self.chance.choice((0, 1, 1, 2)))
            return (name, tuple(map(self._compare, compared)), tuple(map(self._operation, keys)))
        if name == "grant":
            return (name, self.chance.choice(SPANS_MS))
        if name == "read":
            return (name, self.chance.choice(("", "", "live/", "part/", "none")))
        if name == "changes":
            return (name, max(0, self._revision - self.chance.randrange(KEPT + 3)))
        return (name, self._lease())

    def _lease(self):
        return self.chance.choice(self._leases[-3:])

    def _compare(self, key):
        target = self.chance.choice(("mod", "mod", "create"))
        if self.chance.random() < 0.75:  # what a client would compare: it has seen the key
            seen = self._mods.get(key, 0)
            return Compare(key, "mod", *self.chance.choice((("=", seen), ("<", seen + 1))))
        return Compare(key, target, self.chance.choice("<=>"), self.chance.randrange(12))

    def _operation(self, key):
        if self.chance.random() < 0.2:
            return Delete(key)
        is_leased = self.chance.random() < (0.8 if key.startswith("live/") else 0.1)
        return Put(key, self.chance.choice((b"a", b"b")), self._lease() if is_leased else 0)
