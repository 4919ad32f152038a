"""What each client does with times before 1970, declared; and the table of docs/time.md made of it.

Seen with the versions of environments.py. A client that is not named here fails the test, and so does
one that came to do otherwise: then the table has to change, and the page with it.
"""

from __future__ import annotations

from tests.clients.negative_times.run import ASKED, FORMATS, LOWEST, SENT, Outcome

MARK_BEGIN = "<!-- negative: made of tests/clients/negative_times/expectations.py -->\n"
MARK_END = "<!-- /negative -->\n"

SENDS_ALL = dict.fromkeys(SENT, "as sent")
SHOWS_ALL = dict.fromkeys(FORMATS, "as stored")
SHOWS_NO_TIMES = dict.fromkeys(FORMATS, "no times")
FINDS_ALL = dict.fromkeys(ASKED, "right")
CANNOT: dict[int, str] = {}


def refuses(times: object, exception: str) -> dict[int, str]:
    """The client raises the same exception for all of them; T stands for the time."""
    return dict.fromkeys(times, exception)


JAVA_SENDS = refuses(
    SENT,
    "IllegalArgumentException: Invalid timestamp: T. "
    "Timestamp should always be non-negative or null.",
)
JAVA_010_SENDS = refuses(SENT, "IllegalArgumentException: Invalid timestamp T")
TARGET = "The target time is T. The target time cannot be negative."
JAVA_FINDS = refuses(ASKED, f"IllegalArgumentException: {TARGET}")
PYTHON_FINDS = refuses(ASKED, f"ValueError: {TARGET}")
# JavaScript's numbers: it splits them into two halves and loses bits of negative ones.
KAFKA_NODE_SENDS = {**SENDS_ALL, LOWEST: "stored as 9223372036854775616"}
KAFKA_NODE_SHOWS = "shows -86401024, None, None, None, None, 1600000000000"

EXPECTED = {
    "kcat": Outcome(CANNOT, SHOWS_ALL, FINDS_ALL),
    "confluent-kafka": Outcome(SENDS_ALL, SHOWS_ALL, FINDS_ALL),
    "librdkafka 1.9": Outcome(SENDS_ALL, SHOWS_ALL, FINDS_ALL),
    "librdkafka 0.9": Outcome(
        CANNOT, SHOWS_NO_TIMES, refuses(ASKED, "RuntimeError: _UNSUPPORTED_FEATURE")
    ),
    "kafka-python 3.0": Outcome(SENDS_ALL, SHOWS_ALL, PYTHON_FINDS),
    "kafka-python 2.3": Outcome(SENDS_ALL, SHOWS_ALL, PYTHON_FINDS),
    "kafka-python 2.0": Outcome(SENDS_ALL, SHOWS_ALL, PYTHON_FINDS),
    "kafka-python 1.4": Outcome(SENDS_ALL, SHOWS_ALL, PYTHON_FINDS),
    "aiokafka": Outcome(SENDS_ALL, SHOWS_ALL, PYTHON_FINDS),
    "java 0.8.2": Outcome(CANNOT, SHOWS_NO_TIMES, FINDS_ALL),
    "java 0.9.0": Outcome(CANNOT, SHOWS_NO_TIMES, CANNOT),
    "java 0.10.0": Outcome(JAVA_010_SENDS, SHOWS_ALL, CANNOT),
    "java 0.10.2": Outcome(JAVA_SENDS, SHOWS_ALL, JAVA_FINDS),
    "java 0.11.0": Outcome(JAVA_SENDS, SHOWS_ALL, JAVA_FINDS),
    "java 1.1": Outcome(JAVA_SENDS, SHOWS_ALL, JAVA_FINDS),
    "java 2.8": Outcome(JAVA_SENDS, SHOWS_ALL, JAVA_FINDS),
    "java 3.9": Outcome(JAVA_SENDS, SHOWS_ALL, JAVA_FINDS),
    "java 4.1": Outcome(JAVA_SENDS, SHOWS_ALL, JAVA_FINDS),
    "kafka-node 5": Outcome(
        KAFKA_NODE_SENDS,
        dict.fromkeys(FORMATS, KAFKA_NODE_SHOWS),
        {**FINDS_ALL, LOWEST: "offset 6"},
    ),
    "no-kafka 3": Outcome(CANNOT, SHOWS_NO_TIMES, FINDS_ALL),
    # JavaScript's numbers again: exact to 53 bits.
    "kafkajs 2": Outcome(
        {**SENDS_ALL, LOWEST: "stored as 9223372036854775616"},
        dict.fromkeys(FORMATS, "shows -86400000, -2, -7, -9223372036854776000, -1, 1600000000000"),
        FINDS_ALL,
    ),
    # Go's time of the smallest number of milliseconds overflows.
    "franz-go 1": Outcome(
        {**SENDS_ALL, LOWEST: "stored as 0"},
        dict.fromkeys(FORMATS, "shows -86400000, -2, -7, 0, -1, 1600000000000"),
        FINDS_ALL,
    ),
}


def differences(outcomes: dict[str, Outcome]) -> list[str]:
    """Every way in which clients did not do what is declared."""
    found = []
    for name, outcome in outcomes.items():
        expected = EXPECTED.get(name)
        if expected is None:
            found.append(f"{name}: nothing is declared")
            continue
        for what, got, declared in zip(Outcome._fields, outcome, expected, strict=True):
            if got != declared:
                found.append(f"{name}, {what}: {got} instead of {declared}")
    return found


def words(outcome: dict, nothing: str) -> str:
    """One cell: what is common to all, then what is not."""
    if not outcome:
        return nothing
    by_text: dict[str, list[str]] = {}
    for what, text in outcome.items():
        by_text.setdefault(text, []).append(str(what))
    (first, _), *others = by_text.items()
    exceptions = [f"{text} for {', '.join(which)}" for text, which in others]
    return "; ".join([first, *exceptions]).replace("None", "none")


def render() -> str:
    """The table as Markdown."""
    lines = [
        "| client | sends | shows | finds (a time below -6) |",
        "|---|---|---|---|",
    ]
    for name, (sent, shown, found) in EXPECTED.items():
        cells = [words(sent, "cannot set times"), words(shown, ""), words(found, "cannot ask")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
