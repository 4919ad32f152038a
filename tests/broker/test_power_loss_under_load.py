"""The power goes under load: what a topic in flush mode acknowledged over TCP is there, once, in order.

The broker runs on a disk that forgets and tears what was not synced (`losing_power`), and dies in the
middle of some call; it is started again on what is left, over and over. A disk that skips the
syncs of the log must be found out. TIDELOG_BROKER_POWER_LOSSES says how many losses (3).
"""

import os
import random
import shutil
import threading

import pytest

from tests.broker.asking import create, produce, read_values, records_for
from tests.broker.subject import eventually
from tests.oracle.wire import WireError
from tidelog import process, serving

pytestmark = pytest.mark.slow  # tests/storage has the same without a broker

LOSSES = int(os.environ.get("TIDELOG_BROKER_POWER_LOSSES", "3"))
PRODUCERS = 3
MOST = 2_000  # records of a producer in one life: the power goes long before

PLANTED = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from tests.broker.losing_power import plant; plant(); "
    "from tidelog.cli import main; sys.exit(main())"
)


def write(broker, name, promised):
    """Produce one record after another until the broker is gone."""
    with broker.connect() as connection:
        for number in range(MOST):
            value = f"{name}-{number}"
            try:
                answer = produce(connection, "t", records_for(9, value))
            except (OSError, WireError):
                return
            if answer is None:
                return
            assert answer["error_code"] == 0, answer
            promised.append(value.encode())


def lose(broker, monkeypatch, target, chance, life, promised, *, syncs):
    """Have the broker serve on a disk that dies, and leave it what that disk had."""
    with monkeypatch.context() as planted:
        planted.setattr(serving, "START", PLANTED)
        planted.setenv("TIDELOG_POWER_ROOT", str(broker.log_dir))
        planted.setenv("TIDELOG_POWER_TARGET", str(target))
        planted.setenv("TIDELOG_POWER_CALL", str(chance.randint(150, 500)))
        planted.setenv("TIDELOG_POWER_SYNCS", "1" if syncs else "0")
        try:
            broker.restart()
        except process.BrokerFailed:
            assert target.exists(), "it did not start, and had power"
    writers = []
    for number in range(0 if target.exists() else PRODUCERS):
        account = []
        promised.append(account)
        name = f"{life}-{number}"
        writers.append(threading.Thread(target=write, args=(broker, name, account)))
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive()
    # Its disk may still be writing down what is left.
    eventually(lambda: not broker.is_running, what="the power to go")
    broker.kill()
    shutil.rmtree(broker.log_dir)
    target.rename(broker.log_dir)


def play(start, monkeypatch, tmp_path, losses, seed, *, syncs=True):
    """Lose the power so often; what was promised, by producer, and what is there."""
    chance, broker, promised = random.Random(seed), start(), []
    with broker.connect() as connection:
        create(connection, "t", segment_bytes="20000", flush_messages="1")
    for life in range(losses):
        lose(broker, monkeypatch, tmp_path / "left", chance, life, promised, syncs=syncs)
    broker.restart()
    with broker.connect() as connection:
        return promised, read_values(connection, "t")


def test_what_was_acknowledged_in_flush_mode_outlives_power_losses(start, monkeypatch, tmp_path):
    promised, found = play(start, monkeypatch, tmp_path, LOSSES, seed=1)
    assert len(found) == len(set(found))
    assert sum(map(len, promised)) > 10 * LOSSES
    for account in promised:
        there = set(account)
        assert [value for value in found if value in there] == account


def test_a_disk_that_skips_syncs_is_found_out(start, monkeypatch, tmp_path):
    for seed in range(5):
        promised, found = play(start, monkeypatch, tmp_path, 1, seed, syncs=False)
        if {value for account in promised for value in account} - set(found):
            return
    pytest.fail("no acknowledged record was lost")
