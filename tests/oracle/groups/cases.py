"""Conversations of members with a coordinator: joining, assigning, staying alive, leaving, coming back.

Each is played with every version of JoinGroup, and with the version of every other API that goes with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.groups.conversation import NEWEST, TOOL, Script, subscription

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.oracle.scenario import Case

VERSIONS = range(NEWEST["JoinGroup"] + 1)
STATIC = range(5, NEWEST["JoinGroup"] + 1)
MOST_MEMBERS = 4
"""`group.max.size` of both brokers."""
SHORT_MS = 15_000
"""A session that is to end: longer than a process may stand still where it must not have ended yet."""
RANGE = (("range", b"one"),)
BOTH = (("range", b"one"), ("sticky", b"two"))
TURNED = (("sticky", b"2"), ("range", b"1"))


def one_member(version: int) -> Case:
    """A whole life, alone."""
    s = Script(f"one member v{version}", version)
    s.describe()
    s.hold()
    s.enter("A")
    s.describe()
    s.beat("A")
    s.commit("A", note="while it is to assign")
    s.sync("A", {"A": b"all of it"})
    s.sync("A", {"A": b"something else"}, note="again")
    s.describe(allowed=True)
    s.list()
    s.beat("A")
    s.commit("A", (("committed-a", 0, 5), ("committed-b", 0, 6, None, 3), ("no-such", 0, 1)))
    s.fetch({"committed-a": [0, 1, 7], "committed-b": [0], "no-such": [0]})
    s.delete()
    s.join("A", note="again, the same")
    s.describe()
    s.sync("A", {"A": b"all of it, again"})
    s.leave("A")
    s.describe()
    s.list()
    s.beat("A")
    s.sync("A", {})
    s.commit("A")
    s.commit(TOOL, generation=-1, note="by nobody")
    s.leave("A", note="again")
    s.delete()
    s.describe()
    s.fetch({"committed-a": [0]})
    s.delete()
    return s.case()


def two_members(version: int) -> Case:
    """A rebalance, step by step, and whoever is late, early or wrong."""
    s = Script(f"two members v{version}", version)
    s.hold()
    s.enter("A")
    s.sync("A", {"A": b"all"})
    s.enter("B", mode="send")
    s.wait("PreparingRebalance", 2)
    s.describe()
    s.list()
    s.beat("A")
    s.sync("A", {"A": b"x"}, note="while members gather")
    s.commit("A", note="while members gather")
    s.delete()
    s.beat("A", generation=7)
    s.join("A")
    s.hear("B")
    s.describe()
    s.list()
    s.beat("A")
    s.beat("B")
    s.commit("B", note="before the assignment")
    s.sync("B", mode="send")
    s.sync("A", {"A": b"a part", "B": b"b part", "nobody": b"lost"})
    s.hear("B")
    s.sync("B", note="again")
    s.describe()
    for who in ("A", "B"):
        s.beat(who)
        s.beat(who, generation=0)
        s.beat(who, generation=-1)
        s.beat(who, member_id="nobody")
        s.beat(who, member_id="")
        s.sync(who, generation=0, note="wrong generation")
        s.sync(who, member_id="nobody", note="nobody")
        s.commit(who, generation=0, note="wrong generation")
        s.commit(who, generation=-1, note="no generation")
        s.commit(who, member_id="nobody", note="nobody")
        s.commit(who, member_id="", note="without an id")
        s.join(who, member_id="nobody", note="nobody")
        s.leave(who, member_id="nobody", note="nobody")
    s.join("B", note="again, the same: no news")
    s.beat("A")
    s.commit(TOOL, generation=-1, note="by nobody")
    s.leave("B")
    s.beat("A")
    s.describe()
    s.join("A", note="alone again")
    s.sync("A", {}, note="nothing for anybody")
    s.describe()
    s.leave("A")
    s.describe()
    return s.case()


def three_members(version: int) -> Case:
    """Several protocols, a vote, news of a member, and a leader that goes away."""
    s = Script(f"three members v{version}", version)
    s.hold()
    s.enter("A", BOTH)
    s.sync("A", {"A": b"all"})
    s.enter("B", TURNED, mode="send")
    s.wait("PreparingRebalance", 2)
    s.enter("C", (("sticky", b"s"), ("range", b"r"), ("other", b"o")), mode="send")
    s.wait("PreparingRebalance", 3)
    s.join("A", BOTH)
    s.hear("B", "C")
    said = {"protocol_name": "sticky"}
    s.sync("C", mode="send", **said)
    s.sync("B", mode="send", **said)
    s.sync("A", {"A": b"a", "C": b"c"}, note="nothing for B", **said)
    s.hear("C", "B")
    s.describe()
    for offered in ((("other", b"o"),), (), (("", b""),)):
        s.enter("D", offered, note=f"with {offered}")
    s.enter("D", RANGE, protocol_type="connect", note="of another type")
    s.enter("D", RANGE, protocol_type="", note="of no type")
    s.describe()
    s.join("B", (*TURNED, ("new", b"n")), mode="send", note="with news")
    s.wait("PreparingRebalance", 3)
    s.beat("C")
    s.join("C", (("range", b"r"), ("sticky", b"s")), mode="send")
    s.join("A", BOTH)
    s.hear("B", "C")
    s.sync("B", mode="send", note="who does not lead")
    s.sync("C", {"C": b"usurped"}, mode="send", note="who does not lead")
    s.sync("A", {"A": b"a2", "B": b"b2", "C": b"c2"})
    s.hear("B", "C")
    s.describe()
    s.join("A", BOTH, mode="send", note="the leader, without news")
    s.wait("PreparingRebalance", 3)
    s.beat("B")
    s.leave("C")
    s.leave("A", via=TOOL)
    s.hear("A")
    s.join("B", TURNED)
    s.sync("B", {"B": b"b3"}, **said)
    s.describe()
    return s.case()


def connectors(version: int) -> Case:
    """Another type of group: what members say is theirs, and offsets may go with it or not."""
    s = Script(f"connectors v{version}", version)
    s.hold()
    mine = {"protocol_type": "connect"}
    offered = (("sessioned", b"\x00\x01\xff"), ("default", b""))
    s.enter("A", offered, **mine)
    s.sync("A", {"A": b"\x00" * 100}, protocol_name="sessioned", **mine)
    s.describe()
    s.list()
    s.forget({"committed-a": [0]})
    s.commit("A")
    s.delete()
    s.leave("A")
    s.list()
    s.forget({"committed-a": [0]})
    s.enter("B", RANGE, note="of another type, when nobody is left")
    s.describe()
    return s.case()


def protocols_told(version: int) -> Case:
    """SyncGroup v5 names the protocol, which has to be the group's."""
    s = Script(f"protocols told v{version}", version)
    s.hold()
    s.enter("A")
    for kind in ("consumer", "connect", "", None):
        for name in ("range", "sticky", "", None):
            if (kind, name) != ("consumer", "range"):
                s.sync("A", {"A": b"x"}, protocol_type=kind, protocol_name=name, version=5)
    s.sync("A", {"A": b"x"})
    s.sync("A", {"A": b"x"}, protocol_type="connect", protocol_name="range", version=5)
    return s.case()


