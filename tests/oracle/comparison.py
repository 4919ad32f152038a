"""The verdict: every difference between the two brokers, with its reason or without one.

`compare` plays the same cases against both and classifies each difference by the first reason of
`differences.REASONS` that applies. A step that a reason explains may change what is in the log from
then on; if the reason says so (`spoils_the_case`), later differences of the same case follow from
it and are counted with it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.oracle import codecs, scenario
from tests.oracle.brokers import partition_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.oracle.differences import Reason
    from tests.oracle.scenario import Case, Difference


PACKED = ("gzip", "lz4", "zstd", "snappy")


@dataclass
class Verdict:
    """What one comparison found."""

    cases: int = 0
    steps: int = 0
    equal_steps: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    followed: Counter[str] = field(default_factory=Counter)
    unexplained: list[Difference] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        """Take another comparison in."""
        self.cases += other.cases
        self.steps += other.steps
        self.equal_steps += other.equal_steps
        self.explained += other.explained
        self.followed += other.followed
        self.unexplained += other.unexplained

    def table(self) -> str:
        """A summary for people."""
        lines = [
            " ".join(
                (
                    f"cases {self.cases}, requests {self.steps}, equal answers {self.equal_steps},",
                    f"differences explained {self.explained.total()},",
                    f"following {self.followed.total()}, UNEXPLAINED {len(self.unexplained)}",
                )
            )
        ]
        for name, count in self.explained.most_common():
            lines.append(
                f"  {count:6}  {name}"
                + (f"  (+{self.followed[name]} following)" if self.followed[name] else "")
            )
        return "\n".join(lines)

    def complaint(self, limit: int = 40) -> str:
        """The unexplained differences, one line each."""
        lines = [str(one) for one in self.unexplained[:limit]]
        if len(self.unexplained) > limit:
            lines.append(f"... and {len(self.unexplained) - limit} more")
        return "\n".join(lines)


def plain_logs(
    cases: Sequence[Case], log_dirs: Sequence[Path]
) -> Iterator[tuple[str, list[dict[str, bytes]]]]:
    """Names and `.log` files, broker by broker, of cases that should agree to the last byte.

    Those are the ones whose records nobody compressed, on topics that stamp no append time.
    """
    for case, name in zip(cases, partition_names(cases), strict=True):
        stamped_or_packed = not case.topic.startswith("create") or case.topic.endswith(PACKED)
        if stamped_or_packed or case.tags.get("codec") != codecs.NONE:
            continue
        if case.tags.get("times") in ("negative", "around zero"):
            continue  # differences.py says why these differ
        yield (
            case.name,
            [
                {path.name: path.read_bytes() for path in sorted((one / name).glob("*.log"))}
                for one in log_dirs
            ],
        )


def judge(
    cases: Sequence[Case],
    kafka: Sequence[list[Any]],
    tidelog: Sequence[list[Any]],
    reasons: Sequence[Reason],
) -> Verdict:
    """Classify every difference between the answers of the two brokers."""
    verdict = Verdict(cases=len(cases), steps=sum(len(case.steps) for case in cases))
    for case, one, other in zip(cases, kafka, tidelog, strict=True):
        found = scenario.differences(case, one, other)
        verdict.equal_steps += len(case.steps) - len({id(each.step) for each in found})
        spoiled_by = None
        for difference in found:
            reason = next((each for each in reasons if each.applies(difference)), None)
            if reason is not None:
                verdict.explained[reason.name] += 1
                if reason.spoils_the_case:
                    spoiled_by = reason
            elif spoiled_by is not None:
                verdict.followed[spoiled_by.name] += 1
            else:
                verdict.unexplained.append(difference)
    return verdict


def inject(answer: Any, key: str, change: Any) -> bool:
    """Add `change` to the first value called `key`, for a test of the comparison; whether there was one."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name == key and isinstance(value, type(change)):
                answer[name] = value + change
                return True
            if inject(value, key, change):
                return True
    if isinstance(answer, list):
        return any(inject(value, key, change) for value in answer)
    return False
