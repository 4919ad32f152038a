"""A follower's fetch counts if its broker proves it; whoever forges one changes nothing at the leader."""

import asyncio
import logging
import re
import struct

import pytest

from tests.broker.partitions.inside import eventually, produce, tags_of, values_of
from tests.broker.partitions.stranger import Stranger
from tests.forged import sender_tags
from tidelog.broker.lifecycle.proof import Verdict, judge, proof_of
from tidelog.broker.metadata.brokers.members import LiveBroker
from tidelog.broker.metadata.brokers.records import LiveBrokerRecord, Secret
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.sender import Sender

ABOVE = 2**62


def ends(leader, topic="t"):
    """What the leader believes of its followers' logs, and its high watermark."""
    led = leader.replicas.led(leader.log(topic))
    return {each.broker: each.log_end_offset for each in led.leader.followers}, led.leader.isr


async def both_fetch(leader):
    """Waits until both followers have fetched."""
    await eventually(lambda: min(ends(leader)[0].values()) >= 0)


def refused(broker, reason):
    return broker.node.metrics.broker_requests_refused[reason]


async def test_forged_fetches_acknowledge_nothing(three, caplog):
    topic = await three.create("t")
    await both_fetch(three[1])
    for number in (2, 3):
        await three[number].lose_session(is_noticed=False)
    epochs = {n: three[1].node.metadata.image.brokers[n].epoch for n in (2, 3)}
    before = ends(three[1])
    asked = asyncio.create_task(produce(three[1], "t", b"a", timeout_ms=1_500))
    await eventually(lambda: three[1].log("t").log_end_offset == 1)
    codes = []
    async with Stranger(three[1].port) as stranger:
        for number, epoch in epochs.items():
            guess = sender_tags(number, epoch, b"guess")
            named = number, epoch, topic.topic_id.bytes
            codes += [
                await stranger.fetch_as(*named, 1),
                await stranger.old_fetch_as(number, "t", 1),
                await stranger.fetch_as(*named, 1, tags=guess),
            ]
    assert (await asked).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert three[1].log("t").high_watermark == 0
    assert ends(three[1]) == before
    assert codes == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 6
    assert refused(three[1], "forged") == 6
    assert caplog.text.count("broker request refused") == 1


async def test_epochs_above_the_known_one_take_nobody_out_of_the_isr(three):
    topic = await three.create("t")
    assert (await produce(three[1], "t", b"a")).error_code == 0
    await both_fetch(three[1])
    before = ends(three[1])
    async with Stranger(three[1].port) as stranger:
        codes = [
            await stranger.fetch_as(number, ABOVE, topic.topic_id.bytes, 0) for number in (2, 3, 77)
        ]
    assert ends(three[1]) == before
    assert codes == [31, 31, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert (refused(three[1], "unknown"), refused(three[1], "forged")) == (1, 2)
    assert (await produce(three[1], "t", b"b")).error_code == 0


async def test_the_epoch_of_a_session_cannot_be_found_by_trying(three):
    """Without a proof each epoch is answered alike, after one read of the metadata."""
    topic = await three.create("t")
    await both_fetch(three[1])
    senders, read = three[1].replicas.senders, []
    catch_up = senders.catch_up

    async def counted():
        read.append(1)
        await catch_up()

    senders.catch_up = counted
    epoch = three[1].node.metadata.image.brokers[2].epoch
    async with Stranger(three[1].port) as stranger:
        for tried in (0, epoch - 1, epoch, epoch + 1, ABOVE):
            read.clear()
            code = await stranger.fetch_as(2, tried, topic.topic_id.bytes, 0)
            assert (code, len(read)) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 1)
            wrong = sender_tags(2, tried, b"guess")
            await stranger.fetch_as(2, tried, topic.topic_id.bytes, 0, tags=wrong)
            assert len(read) == 2


async def test_a_stranger_reads_nothing_above_the_high_watermark(three):
    topic = await three.create("t")
    for number in (2, 3):
        await three[number].lose_session()
    await produce(three[1], "t", b"not committed", acks=1)
    async with Stranger(three[1].port) as stranger:
        limits = struct.pack(">iiibii", 0, 0, 1 << 20, 0, 0, -1)
        partition = struct.pack(">iiqiqi", 0, 0, 0, -1, 0, 1 << 20) + b"\0"
        tags = b"\2\xe9\xe8\1\1\1" + b"\xea\xe8\1\1\1"
        body = limits + b"\2" + topic.topic_id.bytes + b"\2" + partition + b"\0\1\1" + tags
        head = struct.pack(">hhihB", 1, 17, 7, -1, 0)
        answer = await stranger.ask(struct.pack(">i", len(head + body)) + head + body)
        assert b"not committed" not in answer
        assert len(answer) < 100  # nor is it told what the leader knows of its log


