"""What tools do with groups: offsets committed, fetched, deleted, expired; groups listed and deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracle.groups.conversation import NEWEST, TOOL, Script, subscription

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.oracle.scenario import Case

LONGEST_NOTE = 4096
"""`offset.metadata.max.bytes`, which is Kafka's default."""
WITH_RETENTION = (2, 3, 4)


def committed(version: int) -> Case:
    """OffsetCommit: everything a client may say, and what it may not."""
    s = Script(f"committed v{version}", version)
    s.oldest = 0
    alone: dict[str, Any] = {"generation": -1, "member_id": ""}
    s.commit(
        TOOL,
        (
            ("committed-a", 0, 0),
            ("committed-a", 1, 2**62, "ü" * 10, 5),
            ("committed-a", 2, -1, None, -1),
            ("committed-b", 0, -5, ""),
        ),
        note="good",
        **alone,
    )
    s.fetch(None, version=8, note="all")
    s.commit(TOOL, (("committed-a", 0, 9, "new", 7), ("committed-a", 3, 1)), note="half", **alone)
    s.commit(TOOL, (("committed-a", -1, 1), ("no-such", 0, 1), ("bad name!", 0, 1)), **alone)
    s.commit(TOOL, (("", 0, 1), ("__consumer_offsets", 0, 4)), note="no topic, its own", **alone)
    for length in (LONGEST_NOTE, LONGEST_NOTE + 1):
        s.commit(TOOL, (("committed-a", 0, 1, "x" * length),), note=f"{length} bytes", **alone)
    s.commit(TOOL, (("committed-a", 1, 1, "ü" * LONGEST_NOTE),), note="two bytes each", **alone)
    s.commit(TOOL, (("committed-a", 0, 3), ("committed-a", 0, 4)), note="twice", **alone)
    s.commit(TOOL, (), note="nothing", **alone)
    s.commit(TOOL, generation=0, member_id="", note="generation 0")
    s.commit(TOOL, generation=5, member_id="nobody", note="somebody")
    s.commit(TOOL, generation=-1, member_id="nobody", note="an id alone")
    s.commit(TOOL, note="a name alone", group_instance_id="first", **alone)
    if version:
        s.commit(TOOL, group_id="", note="no group", **alone)
        elsewhere = f"{s.group}-2"
        s.commit(TOOL, generation=3, member_id="x", group_id=elsewhere, note="never seen")
    s.fetch(None, version=8, note="all")
    s.describe()
    s.list()
    return s.case()


def fetched(version: int) -> Case:
    """OffsetFetch: named, all, none, twice, of no group, of many."""
    s = Script(f"fetched v{version}", version)
    s.oldest = 0
    alone: dict[str, Any] = {"generation": -1, "member_id": "", "version": 9}
    some = (("committed-a", 0, 11, "note", 4), ("committed-a", 2, 13, ""), ("committed-b", 0, 1))
    s.fetch({"committed-a": [0]}, note="before")
    s.commit(TOOL, some, **alone)
    s.fetch({"committed-a": [0, 1, 2, 3, -1], "committed-b": [0], "no-such": [0], "": [0]})
    s.fetch({"committed-a": []})
    s.fetch({"committed-a": [0, 0]}, note="twice")
    s.fetch({})
    s.fetch({"committed-a": [0]}, group_id="never-seen", groups=[("never-seen", None)])
    s.fetch({"committed-a": [0]}, group_id="", groups=[("", {"committed-a": [0]})])
    if version >= 2:
        s.fetch(None)
        s.fetch(None, group_id="never-seen", groups=[("never-seen", None)])
    if version >= 7:
        s.fetch({"committed-a": [0, 1]}, require_stable=True)
    if version >= 8:
        own = s.group
        s.fetch(
            {}, groups=[(own, None), ("never-seen", {"committed-b": [0]}), (own, {"no-such": [1]})]
        )
        s.fetch({}, groups=[(own, {}), ("", None), (own, {"committed-a": [2]})])
    s.enter("A", version=version)
    s.fetch({"committed-a": [0]}, note="while members gather")
    return s.case()


def nothing_asked() -> Case:
    """OffsetFetch of no group at all."""
    s = Script("nothing asked", 9)
    s.fetch({}, groups=[])
    s.impatient()
    return s.case()


def described(version: int) -> Case:
    """DescribeGroups and ListGroups of every state, and of what is not there."""
    s = Script(f"described v{version}", version)
    join = min(9, 2 * version)
    s.describe("never-seen", "", s.group)
    s.commit(TOOL, generation=-1, member_id="", version=6)
    s.describe()
    s.enter("A", version=join)
    s.describe(s.group, s.group, allowed=True)
    s.sync("A", {"A": b"part"}, version=3)
    for states in ((), ("Stable",), ("stable", "EMPTY"), ("Asleep",), ("",), ("Empty", "Dead")):
        for types in ((), ("classic",), ("CLASSIC", "consumer"), ("consumer",), ("share",), ("",)):
            if (version >= 4 or not states) and (version >= 5 or not types):
                s.list(states, types)
    s.leave("A", version=2)
    s.list(("Empty",))
    s.list(("Stable",))
    return s.case()