def cooperative(version: int) -> Case:
    """Incremental rebalancing: twice, with what is owned in what they say of themselves."""
    s = Script(f"cooperative v{version}", version)
    s.hold()
    kind = "cooperative-sticky"
    said = {"protocol_name": kind}
    s.enter("A", ((kind, subscription("committed-a", owned=b"")),))
    s.sync("A", {"A": b"0,1,2"}, **said)
    s.enter("B", ((kind, subscription("committed-a", owned=b"")),), mode="send")
    s.wait("PreparingRebalance", 2)
    s.beat("A")
    s.join("A", ((kind, subscription("committed-a", owned=b"0,1,2")),))
    s.hear("B")
    s.sync("B", mode="send", **said)
    s.sync("A", {"A": b"0,1", "B": b""}, **said)
    s.hear("B")
    s.join(
        "A",
        ((kind, subscription("committed-a", owned=b"0,1")),),
        mode="send",
        note="to hand over what it gave up",
    )
    s.wait("PreparingRebalance", 2)
    s.beat("B")
    s.join("B", ((kind, subscription("committed-a", owned=b"")),))
    s.hear("A")
    s.sync("B", mode="send", **said)
    s.sync("A", {"A": b"0,1", "B": b"2"}, **said)
    s.hear("B")
    s.describe()
    return s.case()


