"""Random messages of any declared class and version, for tests that ask an independent codec.

Strings, arrays and records are long enough at times to need two bytes for a varint length; ints
visit their limits. `tame` keeps to what kio can express: error codes it has a name for, and
durations that fit a timedelta.
"""

from __future__ import annotations

import uuid

from hypothesis import strategies as st

from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.message import api_of, known_apis
from tidelog.protocol.schema import Field, Message, struct_of

OWN_TAGS = 10_000  # tags from here on are tidelog's: no oracle knows them

_BITS = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}


def all_codecs() -> list[tuple[type[Message], int]]:
    """Every request and response in every version declared."""
    return [
        (cls, version)
        for entry in known_apis()
        for api in [api_of(entry.key)]
        for cls in (api.request, api.response)
        for version in range(api.min_version, api.max_version + 1)
    ]


def codec_name(case: object) -> str | None:
    """A readable test id."""
    return (
        case.__name__ if isinstance(case, type) else f"v{case}" if isinstance(case, int) else None
    )


_text = st.one_of(
    st.text(max_size=6),
    st.integers(125, 130).map(lambda length: "x" * length),
    st.just("tøpic-\U0001f30a"),
)
_records = st.one_of(st.binary(max_size=6), st.integers(120, 300).map(bytes))


def _scalar(field: Field, *, tame: bool) -> st.SearchStrategy:
    if tame and field.name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode if -1 <= code <= 120])
    if tame and field.name == "transaction_start_time_ms":
        return st.integers(0, 2**31 - 1)  # kio makes a date of it, and knows none before 1970
    if tame and field.name.endswith("_ms"):
        return st.integers(-1, 2**31 - 1)
    if field.kind in _BITS:
        bits = _BITS[field.kind]
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        return st.one_of(st.integers(low, high), st.sampled_from([low, -1, 0, 1, high]))
    return {
        "Bool": st.booleans(),
        "Uint16": st.integers(0, 65535),
        "Float64": st.floats(allow_nan=False),
        "Uuid": st.one_of(st.just(uuid.UUID(int=0)), st.uuids()),
        "String": _text,
        "Bytes": _records,
        "Records": _records,
        "RecordParts": _records,
    }[field.kind]


def _value(
    owner: type[Message], field: Field, version: int, *, tame: bool, own: bool
) -> st.SearchStrategy:
    if field.is_struct:
        one = messages(struct_of(owner, field), version, tame=tame, own=own)
    else:
        one = _scalar(field, tame=tame)
    if field.is_array:
        many = st.lists(one, max_size=3)
        if field.kind in _BITS:
            many = st.one_of(many, st.integers(126, 129).map(lambda count: [7] * count))
        one = many
    elif field.is_struct and field.tag is not None:
        # A tagged struct at its defaults is left out by everybody; ours spells that None.
        default = struct_of(owner, field)()
        return st.one_of(st.none(), one.filter(lambda value: value != default))
    if field.is_nullable_in(version):
        one = st.one_of(st.none(), one)
    return one


def is_own(field: Field) -> bool:
    """Whether Apache Kafka has no such field."""
    return (field.tag or 0) >= OWN_TAGS


def messages(
    cls: type[Message], version: int, *, tame: bool = False, own: bool = False
) -> st.SearchStrategy:
    """Messages of `cls` that `version` can carry: fields it lacks are at their defaults.

    So are those that only tidelog knows, but for `own`.
    """
    return st.builds(
        cls,
        **{
            field.name: _value(cls, field, version, tame=tame, own=own)
            for field in cls.declared_fields
            if field.exists_in(version) and (own or not is_own(field))
        },
    )
