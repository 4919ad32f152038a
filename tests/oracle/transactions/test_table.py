"""Every state of a transactional id x every call, with Apache Kafka 3.9.1, 4.1.1 and tidelog.

3.9.1 follows transaction.version 0, and 4.1.1 version 2 in the requests that say so. How transactions
begin and end is compared in every run in the newest versions, and of the rest a part that the seed picks
(TIDELOG_FUZZ_SEED, told at the start). TIDELOG_EVERY_CASE=1 compares all.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.oracle import wire
from tests.oracle.transactions import table
from tests.oracle.transactions.differences import REASONS, Different

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

EVERY_CASE = os.environ.get("TIDELOG_EVERY_CASE") == "1"
RELEASES = ("3.9.1", table.LEVEL_2)
SAMPLED = 400


def chosen(release):
    """The cells that are compared with a release."""
    cells = table.cells(release)
    if EVERY_CASE:
        return cells
    rest = [cell for cell in cells if not table.is_essential(cell)]
    picked = set(random.Random(os.environ["TIDELOG_FUZZ_SEED"]).sample(rest, SAMPLED))
    return [cell for cell in cells if cell in picked or table.is_essential(cell)]


def play(bootstrap, cells):
    """What a broker makes of each cell."""
    with wire.Connection(bootstrap) as connection:
        stage = table.Stage(connection, "table")
        stage.prepare()
        return {cell: stage.play(cell) for cell in cells}


@pytest.fixture(scope="module")
def played(kafka_3, kafka_4, ours):
    wanted = {release: chosen(release) for release in RELEASES}
    both = list(dict.fromkeys([*wanted[RELEASES[1]], *wanted[RELEASES[0]]]))
    brokers = (kafka_3, kafka_4, ours)
    with ThreadPoolExecutor(3) as pool:
        *theirs, mine = pool.map(
            lambda each: play(each[0].bootstrap, each[1]),
            zip(brokers, (*wanted.values(), both), strict=True),
        )
    return dict(zip(RELEASES, theirs, strict=True)), mine


def different(release, theirs, mine):
    """The cells in which the two differ."""
    return [
        Different(release, cell, answer, mine[cell])
        for cell, answer in theirs.items()
        if answer != mine[cell]
    ]


def test_every_state_and_every_call(played, summarize):
    theirs, mine = played
    explained, unexplained = Counter(), []
    for release, answers in theirs.items():
        for one in different(release, answers, mine):
            why = next((each.name for each in REASONS if each.applies(one)), None)
            if why is None:
                unexplained.append(one)
            else:
                explained[why] += 1
    compared = {release: len(answers) for release, answers in theirs.items()}
    rows = [f"cells compared {compared}", f"UNEXPLAINED {len(unexplained)}"]
    rows += [f"{count:6} {name}" for name, count in explained.most_common()]
    summarize("every state of a transactional id x every call", "\n".join(rows))
    assert not unexplained, "\n".join(map(str, unexplained[:40]))
    assert min(compared.values()) > SAMPLED + 200
    if EVERY_CASE:
        idle = {each.name for each in REASONS} - set(explained)
        assert not idle, f"these explain nothing any more: {idle}"


def test_the_states_are_reached(played):
    """A table of ids that are all in one state would compare little."""
    _, mine = played
    asked = "InitProducerId v5 no id"  # is refused, and changes nothing
    reached = {cell.state: told["after"] for cell, told in mine.items() if cell.call == asked}
    assert set(reached) == set(table.STATES)
    for name, told in reached.items():
        if name == "unknown":
            assert told == {"error": table.NOT_KNOWN}
        else:
            assert told["state"] == name.split(",")[0].split()[0]


@pytest.mark.parametrize(
    ("state", "call"),
    [
        ("Ongoing", "EndTxn v5 commit current"),
        ("PrepareAbort", "EndTxn v5 abort before"),
        ("CompleteCommit, version 2", "EndTxn v5 commit before"),
        ("Empty, bumped", "InitProducerId v5 before"),
        ("Ongoing, last epoch", "InitProducerId v5 current"),
    ],
)
@pytest.mark.parametrize("what", ["code", "state", "epoch"])
def test_an_injected_difference_has_no_reason(played, state, call, what):
    theirs, mine = played
    cell = table.Cell(state, call)
    answer = mine[cell]["answer"]
    after = dict(mine[cell]["after"])
    if what == "code":
        answer = (77, *answer[1:]) if isinstance(answer, tuple) else 77
    elif what == "state":
        after["state"] = "Dead"
    else:
        after["given"] = (after["given"][0], after["given"][1] + 1)
    injected = mine | {cell: {"answer": answer, "after": after}}
    found = [
        each
        for each in different(table.LEVEL_2, theirs[table.LEVEL_2], injected)
        if not any(one.applies(each) for one in REASONS)
    ]
    assert [each.cell for each in found] == [cell]
