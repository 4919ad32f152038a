"""One decision for both codecs of Produce and of OffsetCommit: accepted, refused, or to be waited for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from tests.broker.api import test_offset_commit_single, test_produce_single
from tests.broker.asking import batch_of, produce_fields
from tests.broker.raw import request
from tests.oracle import wire
from tidelog.broker.api import admission
from tidelog.broker.network import routes
from tidelog.broker.network.answers import Pending
from tidelog.broker.network.dispatch import dispatch
from tidelog.broker.security.authorizer import Authorizer
from tidelog.broker.security.session import ANONYMOUS, Session
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.errors import NotLeaderOrFollower, TopicAuthorizationFailed

NONE, TOPIC_DENIED, GROUP_DENIED, NOT_LEADER = 0, 29, 30, 6
CONNECTION = SimpleNamespace(
    client_id=None,
    software="",
    is_over_limit=False,
    session=Session(ANONYMOUS, "127.0.0.1", "PLAINTEXT"),
)


class Denying(Authorizer):
    """Says no to one operation on one kind of resource, and remembers what it was asked."""

    def __init__(self, operation, resource_type):
        self.denied = operation, resource_type
        self.asked = []

    def allows(self, session, operation, resource_type, name):
        self.asked.append((str(session.principal), operation, resource_type, name))
        return (operation, resource_type) != self.denied


@pytest.fixture(params=["in place", "with objects"])
def way(request, monkeypatch):
    """Both ways of a request, one after the other."""
    monkeypatch.setattr(routes, "known", {})
    if request.param == "with objects":
        monkeypatch.setattr(routes, "_SHORTCUTS", {})
    return request.param


@pytest.fixture
def producing(tmp_path):
    with test_produce_single.node_at(tmp_path / "produce") as node:
        yield node


@pytest.fixture
def committing(tmp_path):
    with test_offset_commit_single.node_at(tmp_path / "commit") as node:
        yield node


async def ask(node, api, version, **fields):
    """The answer, decoded by a foreign codec."""
    answer = dispatch(node, CONNECTION, request(api, version, **fields))
    while isinstance(answer, Pending):  # it has paused, too
        await answer.happened
        answer = answer.finish()
    if not isinstance(answer, list):
        answer = await answer
    return wire.decode_answer(api, version, b"".join(answer)[8:])


async def produce(node, version=9):
    answer = await ask(node, "Produce", version, **produce_fields("plain", batch_of("a"), acks=1))
    return answer["responses"][0]["partition_responses"][0]["error_code"]


async def commit(node, version=8):
    answer = await ask(node, "OffsetCommit", version, **test_offset_commit_single.fields())
    return answer["topics"][0]["partitions"][0]["error_code"]


def later(monkeypatch, name, failure=None):
    """Have an admission answered by somebody else, in the next round of the loop."""
    admit = getattr(admission, name)
    answers = []

    def asking(*arguments):
        answer = asyncio.get_running_loop().create_future()
        answers.append(answer)
        admitted = admit(*arguments)
        if failure is None:
            asyncio.get_running_loop().call_soon(answer.set_result, admitted)
        else:
            asyncio.get_running_loop().call_soon(fail, answer)
        return answer

    def fail(answer):
        answer.set_exception(failure)
        answer.exception()  # so that nobody has to take it: the way that cannot wait does not

    monkeypatch.setattr(admission, name, asking)
    return answers


@pytest.mark.usefixtures("way")
class TestRights:
    async def test_who_may_not_write_does_not_append(self, producing):
        producing.authorizer = Denying(Operation.WRITE, ResourceType.TOPIC)
        assert await produce(producing) == TOPIC_DENIED
        assert producing.partitions.get("plain", 0).log_end_offset == 0
        asked = ("User:ANONYMOUS", Operation.WRITE, ResourceType.TOPIC, "plain")
        assert asked in producing.authorizer.asked

    @pytest.mark.parametrize(
        ("resource_type", "code"),
        [(ResourceType.TOPIC, TOPIC_DENIED), (ResourceType.GROUP, GROUP_DENIED)],
    )
    async def test_who_may_not_read_does_not_commit(self, committing, resource_type, code):
        committing.authorizer = Denying(Operation.READ, resource_type)
        assert await commit(committing) == code
        assert test_offset_commit_single.groups(committing).get("g", ({},))[0] == {}


@pytest.mark.usefixtures("way")
class TestLeaders:
    async def test_only_the_leader_appends(self, producing, monkeypatch):
        def leads_not(topic, index):
            raise NotLeaderOrFollower(f"{topic}-{index}")

        monkeypatch.setattr(producing.partitions, "leader", leads_not)
        assert await produce(producing) == NOT_LEADER


class TestWaiting:
    """Another broker has to be asked first: the way that cannot wait leaves it to the one that can."""

    async def test_an_append_waits_for_it(self, way, producing, monkeypatch):
        answers = later(monkeypatch, "admit_produce")
        assert await produce(producing) == NONE
        assert producing.partitions.get("plain", 0).log_end_offset == 1
        assert len(answers) == (2 if way == "in place" else 1)

    @pytest.mark.usefixtures("way")
    async def test_a_refusal_that_comes_late_is_one(self, producing, committing, monkeypatch):
        denied = TopicAuthorizationFailed()
        later(monkeypatch, "admit_produce", denied)
        assert await produce(producing) == TOPIC_DENIED
        assert producing.partitions.get("plain", 0).log_end_offset == 0
        later(monkeypatch, "admit_commit", denied)
        assert await commit(committing) == TOPIC_DENIED

    @pytest.mark.usefixtures("way")
    async def test_a_commit_waits_for_it(self, committing, monkeypatch):
        later(monkeypatch, "admit_commit")
        assert await commit(committing) == NONE
        (offset,) = test_offset_commit_single.groups(committing)["g"][0].values()
        assert offset.offset == 7