def deleted(version: int) -> Case:
    """DeleteGroups: empty, with members, twice, never seen, with offsets and without."""
    s = Script(f"deleted v{version}", version)
    s.delete("never-seen", "", "never-seen")
    s.commit(TOOL, generation=-1, member_id="", version=6)
    s.delete(s.group, s.group, "never-seen")
    s.fetch({"committed-a": [0]}, version=7)
    s.describe(version=5)
    s.hold()
    s.enter("A", version=5)
    s.delete()
    s.sync("A", {"A": b"x"}, version=3)
    s.delete(s.group, "never-seen")
    s.beat("A", version=3)
    s.leave("A", version=2)
    s.list(version=4)
    s.delete()
    s.list(version=4)
    s.commit("A", version=7, note="after it")
    s.hold()
    s.enter("A", version=5, note="anew")
    s.delete()
    return s.case()


def forgotten() -> Iterator[Case]:
    """OffsetDelete of every kind of group."""
    every = {"committed-a": [0, 1], "committed-b": [0, 9], "no-such": [0]}
    alone: dict[str, Any] = {"generation": -1, "member_id": "", "version": 6}
    s = Script("forgotten", 5)
    s.forget(every)
    s.forget(every, group_id="")
    offsets = (("committed-a", 0, 1), ("committed-a", 1, 2), ("committed-b", 0, 3))
    s.commit(TOOL, offsets, **alone)
    s.forget({"committed-a": [0, 0, 2, -1]})
    s.forget({})
    s.forget({"committed-b": []})
    s.fetch(None, version=7)
    reads = (("range", subscription("committed-a", "no-such")),)
    s.enter("A", reads)
    s.forget(every)
    s.sync("A", {"A": b""})
    s.commit("A", offsets)
    s.forget(every)
    s.fetch(None, version=7)
    s.leave("A")
    s.forget(every)
    s.fetch(None, version=7)
    s.describe()
    yield s.case()
    for title, said in (
        ("nothing", b""),
        ("gibberish", b"\xff\xff\xff"),
        ("v9", b"\0\x09\0\0\0\0"),
    ):
        s = Script(f"forgotten of those who say {title}", 5)
        s.hold()
        s.enter("A", (("range", said),))
        s.sync("A", {"A": b""})
        s.commit("A", offsets)
        s.forget(every)
        s.fetch(None, version=7)
        s.leave("A")
        s.forget(every)
        yield s.case()


def expired(version: int) -> Case:
    """A commit with a retention time goes when that is over, and the group with its last one."""
    s = Script(f"expired v{version}", version)
    alone: dict[str, Any] = {"generation": -1, "member_id": ""}
    s.commit(TOOL, (("committed-b", 0, 4),), note="for good", **alone)
    s.commit(TOOL, (("committed-a", 0, 3),), retention_time_ms=1, **alone)

    def is_gone(answer: Any) -> bool:
        return bool(answer["topics"][0]["partitions"][0]["committed_offset"] == -1)

    def is_dead(answer: Any) -> bool:
        return bool(answer["groups"][0]["group_state"] == "Dead")

    def is_not_listed(answer: Any) -> bool:
        return all(one["group_id"] != s.group for one in answer["groups"])

    s.fetch({"committed-a": [0]}, version=5, until=is_gone, note="until it is gone")
    s.fetch({"committed-a": [0], "committed-b": [0]}, version=5)
    s.describe()
    s.commit(TOOL, (("committed-b", 0, 5),), retention_time_ms=1, **alone)
    fields = {"groups": [s.group], "include_authorized_operations": False}
    s.say(TOOL, "DescribeGroups", fields, version=5, until=is_dead, note="until nothing is left")
    s.list(until=is_not_listed)  # Kafka says so a moment before the group has gone
    s.delete()
    return s.case()


def offset_cases() -> Iterator[Case]:
    """All of the above."""
    for version in range(NEWEST["OffsetCommit"] + 1):
        yield committed(version)
    for version in range(NEWEST["OffsetFetch"] + 1):
        yield fetched(version)
    yield nothing_asked()
    for version in range(NEWEST["DescribeGroups"] + 1):
        yield described(version)
    for version in range(NEWEST["DeleteGroups"] + 1):
        yield deleted(version)
    yield from forgotten()
    for version in WITH_RETENTION:
        yield expired(version)
