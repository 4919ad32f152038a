"""What the matrix found, as numbers, as reasons to fail, and as the Markdown of docs/compatibility.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tests.clients.coordination.administration import CALLS
from tests.clients.transactions.expectations import ISOLATIONS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.expectations import Rules

MARK_BEGIN = "<!-- clients: written by tests/clients/matrix.py -->\n"
MARK_END = "<!-- /clients -->\n"


class Report:
    """What happened: counts per (producer, consumer, group), and every difference in words."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self.good: Counter[tuple[str, str, str]] = Counter()
        self.bad: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
        self.refusals: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self.found: Counter[tuple[str, str]] = Counter()
        self.groups: dict[str, int] = {}  # records handed out, by the group's name
        self.commits: Counter[tuple[str, str]] = Counter()  # by who committed and who asked
        self.lacking: list[str] = []  # what a client cannot, with the reason
        self.administered: dict[tuple[str, str], str] = {}  # by client and call
        self.transactions: dict[str, dict[str, str]] = {}  # what went well, by writer
        self.isolated: dict[tuple[str, str], int] = {}  # records, by reader and isolation
        self.problems: list[str] = []
        self.seconds: dict[str, float] = {}

    def differences(self) -> list[str]:
        """Every reason to fail, one line each."""
        lines = list(self.problems)
        for (producer, consumer, group), reasons in sorted(self.bad.items()):
            first = "; ".join(reasons[:3])
            lines.append(f"{producer} -> {consumer}, {group}: {len(reasons)} x {first}")
        return lines


def table(report: Report, group: str) -> list[str]:
    """Producers by consumers for one group of topics."""
    names = list(report.versions)
    lines = [
        "| written by \\ read by | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for producer in names:
        cells = []
        for consumer in names:
            cell = (producer, consumer, group)
            wrong = len(report.bad[cell]) if cell in report.bad else 0
            good = report.good[cell]
            cells.append(
                f"**{wrong} wrong**, {good} ok" if wrong else f"ok {good}" if good else "-"
            )
        lines.append(f"| {producer} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def refusal_table(report: Report) -> list[str]:
    """Requests whose outcome depends on the format, by producer."""
    order = list(report.versions)
    rows = sorted(report.refusals.items(), key=lambda item: order.index(item[0][0]))
    lines = ["| producer | request | outcome |", "|---|---|---|"]
    for (producer, label), outcomes in rows:
        lines.append(f"| {producer} | {label} | {', '.join(dict.fromkeys(outcomes))} |")
    return [*lines, ""]


def lookup_table(report: Report, groups: list[str]) -> list[str]:
    """How many questions for offsets were answered right, by client."""
    lines = ["Offsets asked for by place (start, end) and by time, answers that were right:", ""]
    lines += ["| client | " + " | ".join(groups) + " |", "|---" * (len(groups) + 1) + "|"]
    for name in report.versions:
        cells = [str(report.found[name, group]) for group in groups]
        if any(cell != "0" for cell in cells):
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def group_table(report: Report) -> list[str]:
    """The records each group handed out, all of them once."""
    lines = [
        "Groups: members join, share, leave and come back; every record handed out once by commits, and",
        "again from a time where the client can go back to one:",
        "",
        "| group of | records |",
        "|---|---|",
    ]
    lines += [f"| {name} | ok {count} |" for name, count in sorted(report.groups.items())]
    return [*lines, ""]


def commit_table(report: Report) -> list[str]:
    """Offsets committed by one client and asked for by another."""
    names = [name for name in report.versions if any(name in pair for pair in report.commits)]
    lines = [
        "Offsets committed by one client and asked for by another, answers that were right:",
        "",
        "| committed by \\ asked by | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for writer in names:
        cells = [f"ok {count}" if (count := report.commits[writer, n]) else "-" for n in names]
        lines.append(f"| {writer} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def administration_table(report: Report) -> list[str]:
    """Calls of administration by client; "-" where the client has none."""
    made = {call for _, call in report.administered}
    calls = [call for call in CALLS if call in made]
    lines = [
        "Administration; a dash where the client has no call for it:",
        "",
        "| client | " + " | ".join(call.replace("_", " ") for call in calls) + " |",
        "|---" * (len(calls) + 1) + "|",
    ]
    for name in report.versions:
        cells = [report.administered.get((name, call), "-") for call in calls]
        if set(cells) != {"-"}:
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def transaction_table(report: Report) -> list[str]:
    """Who writes in transactions, and what each client reads of all of them."""
    lines = [
        "Transactions: committed, aborted, and aborted by a newer producer of the same id, which fences the",
        "older: it is told by this name; a topic copied with the group's offsets in the transaction; and the",
        "records that the client reads of all of this. A dash where it cannot; the reasons are below.",
        "",
        "| client | is fenced | copies with offsets | " + " | ".join(ISOLATIONS) + " |",
        "|---" * (3 + len(ISOLATIONS)) + "|",
    ]
    for name in report.versions:
        told = report.transactions.get(name, {})
        read = [
            f"ok {report.isolated[name, one]}" if (name, one) in report.isolated else "-"
            for one in ISOLATIONS
        ]
        cells = [told.get("fenced", "-"), told.get("copies", "-"), *read]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def coordination_tables(report: Report) -> list[str]:
    """Groups, commits, administration, and who has none of them for which reason."""
    lines = []
    if report.groups:
        lines += group_table(report)
    if report.commits:
        lines += commit_table(report)
    if report.administered:
        lines += administration_table(report)
    if report.isolated:
        lines += transaction_table(report)
    return lines + [f"- {line}" for line in report.lacking]


def render(report: Report, broker: Rules) -> str:
    """The report as Markdown: clients, one table per group of topics, refusals, lookups, skips."""
    lines = ["Clients: " + "; ".join(report.versions.values()) + ".", ""]
    for group, head in broker.groups().items():
        lines += [f"Topics of {head}; records compared:", ""]
        lines += table(report, group)
    if report.refusals:
        lines += refusal_table(report)
    if report.found:
        lines += lookup_table(report, list(broker.groups()))
    lines += coordination_tables(report)
    lines += [f"- {name}: skipped, {reason}" for name, reason in report.skipped.items()]
    lines.append(f"{len(report.skipped)} client(s) skipped.")
    return "\n".join(lines) + "\n"


def write_between_markers(path: Path, text: str) -> None:
    """Replace what stands between the markers in a Markdown file; ValueError if they are not there."""
    page = path.read_text()
    head, begin, rest = page.partition(MARK_BEGIN)
    _, end, tail = rest.partition(MARK_END)
    if not begin or not end:
        raise ValueError(f"{path} lacks the lines {MARK_BEGIN}{MARK_END}")
    path.write_text(f"{head}{MARK_BEGIN}{text}{MARK_END}{tail}")
