"""The clock, the faults and the sweeps of a broker, as a test has them in its own process."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidelog.control import ControlClient, ControlError
from tidelog.process import BrokerFailed, BrokerProcess

ROOT = Path(__file__).parents[2]
NEW_YEAR_MS = 1_767_225_600_000
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    directory = tmp_path_factory.mktemp("broker") / "data"
    with BrokerProcess(directory, {"clock.start.ms": NEW_YEAR_MS}, clock="manual") as broker:
        yield broker


def test_a_life_with_a_clock(broker):
    clock = broker.clock
    assert clock.freeze("2026-01-01T00:00Z") == clock.now_ms() == NEW_YEAR_MS
    assert clock.step("1h") == NEW_YEAR_MS + HOUR_MS
    assert clock.step(timedelta(hours=-1)) == NEW_YEAR_MS
    assert clock.set(datetime(2026, 1, 1, 1, tzinfo=UTC)) == NEW_YEAR_MS + HOUR_MS
    assert clock.set(-7) == -7
    assert clock.run(1000, start="2026-01-01T00:00Z") >= NEW_YEAR_MS
    assert clock.freeze(NEW_YEAR_MS) == NEW_YEAR_MS
    assert broker.sweep() == []
    with pytest.raises(ControlError, match="does not say its time zone"):
        clock.set(datetime(2026, 1, 1))
    with pytest.raises(ControlError, match="'soon' is not a span of time"):
        clock.step("soon")


@pytest.mark.slow
def test_restarts_keep_the_time_and_forget_the_faults(broker):
    broker.clock.freeze("1969-12-31T00:00Z")
    broker.faults.add(api="Fetch", delay=timedelta(seconds=1), times=1)
    control = broker.control
    broker.kill()
    broker.restart()
    assert (broker.clock.now_ms(), broker.control) == (-24 * HOUR_MS, control)
    assert broker.faults.list() == []
    assert "clock.start.ms" not in broker.settings


@pytest.mark.slow
def test_a_clock_from_the_next_start_on(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        with pytest.raises(BrokerFailed, match="uses the machine's clock"):
            _ = broker.clock
        broker.restart({"clock": "manual", "clock.start.ms": -5})
        assert broker.clock.now_ms() == -5
        broker.restart()
        assert broker.clock.now_ms() == -5
        broker.restart({"clock.start.ms": 7})
        assert broker.clock.now_ms() == 7
        with pytest.raises(BrokerFailed, match=r"clock\.start\.ms=soon .*: expected an integer"):
            broker.restart({"clock.start.ms": "soon"})


def test_a_fault_is_lifted_at_the_end_of_a_block(broker):
    with broker.faults.add(api="Fetch", delay="1s") as fault:
        assert [each["id"] for each in broker.faults.list()] == [fault.id]
        assert fault.hits == 0
    with broker.faults.add(api="Fetch", delay="1s"):
        broker.faults.clear()
    with pytest.raises(ControlError, match="there is no fault"):
        _ = fault.hits


def test_a_client_of_its_own(broker):
    client = ControlClient(broker.control)
    assert client.ask("GET", "/v1/clock")["clock"] == "manual"
    client.close()
    assert client.ask("GET", "/v1/faults") == {"faults": []}
    client.close()


def test_it_brings_nothing_but_the_standard_library_along():
    code = (
        "import sys; before = set(sys.modules); import tidelog.control, tidelog.process\n"
        "print(sorted({n.split('.')[0] for n in set(sys.modules) - before}"
        " - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['tidelog']\n"
