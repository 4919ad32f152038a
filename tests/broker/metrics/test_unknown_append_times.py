"""What nobody knows is shown: a gauge says how much of a log has batches without an append time."""

from __future__ import annotations

from tests.broker import asking

NAME = "tidelog_append_times_unknown_bytes"


def test_a_gauge_shows_how_much_has_no_append_time(start):
    broker = start()
    with broker.connect() as connection:
        for topic in ("doubted", "known"):
            asking.create(connection, topic)
            asking.produce(connection, topic, asking.batch_of("a", "b"))
    assert broker.metric(NAME) == 0
    broker.kill()
    for path in (broker.log_dir / "doubted-0").glob("partition.times"):
        path.unlink()  # as if another program had written the log
    broker.restart()
    size = (broker.log_dir / "doubted-0" / f"{0:020}.log").stat().st_size
    with broker.connect() as connection:
        asking.fetch(connection, "doubted")  # opened with the first use, at the latest
        asking.fetch(connection, "known")
    assert broker.metric(NAME, topic="doubted") == size > 0
    assert broker.metric(NAME, topic="known") == 0
    broker.stop()
    broker.restart()
    with broker.connect() as connection:
        asking.fetch(connection, "doubted")
    assert broker.metric(NAME) == size  # a proper stop does not make it known