@pytest.mark.parametrize("has_secret", [True, False], ids=["same version", "downgraded"])
async def test_a_follower_that_has_registered_anew_is_believed_before_the_watch_shows_it(
    three, has_secret
):
    await three.create("t")
    three[1].node.metadata._watch.cancel()  # what others write it learns only by catching up
    await three[3].lose_session(is_noticed=False)
    three[3].has_secret = has_secret
    await three[3].register()
    await produce(three[1], "t", b"a", acks=1)
    await eventually(lambda: values_of(three[3].log("t")) == [b"a"])
    image = three[1].node.metadata.image
    assert image.brokers[3].epoch == three[3].cluster.epoch
    assert refused(three[1], "forged") == 0


async def test_an_older_broker_is_believed_until_it_has_a_secret(three, caplog):
    topic = await three.create("t")
    three[3].has_secret = False
    with caplog.at_level(logging.WARNING):
        await three[3].lose_session()
        await three[3].register()
        assert (await produce(three[1], "t", b"a")).error_code == 0
        await eventually(lambda: values_of(three[3].log("t")) == [b"a"])
    assert len(re.findall("of an older version accepted without proof", caplog.text)) >= 1
    older = three[3].cluster.epoch
    three[3].has_secret = True
    await three[3].lose_session()
    await three[3].register()
    await eventually(lambda: 3 in three[1].node.metadata.image.brokers)
    await eventually(
        lambda: three[1].node.metadata.image.brokers[3].epoch == three[3].cluster.epoch
    )
    async with Stranger(three[1].port) as stranger:
        for epoch in (older, three[3].cluster.epoch):
            code = await stranger.fetch_as(3, epoch, topic.topic_id.bytes, 0)
            assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_proof_is_of_one_session_and_for_one_receiver(three):
    topic = await three.create("t")
    image = three[1].node.metadata.image
    epoch, of_two, elsewhere = (
        image.brokers[2].epoch,
        tags_of(image, 2, 1),
        tags_of(image, 2, 3),
    )
    await both_fetch(three[1])
    before = ends(three[1])
    async with Stranger(three[1].port) as stranger:
        wanted = topic.topic_id.bytes, 0
        assert await stranger.fetch_as(2, epoch, *wanted, tags=elsewhere) == 31
        assert await stranger.fetch_as(3, image.brokers[3].epoch, *wanted, tags=of_two) == 31
        assert await stranger.fetch_as(2, epoch - 1, *wanted, tags=of_two) == 6
    assert ends(three[1]) == before


@pytest.mark.parametrize(
    ("epoch", "secret", "sender", "verdict"),
    [
        (7, "s", "right", Verdict.PROVEN),
        (7, "s", "wrong", Verdict.FORGED),
        (7, "s", None, Verdict.FORGED),
        (6, "s", None, Verdict.FORGED),
        (6, "s", "right", Verdict.OVER),
        (8, "s", "right", Verdict.UNKNOWN),
        (8, "s", None, Verdict.FORGED),
        (8, "", None, Verdict.UNKNOWN),
        (7, "", None, Verdict.BELIEVED),
        (6, "", None, Verdict.OVER),
    ],
)
def test_what_a_claim_is_worth(epoch, secret, sender, verdict):
    live = LiveBroker(2, 7, LiveBrokerRecord("i", secret=Secret(secret)), 9)
    expected = proof_of(Secret(secret), 2, 7, 1)
    proof = {"right": expected, "wrong": bytes(16), None: None}[sender]
    said = None if proof is None else Sender(2, epoch, proof)
    assert judge(live, epoch, said, expected) is verdict
    assert judge(None, epoch, said, b"") is Verdict.UNKNOWN


def test_a_secret_shows_itself_in_no_text():
    record = LiveBrokerRecord("i", secret=Secret("deadbeef"))
    assert "deadbeef" not in f"{record!r} {record}"