def static_members(version: int) -> Case:
    """KIP-345: who comes back under its name takes its old place, and the old one is fenced."""
    s = Script(f"static members v{version}", version)
    s.hold()
    one, two = ({"group_instance_id": name} for name in ("first", "second"))
    s.enter("A", **one)
    s.sync("A", {"A": b"all"}, **one)
    s.enter("B", mode="send", **two)
    s.wait("PreparingRebalance", 2)
    s.join("A", **one)
    s.hear("B")
    s.sync("B", mode="send", **two)
    s.sync("A", {"A": b"a", "B": b"b"}, **one)
    s.hear("B")
    s.describe()
    s.beat("B", **two)
    s.beat("B", **one)
    s.beat("B", group_instance_id="third")
    s.beat("B")
    s.commit("B", note="under its name", **two)
    s.commit("B", note="under another's", **one)
    s.commit("B", note="under nobody's", group_instance_id="third")
    s.join("b", note="B is back", member_id="", **two)
    s.describe()
    for who in ("b", "B"):
        s.beat(who, generation=2, **two)
        s.sync(who, generation=2, note="after it is back", **two)
        s.commit(who, generation=2, note="after it is back", **two)
    s.join("B", note="who was replaced", **two)
    s.join("a", note="A, which leads, is back", member_id="", **one)
    s.beat("b", generation=2, **two)
    s.describe()
    s.leave("A", ("A", "first"), version=max(3, min(version, 5)), note="who was replaced")
    s.leave("A", ("", "third"), version=4, note="nobody")
    s.join("b", BOTH, note="with another protocol too", mode="send", **two)
    s.wait("PreparingRebalance", 2)
    s.join("a", **one)
    s.hear("b")
    s.sync("b", mode="send", **two)
    s.sync("a", {"a": b"a3", "b": b"b3"}, **one)
    s.hear("b")
    s.leave(TOOL, ("", "first"), ("b", "second"), version=3, note="an operator removes both")
    s.describe()
    s.list()
    return s.case()


def static_and_waiting(version: int) -> Case:
    """Static members that come back, or change their protocols, while a rebalance is under way."""
    s = Script(f"static and waiting v{version}", version)
    s.hold()
    one, two = ({"group_instance_id": name} for name in ("first", "second"))
    s.enter("A", **one)
    s.sync("A", {"A": b"all"}, **one)
    s.enter("B", mode="send", **two)
    s.wait("PreparingRebalance", 2)
    s.join("b", mode="send", note="B is back before it was answered", member_id="", **two)
    s.hear("B")
    s.join("A", **one)
    s.hear("b")
    s.beat("b", **two)
    s.sync("b", mode="send", **two)
    s.join("c", mode="send", note="back before the assignment", member_id="", **two)
    s.hear("b")
    s.wait("PreparingRebalance", 2)
    s.join("A", **one)
    s.hear("c")
    s.sync("c", mode="send", **two)
    s.sync("A", {"A": b"a", "c": b"c"}, **one)
    s.hear("c")
    s.describe()
    s.join("d", (("sticky", b"s"), ("range", b"r")), member_id="", note="both known", **two)
    s.describe()
    s.enter("E", (("sticky", b"s"),), note="whom nobody understands")
    return s.case()


def leaving(version: int) -> Case:
    """LeaveGroup v3 and later: several at once, by id, by name, by both, by neither."""
    s = Script(f"leaving v{version}", version)
    last = {"version": max(3, min(version, 5))}
    s.leave(TOOL, ("nobody", None), note="a group that is not there", **last)
    s.leave(TOOL, member_id="nobody", version=min(version, 2), note="not there, before v3")
    s.leave(TOOL, ("nobody", None), group_id="", note="no group", **last)
    s.hold()
    s.enter("A", group_instance_id="first")
    s.leave(TOOL, ("A", None), ("A", None), ("nobody", "nowhere"), ("", None), ("", ""), **last)
    s.describe()
    s.enter("A", group_instance_id="first")
    s.leave(TOOL, ("", "first"), ("", "first"), ("A", "first"), **last)
    if version >= 4:
        s.join("P", note="is given an id, and nothing more")
        s.describe()
        s.list()
        s.beat("P", generation=0)
        s.leave(TOOL, ("P", None), ("P", None), **last)
        s.join("P", note="is given another", member_id="")
        s.leave("P", version=2)
        s.join("P", note="with the id it gave back")
    s.describe()
    return s.case()


def pending(version: int) -> Case:
    """Who was given an id has until its session is over; only who founds a group does not wait for it."""
    s = Script(f"pending v{version}", version, slow=True)
    s.hold()
    s.join("P")
    s.enter("A", note="at once")
    s.join("P", mode="send", note="later")
    s.wait("PreparingRebalance", 2)
    s.join("A")
    s.hear("P")
    s.leave("P")
    s.join("Q", session_timeout_ms=SHORT_MS)
    s.join("A", note="waits for Q or its end")
    s.join("Q", note="comes too late")
    s.join("Q", member_id="made up", note="with an id nobody gave")
    return s.case()


