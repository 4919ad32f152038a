"""How a message is declared: one class per struct, for all versions of the protocol.

    class PartitionProduceResponse(Message):
        index: Int32 = since(0)
        log_append_time_ms: Int64 = since(2, default=-1, ignorable=True)
        error_message: String | None = since(8, default=None, ignorable=True)

The annotation is the type on the wire (and, to a type checker, the Python type): `Int32`, `String`,
`list[...]` of anything, another Message. `| None` means that it may be null. `since` gives the
versions that have the field. The order of the lines is the order on the wire. Classes have slots
and a keyword-only constructor in which every field has a default.

A declaration costs almost nothing: constructors and codecs are generated when they are first used.
"""

from __future__ import annotations

import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias, dataclass_transform
from uuid import UUID

from tidelog.protocol.wire import ZERO_UUID, Buffer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.protocol.acl import Need

Bool: TypeAlias = bool
Int8: TypeAlias = int
Int16: TypeAlias = int
Uint16: TypeAlias = int
Int32: TypeAlias = int
Int64: TypeAlias = int
Float64: TypeAlias = float
Uuid: TypeAlias = UUID
String: TypeAlias = str
Bytes: TypeAlias = bytes
Records: TypeAlias = Buffer
"""The type of record batches that are decoded to a memoryview over the frame, and never copied."""
RecordParts: TypeAlias = Buffer | list[Buffer]
"""Record batches in one buffer, or in several that follow each other; decoded as `Records`."""

FIXED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Bool": "?",
        "Int8": "b",
        "Int16": "h",
        "Uint16": "H",
        "Int32": "i",
        "Int64": "q",
        "Float64": "d",
        "Uuid": "16s",
    }
)
"""Maps each type of fixed width to its letter in a struct format."""
_IMPLIED_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {"Bool": False, "Float64": 0.0, "Uuid": ZERO_UUID, "String": "", "Bytes": b""}
    | dict.fromkeys(("Int8", "Int16", "Uint16", "Int32", "Int64"), 0)
    | dict.fromkeys(("Records", "RecordParts"))
)


class _Missing:
    """The default of an argument that was not given."""

    def __repr__(self) -> str:
        return "..."


MISSING: Final = _Missing()


class _Since(NamedTuple):
    """The arguments of `since`, until the class is complete."""

    version: int
    until: int | None
    nullable: int | None
    default: Any
    tag: int | None
    ignorable: bool


def since(
    version: int,
    *,
    until: int | None = None,
    nullable: int | None = None,
    default: Any = MISSING,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declares the versions of a field: from `version` on, to `until` (included) if given.

    `nullable` is the first version in which it may be null, if that is later than the field itself.
    `default` is the value in versions that lack the field; without it the value is 0, False, "",
    b"", an empty list, the zero UUID, or None for records. A field with a `tag` is written into the
    tag section, and only if it differs from its default; a tagged struct is None if it is absent.
    An `ignorable` field is dropped silently if the written version lacks it; any other field must
    then have its default.
    """
    return _Since(version, until, nullable, default, tag, ignorable)


class Field(NamedTuple):
    """One declared field. `kind` is the wire type or the struct; a version of None means never."""

    name: str
    kind: str
    is_array: bool
    first: int
    last: int | None
    nullable_first: int | None
    default: Any
    tag: int | None
    ignorable: bool

    def exists_in(self, version: int) -> bool:
        """Whether the version has the field."""
        return self.first <= version and (self.last is None or version <= self.last)

    def is_nullable_in(self, version: int) -> bool:
        """Whether the version may carry null."""
        return self.nullable_first is not None and self.nullable_first <= version

    @property
    def is_struct(self) -> bool:
        """Whether the kind is another Message."""
        return self.kind not in _IMPLIED_DEFAULTS


def _field(name: str, annotation: str, since: _Since) -> Field:
    """Combines an annotation with its `since`. Raises TypeError for an invalid combination."""
    kind = annotation.removesuffix(" | None")
    may_be_none = kind != annotation
    is_array = kind.startswith("list[")
    if is_array:
        kind = kind[5:-1]
    if not kind.isidentifier():
        raise TypeError(f"{name}: {annotation!r} is not a type of the protocol")
    is_lone_struct = not is_array and kind not in _IMPLIED_DEFAULTS
    default = since.default
    if default is MISSING:
        default = None if is_array or is_lone_struct else _IMPLIED_DEFAULTS[kind]
    nullable_first: int | None = None
    if may_be_none and (since.tag is None or not is_lone_struct):
        nullable_first = since.version if since.nullable is None else since.nullable
    if is_lone_struct and since.tag is not None and not may_be_none:
        raise TypeError(f"{name}: a tagged struct may be None")
    if is_lone_struct and since.tag is None and may_be_none != (since.default is None):
        raise TypeError(f"{name}: a struct that may be None has that default, and no other has it")
    if is_array and since.default is None and not may_be_none:
        raise TypeError(f"{name}: the default None needs '| None'")
    return Field(
        name,
        kind,
        is_array,
        since.version,
        since.until,
        nullable_first,
        [] if is_array and since.default is MISSING else default,
        since.tag,
        since.ignorable,
    )


class _MessageType(type):
    """Turns the declared fields of a class into slots and `declared_fields`."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _MessageType:
        fields = tuple(
            _field(attribute, annotation, namespace.pop(attribute))
            for attribute, annotation in namespace.get("__annotations__", {}).items()
            if isinstance(namespace.get(attribute), _Since)
        )
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["declared_fields"] = fields
        return super().__new__(mcs, name, bases, namespace)


@dataclass_transform(kw_only_default=True)
class Message(metaclass=_MessageType):
    """A request, a response, or a struct within one. Compares by its fields."""

    declared_fields: ClassVar[tuple[Field, ...]]

    def __init__(self, **values: Any) -> None:
        """Sets the fields. A generated constructor replaces this one on the first call."""
        cls = type(self)
        cls.__init__ = _make_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            getattr(self, field.name) == getattr(other, field.name)
            for field in self.declared_fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{field.name}={getattr(self, field.name)!r}"
            for field in self.declared_fields
            if getattr(self, field.name) != field.default
        )
        return f"{type(self).__name__}({shown})"


