"""Results: stored as JSON lines, turned into medians and ratios, printed as a table.

A line is one repetition of one row on one broker, with its setup. `Results.has` lets an interrupted
run continue where it stopped. Ratios are tidelog / Kafka, taken repetition by repetition (the two
ran one after the other), and their median is shown. Absolute figures are shown for orientation
only: on a shared machine they mean little.
"""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rows import Figure, Row


FRESH, WARM = "fresh", "warm"
_STATES = (FRESH, WARM)


class Results:
    """The measurements so far, in a file of JSON lines."""

    def __init__(self, path: Path, setup: dict[str, Any], *, keep: bool) -> None:
        """Reads the file's lines for this setup; without `keep` begin with an empty file."""
        self.path = path
        self.setup = setup
        self._found: dict[tuple[str, str, str, int], dict[str, float]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if not keep:
            path.write_text("")
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                one = json.loads(line)
            except ValueError:
                continue  # a line that an interruption truncated
            if one["setup"] == setup:
                key = one["state"], one["row"], one["broker"], one["repetition"]
                self._found[key] = one["figures"]

    def has(self, state: str, row: str, broker: str, repetition: int) -> bool:
        """Returns whether this repetition is there already."""
        return (state, row, broker, repetition) in self._found

    def add(
        self,
        state: str,
        row: str,
        broker: str,
        repetition: int,
        figures: dict[str, float],
        when: str,
    ) -> None:
        """Adds one repetition, and writes it to disk at once."""
        self._found[state, row, broker, repetition] = figures
        line = {
            "state": state,
            "row": row,
            "broker": broker,
            "repetition": repetition,
            "figures": {key: round(value, 6) for key, value in figures.items()},
            "when": when,
            "setup": self.setup,
        }
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def series(self, state: str, row: str, figure: str, broker: str) -> dict[int, float]:
        """Returns a map from repetition to value."""
        return {
            key[3]: figures[figure]
            for key, figures in sorted(self._found.items())
            if key[:3] == (state, row, broker) and figure in figures
        }

    def median(self, state: str, row: str, figure: str, broker: str) -> float | None:
        """Returns the median over the repetitions, None if there is none."""
        values = self.series(state, row, figure, broker).values()
        return statistics.median(values) if values else None

    def ratio(self, state: str, row: str, figure: str, base: str = "kafka") -> float | None:
        """Returns the median of tidelog / Kafka (or another base) over their common repetitions."""
        ours, theirs = (self.series(state, row, figure, name) for name in ("tidelog", base))
        pairs = [ours[n] / theirs[n] for n in ours.keys() & theirs.keys() if theirs[n] > 0]
        return statistics.median(pairs) if pairs else None


def _number(value: float | None, figure: Figure) -> str:
    return "-" if value is None else f"{value:,.{figure.digits}f}"


def _ratio(ratio: float | None) -> str:
    """Formats a ratio: 1/6.2 of Kafka, or 5.3 x Kafka."""
    if not ratio:
        return "-"
    return f"1/{1 / ratio:.1f}" if ratio < 1 else f"{ratio:.1f} x"


def _grid(lines: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table, padded for terminals."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rule = [("-" * (width - 1) + ":") if i else "-" * width for i, width in enumerate(widths)]
    rows = [lines[0], rule, *lines[1:]]
    return "\n".join(
        "| "
        + " | ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in rows
    )


def report(
    results: Results,
    rows: Iterable[Row],
    life: Iterable[Figure],
    base: Row,
    factor_rows: Iterable[Row],
) -> str:
    """Returns the whole report."""
    declared = [(row.key, figure) for row in rows for figure in row.figures]
    declared += [("life", figure) for figure in life]
    tables = [_compare(results, declared), _factors(results, base, factor_rows)]
    return "".join(f"\n{one}\n" for one in tables if one)


def plain(
    results: Results,
    declared: Iterable[tuple[str, Figure]],
    *,
    base: str = "kafka",
    title: str = "Kafka",
) -> str:
    """Returns a table of one state alone (FRESH), with goals if there are any."""
    figures = list(declared)
    has_goals = any(figure.goal for _, figure in figures)
    lines = [["what", "unit", title, "tidelog", "ratio", *(("goal", "") if has_goals else ())]]
    for key, figure in figures:
        theirs, ours = (results.median(FRESH, key, figure.key, name) for name in (base, "tidelog"))
        if theirs is None and ours is None:
            continue
        ratio = results.ratio(FRESH, key, figure.key, base)
        cells = [figure.title, figure.unit, _number(theirs, figure), _number(ours, figure)]
        verdict = _verdict(figure, ratio, ours) if has_goals else ()
        lines.append([*cells, _ratio(ratio), *verdict])
    return _grid(lines) if len(lines) > 1 else ""


def _verdict(figure: Figure, ratio: float | None, ours: float | None) -> tuple[str, str]:
    """Returns a goal, and whether it is reached."""
    if figure.goal is None:
        return "", ""
    if ours is None:
        return figure.goal.text, ""
    return figure.goal.text, "ok" if figure.goal.is_met(ratio, ours) else "short of it"


def _compare(results: Results, declared: Iterable[tuple[str, Figure]]) -> str:
    """Returns the table beside Apache Kafka, with the goals."""
    lines = [
        [
            "what",
            "unit",
            *(f"{who}, {state}" for state in _STATES for who in ("Kafka", "tidelog", "ratio")),
            "goal",
            *_STATES,
        ]
    ]
    for key, figure in declared:
        cells, verdicts = [], []
        for state in _STATES:
            theirs = results.median(state, key, figure.key, "kafka")
            ours = results.median(state, key, figure.key, "tidelog")
            ratio = results.ratio(state, key, figure.key)
            cells += [_number(theirs, figure), _number(ours, figure), _ratio(ratio)]
            verdicts.append(_verdict(figure, ratio, ours)[1])
        if any(cell != "-" for cell in cells):
            goal = figure.goal.text if figure.goal else ""
            lines.append([figure.title, figure.unit, *cells, goal, *verdicts])
    return _grid(lines) if len(lines) > 1 else ""


def _factors(results: Results, base: Row, rows: Iterable[Row]) -> str:
    """Returns the base row and the effect of each factor, on both brokers (warm)."""
    lines = [["factor", "unit", "Kafka", "tidelog", "ratio", "Kafka / base", "tidelog / base"]]
    for row in rows:
        for figure in row.figures:
            ours, theirs = (
                results.median(WARM, row.key, figure.key, name) for name in ("tidelog", "kafka")
            )
            if ours is None and theirs is None:
                continue
            changes = []
            for name, value in (("kafka", theirs), ("tidelog", ours)):
                origin = results.median(WARM, base.key, base.figures[0].key, name)
                same = figure.unit == base.figures[0].unit
                changes.append(f"{value / origin:.2f}" if value and origin and same else "-")
            lines.append(
                [
                    figure.title,
                    figure.unit,
                    _number(theirs, figure),
                    _number(ours, figure),
                    _ratio(results.ratio(WARM, row.key, figure.key)),
                    *changes,
                ]
            )
    return _grid(lines) if len(lines) > 1 else ""
