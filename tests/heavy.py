"""How processes share the tests that start JVMs, foreign clients or Spark, and what is told at the end.

`make oracle`, `make test-clients` and `make test-spark` run with `--dist loadgroup`. Tests that share what is
dear to start are one group, and one process runs a group: so it is started once, and is in memory once.
Elsewhere the tests of a file are a group, and a test that takes minutes is one by itself. The longest groups
begin first; else one process would have nothing to do while the other runs the last of them.

The summary of a comparison is kept and printed when all tests have ended, whatever they say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

Summaries = list[tuple[str, str]]

# Tests that share brokers, or Java processes of Kafka's tools, for the whole run: how their names begin.
SHARING: Mapping[str, str] = {
    "tests/tools/test_": "tools",
    "tests/tools/cluster/test_administration.py": "tools",
    "tests/tools/cluster/test_topics.py": "tools",
    "tests/oracle/transactions/": "transactions",
    "tests/client/": "secured",
    "tests/pipeline/": "secured",
    "tests/tidelog/cli/test_secured.py": "secured",
}
# What begins first, the longest before the others: tests, files and folders. A test is a group by itself.
LONGEST = (
    "tests/clients/migration/test_migration.py::test_clients_of_all_releases_go_through",
    "tests/clients/test_matrix.py::test_every_client",
    "tests/clients/test_matrix.py::test_on_three_brokers",
    "tests/clients/test_matrix.py::test_on_the_pure_twin",
    "tests/tools/test_",
    "tests/oracle/test_against_kafka_3.py",
    "tests/oracle/logs/",
    "tests/client/",
    "tests/oracle/transactions/",
    "tests/clients/rolling/",
)


class Groups(LoadScopeScheduling):
    """Gives processes one group of tests after another."""

    def _split_scope(self, nodeid: str) -> str:
        # The tests of Spark share none of the brokers, and each process has a session of Spark.
        return group_of(nodeid, SHARING if self.config.getoption("markexpr") != "spark" else {})


def group_of(nodeid: str, sharing: Mapping[str, str]) -> str:
    """The name of the tests that one process runs together with this one."""
    if any("::" in long and nodeid.startswith(long) for long in LONGEST):
        return nodeid
    shared = (group for beginning, group in sharing.items() if nodeid.startswith(beginning))
    return next(shared, nodeid.partition("::")[0])


def put_longest_first(items: list[pytest.Item]) -> None:
    """Sorts tests by LONGEST; the others stay in their order."""
    items.sort(key=lambda item: _place_of(item.nodeid))


def _place_of(nodeid: str) -> int:
    places = (at for at, beginning in enumerate(LONGEST) if nodeid.startswith(beginning))
    return next(places, len(LONGEST))


def hand_over(config: pytest.Config, summaries: Summaries) -> None:
    """Gives the summaries of one process of pytest-xdist to the process that prints them."""
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output["summaries"] = summaries


def take_over(node: object, summaries: Summaries) -> None:
    """Takes the summaries of a process of pytest-xdist that has ended; one that died has none."""
    handed = getattr(node, "workeroutput", {}).get("summaries", ())
    summaries += [(title, text) for title, text in handed]
