"""The random run of one partition that leads, follows, is truncated, crashes and comes back.

Every step happens to a partition on a `Disk` and to its `ModelLog`; after each the two have to agree.
A crash may come in the middle of a step: then the log has to be as before it or as after it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.storage.conftest import kill
from tests.storage.log_model import agreement, damage, rules
from tests.storage.log_model.agreement import HIGHEST, LOWEST
from tests.storage.log_model.host import CODECS, RELEASES, Host, prefixes
from tests.storage.log_model.model import larger
from tests.storage.log_model.rules import Held
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.checkpoints import EpochStart
from tidelog.storage.log.replication.leader_state import LeaderState
from tidelog.storage.log.replication.received import AppendedFrom

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.storage.log_model.model import ModelLog

STEPS = 40


class Life(Host):
    """One partition, its disk and its model, and what happens to them."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random, self.epoch = random.Random(seed), 0
        pick = self.random.choice
        # Events far ahead count at most an hour beyond their append time. Where that gets lost, they
        # count beyond the moment of their adoption: such a run has the ones or the other.
        self.has_absurd_times = pick([True, False, False])
        self.sizes = {
            "segment_bytes": pick([400, 1_000, 4_000, 1 << 20]),
            "index_interval_bytes": pick([0, 0, 150, 4096]),
        }
        self.choose_config()
        super().__init__(path, self.random, self.config, pick([1_000, 1_000, -300, -2_000_000]))

    def choose_config(self) -> None:
        """Choose what the next appends as a leader are, when segments end and when they go."""
        pick = self.random.choice
        self.magic, self.is_stamped = pick([0, 1, 2, 2]), pick([False, False, True])
        self.config = TopicConfig(
            **self.sizes,
            segment_ms=pick([50, 2_000, 1 << 40]),
            segment_min_roll_interval_ms=pick([0, 100]),
            retention_ms=pick([-1, -1, 0, 1_500, HIGHEST]),
            retention_bytes=pick([-1, -1, -1, 1_000]),
            retention_min_append_ms=pick([0, 0, 0, 700]),
            retention_time_basis=pick(["record", "append"]),
            retention_max_eventtime_ms=pick([-1, -1, 0, 2_000]),
            retention_max_eventtime_grace_ms=pick([0, 100]),
            flush_messages=pick([HIGHEST, HIGHEST, 1]),
            message_format_version=RELEASES[self.magic],
            message_timestamp_type="LogAppendTime" if self.is_stamped else "CreateTime",
        )

    def time(self) -> int:
        pick = self.random
        if self.has_absurd_times and pick.random() < 0.1:
            return pick.choice([2**50, HIGHEST, LOWEST, -(2**40)])
        return super().time()

    # --- steps ------------------------------------------------------------------------------------

    def live(self) -> None:
        for _ in range(self.random.choice([5, STEPS])):
            self.step()
            if self.partition.state.awaits_role:  # of what is cut then, only what was saved counts
                agreement.learn_counted(self.partition, self.model)
            agreement.check(self.partition, self.model, is_trimmed=self.is_trimmed)
        kill(self.store)

    def step(self) -> None:
        self.now += self.random.choice([0, 0, 1, 7, 300, -40])
        if -400 < self.now < 0 and self.random.random() < 0.3:
            self.now = -1  # the millisecond that is not a time
        weights = {
            self.lead: 8,
            self.follow: 12,
            self.truncate: 5,
            self.begin_anew: 0.7,
            self.flush: 2,
            self.commit: 2,
            self.checkpoint: 1,
            self.alter: 1,
            self.let_time_go_back: 0.4,
            self.trim: 0.5,
            self.retain: 1,
            self.stop: 0.7,
            self.kill: 1.5,
            self.lose_power: 0 if self.has_absurd_times else 1,
            self.hand_over: 0 if self.has_absurd_times else 0.2,
        }
        (do,) = self.random.choices(list(weights), list(weights.values()))
        self.said.append(do.__name__)
        if do in {self.truncate, self.begin_anew, self.follow} and self.random.random() < 0.25:
            self.interrupted(do)
        else:
            do()

    def alter(self) -> None:
        self.choose_config()
        self.store.set_config("t", self.config)

    def lead(self) -> None:
        """Append as a leader, and judge whether that had to begin a segment."""
        if self.random.random() < 0.3:
            self.epoch += 1
        self.epoch = self.partition.leader_epoch = max(self.epoch, self.partition.leader_epoch)
        state = self.partition.state
        state.become_only_replica()
        active, size, must_roll = state.active, state.active.tail.size, state.begins_segment
        here, clock = agreement.batches_in(active, self.model), active.known.times.created_clock
        before = self.model.end
        self.append()
        if self.partition.has_flush_rules:
            self.made_durable(self.partition.commit())
            self.covered = self.model.end
        else:
            self.model.advance(self.model.end)
        new = [batch for batch in self.model.batches if batch.first >= before]
        added = state.active.tail.size - (size if state.active is active else 0)
        is_full = size + added > self.config.segment_bytes
        is_due = must_roll or active.log.is_ended or is_full
        is_due = is_due or rules.rolls(self.config, here, clock, new, self.now)
        assert (state.active is not active) == (size > 0 and is_due)

    def follow(self) -> None:
        """Append what a leader sends: some batches, times and epochs beside them."""
        pick, model = self.random, self.model
        after, data, times, epochs = model.copy(), b"", [], []
        last, told_all = self.last_stored(), pick.random() < 0.8
        gaps = pick.choice([[0], [0], [0, 1, 3]])  # which the leader's compaction has made
        now = last if last is not None else self.now
        for _ in range(pick.choice([0, 1, 2, 5])):
            magic = pick.choice([0, 1, 2, 2])
            first = after.end + pick.choice(gaps)
            sent, codec = self.records(first, magic), pick.choice(CODECS[magic])
            now += pick.choice([0, 0, 1, 40])
            now = 0 if now == -1 else now  # as a stamp it would be no time
            append = None if pick.random() < 0.05 and not self.has_absurd_times else now
            if pick.random() < 0.2:
                self.epoch += 1
            knows = told_all or magic == 2
            if knows and self.epoch > (after.epochs[-1][0] if after.epochs else -1):
                after.begin_epoch(self.epoch, first)
                if told_all:
                    epochs.append(EpochStart(self.epoch, first))
            stamp = now if magic and pick.random() < 0.3 else None
            stamping = {} if stamp is None else {"timestamp_type": 1, "log_append_time": stamp}
            fields, producer = self.sent_by(after, len(sent), magic)
            data += build(
                sent, magic=magic, compression=codec, leader_epoch=self.epoch, **fields, **stamping
            )
            times.append(AppendedFrom(first, append))
            after.append(self.batches_of(sent, magic, codec, append, self.epoch, producer, stamp))
        told = LeaderState(
            high_watermark=pick.randint(model.high_watermark, after.end + 3),
            log_start_offset=after.start,
            last_append_time_ms=after.last_append,
            max_event_time=None,
            back_offset=after.mark,
            mark=self.partition.state.timing.mark,
            corrections=self.partition.state.timing.corrections,
        )
        after.advance(min(told.high_watermark, after.end))
        self.after = after
        if pick.random() < 0.3:
            data += build([Record(after.end, 5, b"k", b"torn" * 9)])[: pick.choice([5, 30, 70])]
        self.partition.replica.append_as_follower(data, times, epochs, told, now_ms=self.now)
        self.model = after

    def sent_by(self, after: ModelLog, count: int, magic: int) -> tuple[dict, tuple | None]:
        model, self.model = self.model, after
        try:
            return self.producer(count, magic)
        finally:
            self.model = model

    def last_stored(self) -> int | None:
        known = [b.append for b in self.model.batches if b.append is not None]
        return known[-1] if known else self.model.last_append  # a deleted batch may come back

    def truncate(self) -> None:
        pick, model = self.random, self.model
        unclean = pick.random() < 0.4
        lowest = 0 if unclean and pick.random() < 0.2 else model.start if unclean else 0
        lowest = lowest if unclean else model.high_watermark
        offset = pick.randint(min(lowest, model.end), model.end + 1)
        self.after = model.copy()
        self.after.cut(offset)
        self.partition.truncater.truncate_to(offset, below_high_watermark=unclean)
        self.model = self.after
        self.count_what_came_back()
        self.now_acknowledged(self.after.end)

    def begin_anew(self) -> None:
        offset = self.random.randint(0, self.model.end + 50)
        self.after = self.model.copy()
        self.after.begin_at(offset)
        self.partition.truncater.start_at(offset)
        self.model = self.after
        self.acknowledged = self.covered = offset

    def let_time_go_back(self) -> None:
        """The clock was wrong, is set right, and an operator lets append times follow."""
        model = self.model
        self.now -= self.random.choice([0, 500])
        self.partition.state.become_only_replica()
        if self.partition.append_clock.reset(self.now) is not None:
            model.mark, model.last_append = model.end, None
            model.bounds = [*model.bounds, (model.end, self.now)]
            model.count_again()

    def trim(self) -> None:
        model = self.model
        offset = self.random.randint(model.start, model.high_watermark)
        model.start = self.partition.retainer.delete_records_before(offset)
        assert model.start == offset
        if self.random.random() < 0.5:
            self.retain()

    def retain(self) -> None:
        """A round of retention of a leader, whose consumers have seen everything."""
        self.lead()
        model, partition = self.model, self.partition
        segments = [
            Held(s.base_offset, s.tail.end_offset, s.tail.size, agreement.batches_in(s, model))
            for s in partition.segments
        ]
        due = rules.Retention(
            model, segments, self.config, partition.state.timing.adoptions.time_of
        ).due
        self.judge_explanation(due)
        wanted = due(self.now)
        gone = partition.retainer.apply_retention(self.now)
        assert [(each.base_offset, each.policy) for each in gone] == wanted
        if gone:
            self.is_trimmed = True
            model.start = max(model.start, gone[-1].end_offset)
            model.forget_before(partition.segments[0].base_offset)
            model.base = max(model.base, partition.segments[0].base_offset)

    def judge_explanation(self, due: Callable[[int], list[tuple[int, str]]]) -> None:
        """Each segment goes at the moment and by the policy that are explained, and none earlier."""
        explained = self.partition.retainer.explain(self.now)
        before: int | None = self.now
        for segment in explained.segments:
            promised, base = (segment.base_offset, segment.policy), segment.base_offset
            if segment.due_ms is None:
                assert base not in dict(due(1 << 62))
            else:
                assert promised in due(segment.due_ms)
                assert segment.due_ms == self.now or base not in dict(due(segment.due_ms - 1))
            moments = [each.due_ms for each in segment.conditions if each.due_ms is not None]
            can_go = before is not None and moments and segment.held_by != "active and empty"
            assert segment.due_ms == (max(min(moments), before) if can_go else None)
            before = segment.due_ms
        assert explained.going.segments == len(due(self.now))

    def flush(self) -> None:
        for _ in range(self.random.choice([1, 1, 2])):  # the second has what came during the first
            end = self.while_others_append(self.partition.flush)
            self.covered = max(self.covered, end)

    def commit(self) -> None:
        end = self.while_others_append(self.partition.commit)
        if self.partition.has_flush_rules:
            self.covered = max(self.covered, end)

    def while_others_append(self, sync: Callable[[], int]) -> int:
        """Make the log durable, and append in the middle of syncs; return up to where it is."""
        state, before, left = self.partition.state, self.model.end, self.random.choice([0, 0, 1, 2])

        def append() -> None:
            nonlocal left
            if left and not state.leadership.is_replicated and not state.append_lock._is_owned():
                left -= 1
                self.append()
                if not self.partition.has_flush_rules:
                    self.model.advance(self.model.end)

        self.disk.before_sync = append
        end = sync()
        self.disk.before_sync = lambda: None
        assert before <= end <= self.model.end
        self.made_durable(end)
        return end

    def checkpoint(self) -> None:
        self.store.checkpoint()
        self.made_durable(self.model.end)
        self.covered = self.model.end

    def made_durable(self, end: int) -> None:
        if self.acknowledged < end and not self.partition.state.is_follower:
            self.model.advance(end)  # where there was nothing to flush nothing moves
        self.acknowledged = max(self.acknowledged, end)

    # --- ends -------------------------------------------------------------------------------------

    def stop(self) -> None:
        self.store.close()
        self.acknowledged = self.covered = self.model.end
        self.boot += self.random.random() < 0.3
        if self.random.random() < 0.4:
            damage.indexes(self.directory, self.random)
            self.use_disk()
        counted = self.model.counted
        self.come_back()
        assert larger(counted, self.model.counted) == self.model.counted

    def hand_over(self) -> None:
        """Another program has written the log, with headers that lie, and knows of no append times."""
        self.store.close()
        damage.hand_over(self.directory, self.random)
        self.use_disk()
        model = self.model
        model.batches = [batch._replace(append=None) for batch in model.batches]
        model.bounds = []
        self.acknowledged = model.end
        self.come_back()

    def kill(self) -> None:
        kill(self.store)
        if self.random.random() < 0.3:
            damage.indexes(self.directory, self.random, within_entries=False)
            self.use_disk()
        self.come_back()

    def come_back(self) -> None:
        super().come_back()
        agreement.learn(self.partition, self.model)

    def interrupted(self, do) -> None:
        """Kill the process, or cut the power, in the middle of a step."""
        before, self.after = self.model.copy(), None
        if not self.is_interrupted(do):
            return
        after = self.after if self.after is not None else before
        if self.random.random() < 0.5 and not self.has_absurd_times:
            self.power_went([before, after])
        else:
            self.killed(
                [before, *prefixes(before, after)] if do == self.follow else [before, after]
            )
        agreement.learn(self.partition, self.model)

    def lose_power(self) -> None:
        self.power_went([self.model, self.model])
        agreement.learn(self.partition, self.model)