def bad_joins(version: int) -> Case:
    """Joins that are refused, and groups that are full."""
    s = Script(f"bad joins v{version}", version)
    for session_ms in (0, -1, 1, 2**31 - 1):
        s.join("A", session_timeout_ms=session_ms, note=f"session {session_ms}")
    s.join("A", group_id="", note="no group")
    s.join("A", member_id="made up", note="an id nobody gave")
    s.describe()
    s.list()
    s.beat("A", generation=1)
    s.sync("A", generation=1)
    s.sync("A", generation=1, group_id="", note="no group")
    s.beat("A", generation=1, group_id="")
    s.leave("A", group_id="", note="no group", version=min(version, 2))
    s.hold()
    s.join("A", protocol_type="", note="no type")
    s.join("A", (), note="no protocols")
    s.join("A", member_id="made up", note="an id nobody gave")
    s.beat("A", generation=0)
    s.describe()
    s.list()
    members = [f"M{index}" for index in range(MOST_MEMBERS)]
    s.enter(members[0])
    s.sync(members[0], {})
    for index, who in enumerate(members[1:], 2):
        s.enter(who, mode="send")
        s.wait("PreparingRebalance", index)
    s.join(members[0])
    s.hear(*members[1:])
    s.sync(members[0], {})
    s.enter("N", note="one too many")
    s.describe()
    return s.case()


def odd_joins() -> Iterator[Case]:
    """What Kafka never answers."""
    s = Script("a protocol twice", 9)
    s.hold()
    s.enter("A", (("range", b""), ("range", b"twice")))
    s.impatient()
    yield s.case()
    s = Script("a subscription that promises more than it holds", 9)
    s.hold()
    s.enter("A", (("range", b"owns nothing"),))
    s.impatient()
    yield s.case()
    s = Script("with an empty name", 9)
    s.hold()
    s.enter("A", group_instance_id="")
    s.sync("A", {"A": b"a"}, group_instance_id="")
    s.join("a", member_id="", group_instance_id="", note="back")
    s.beat("A", group_instance_id="")
    yield s.case()
    s = Script("no time to rebalance", 9)
    s.hold()
    s.enter("A", rebalance_timeout_ms=-5)
    s.wait("Empty", 0)
    yield s.case()


def silence(version: int) -> Case:
    """Members that say nothing any more, in every state of the group."""
    s = Script(f"silence v{version}", version, slow=True)
    s.hold()
    short = {"session_timeout_ms": SHORT_MS, "rebalance_timeout_ms": SHORT_MS}
    s.enter("A", **short)
    s.sync("A", {"A": b"all"})
    s.wait("Empty", 0)
    s.beat("A")
    s.commit("A")
    s.join("A", note="with the id it had")
    s.list()
    s.enter("B", note="who does not assign", **short)
    s.wait("Empty", 0)
    s.sync("B", {"B": b"too late"})
    return s.case()


def late(version: int) -> Case:
    """Who does not join again in time is left behind; with v0 the session is the time."""
    s = Script(f"late v{version}", version, slow=True)
    s.hold()
    short = {"session_timeout_ms": 2 * SHORT_MS, "rebalance_timeout_ms": SHORT_MS}
    s.enter("A", **short)
    s.sync("A", {"A": b"all"})
    s.enter("B", note="waits until A is late", **short)
    s.beat("A")
    s.sync("B", {"B": b"all"})
    s.describe()
    s.leave("B")
    return s.case()


def cut_off(version: int) -> Case:
    """A connection that breaks is no member that leaves; who joins twice is answered once."""
    s = Script(f"cut off v{version}", version)
    s.hold()
    s.enter("A")
    s.sync("A", {"A": b"all"})
    s.gone("A")
    s.beat("A")
    s.enter("B", mode="send")
    s.wait("PreparingRebalance", 2)
    s.join("A")
    s.hear("B")
    s.join("B", note="again, while it is to be assigned")
    s.sync("B", mode="send")
    s.sync("A", {"A": b"a", "B": b"b"})
    s.hear("B")
    return s.case()


def member_cases() -> Iterator[Case]:
    """All of the above."""
    for version in VERSIONS:
        for make in (
            one_member,
            two_members,
            three_members,
            connectors,
            cooperative,
            leaving,
            bad_joins,
            cut_off,
        ):
            yield make(version)
    for version in STATIC:
        yield static_members(version)
        yield static_and_waiting(version)
    yield from odd_joins()
    for version in (5, 7, 9):
        yield protocols_told(version)
    for version in (0, 1, 4, 9):
        yield silence(version)
        yield late(version)
    for version in (4, 9):
        yield pending(version)