MIB: Final = 1 << 20


class Api(NamedTuple):
    """The declaration of an API, for dispatch, ApiVersions, the documentation and the authorizer.

    The messages are declared for `min_version` to `max_version`. From `first_flexible` on, lengths
    are varints and structs end in a tag section (KIP-482); it is None if no version is flexible.
    `served` are the lowest and the highest version that the broker serves; it is None if only
    clients use the API. A request may have `request_bytes`, header included, and `request_elements` in
    all its arrays and tag sections together; a size of None leaves only socket.request.max.bytes.
    """

    key: int
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    first_flexible: int | None
    served: tuple[int, int] | None
    needs: tuple[Need, ...]
    request_bytes: int | None = MIB
    request_elements: int = 50_000

    @property
    def module(self) -> str:
        """The name of the files that declare it in protocol/api and serve it in broker/api."""
        return self.request.__module__.rpartition(".")[2]


def struct_of(owner: type[Message], field: Field) -> type[Message]:
    """Returns the class of a struct field: the Message of that name in its owner's module."""
    found = getattr(sys.modules[owner.__module__], field.kind, None)
    if not isinstance(found, _MessageType):
        raise TypeError(f"{owner.__name__}.{field.name}: no message {field.kind} in its module")
    return found  # type: ignore[return-value]


def default_source(owner: type[Message], field: Field, names: dict[str, Any]) -> str:
    """Returns the Python source of a field's default; binds the names that it needs in `names`."""
    if field.is_array:
        return "None" if field.default is None else "[]"
    if field.is_struct and field.tag is None and field.nullable_first is None:
        names[field.kind] = struct_of(owner, field)
        return f"{field.kind}()"
    if isinstance(field.default, UUID):
        names["ZERO_UUID"] = ZERO_UUID
        return "ZERO_UUID"
    return repr(field.default)


def _make_init(cls: type[Message]) -> Any:
    """Generates the constructor of a message class."""
    names: dict[str, Any] = {"MISSING": MISSING}
    parameters, lines = [], []
    for field in cls.declared_fields:
        default = default_source(cls, field, names)
        if default == "[]" or default.endswith("()"):  # each instance gets a new one
            parameters.append(f"{field.name}=MISSING")
            lines.append(
                f" self.{field.name} = {default} if {field.name} is MISSING else {field.name}"
            )
        else:
            parameters.append(f"{field.name}={default}")
            lines.append(f" self.{field.name} = {field.name}")
    head = ", ".join(["self", *(["*", *parameters] if parameters else [])])
    body = "\n".join(lines) or " pass"
    exec(f"def __init__({head}):\n{body}", names)  # noqa: S102 - source made of declarations only
    return names["__init__"]
