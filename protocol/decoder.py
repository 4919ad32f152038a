"""Generates the decoder of one message in one version.

The result is a single function `decode(buffer, position) -> (message, end)` with the code of every
nested struct and array inline, for example for a partition of Produce v9:

    o2 = new(PartitionProduceData)
    o2.index, n = unpack_from_iB(buffer, position)
    position += 5
    if n > 127: n, position = read_uvarint(buffer, position - 1)
    ...

Objects are made by `object.__new__` and filled slot by slot, which costs half of a constructor
call. The one-byte case of a varint is read inside a run, like any other byte. A count is compared
with the remaining bytes, and with a limit for the whole message, before a list is made.

`make_stepper` generates the same code as a generator, which stops after every few elements: a message
of a hundred thousand elements takes longer than others can wait.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tidelog.protocol.schema import FIXED, Field, Message, default_source, struct_of
from tidelog.protocol.source import FunctionSource
from tidelog.protocol.wire import (
    STRING_MAX,
    TAG_BYTES_MAX,
    TAGS_MAX,
    Buffer,
    DecodeError,
    TooMuch,
    bad_length,
    bad_tag,
    read_uuid,
    read_uvarint,
    skip_tags,
    too_long,
    too_long_tag,
    too_many_elements,
    too_many_tags,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_STEP = 64  # elements of an array that a decoder in steps reads at once; a power of two
_PREFIXES = {"String": ("h", 2), "Bytes": ("i", 4), "Records": ("i", 4), "RecordParts": ("i", 4)}


def make_decoder(
    cls: type[Message], version: int, *, flexible: bool, elements: int
) -> Callable[[Buffer, int], tuple[Any, int]]:
    """Returns a decoder of `cls` in `version`; it raises DecodeError and nothing else.

    A message with more than `elements` array elements in all is refused.
    """
    decode: Callable[[Buffer, int], tuple[Any, int]]
    decode = _Decoder(version, flexible=flexible, elements=elements).generate(cls)
    has_records = "view" in decode.__code__.co_varnames
    where = f"{cls.__name__} v{version}"

    def decode_safely(buffer: Buffer, position: int = 0) -> tuple[Any, int]:
        # Reading from bytes is 1.5 times as fast as from a memoryview. A body without
        # records is small, so it is copied; a body with records must not be copied.
        if not has_records and type(buffer) is not bytes:
            buffer = bytes(buffer)
        try:
            return decode(buffer, position)
        except _BAD as error:
            raise _as_decode_error(error, where, len(buffer)) from None

    return decode_safely


def make_stepper(
    cls: type[Message], version: int, *, flexible: bool, elements: int
) -> Callable[[Buffer, int], Generator[None, None, tuple[Any, int]]]:
    """Returns a decoder as `make_decoder` does, as a generator that yields every few elements."""
    decode = _Decoder(version, flexible=flexible, elements=elements, in_steps=True).generate(cls)
    has_records = "view" in decode.__code__.co_varnames
    where = f"{cls.__name__} v{version}"

    def decode_safely(buffer: Buffer, position: int = 0) -> Generator[None, None, tuple[Any, int]]:
        if not has_records and type(buffer) is not bytes:
            buffer = bytes(buffer)
        try:
            return (yield from decode(buffer, position))  # type: ignore[no-any-return]
        except _BAD as error:
            raise _as_decode_error(error, where, len(buffer)) from None

    return decode_safely


_BAD = (struct.error, IndexError, DecodeError, UnicodeDecodeError)


def _as_decode_error(error: Exception, where: str, size: int) -> DecodeError:
    """Returns what a generated decoder raised as an error that names the message."""
    if isinstance(error, DecodeError):
        return (TooMuch if isinstance(error, TooMuch) else DecodeError)(f"{where}: {error}")
    if isinstance(error, UnicodeDecodeError):
        return DecodeError(f"{where}: a string is not UTF-8: {error.reason}")
    return DecodeError(f"{where}: the {size} bytes end too early")


class _Decoder:
    """Generates the decoding function from a declaration."""

    def __init__(
        self, version: int, *, flexible: bool, elements: int, in_steps: bool = False
    ) -> None:
        self._version = version
        self._flexible = flexible
        self._elements_max = elements
        self._in_steps = in_steps
        self._source = FunctionSource(
            {
                "new": object.__new__,
                "read_uvarint": read_uvarint,
                "skip_tags": skip_tags,
                "read_uuid": read_uuid,
                "bad_length": bad_length,
                "bad_tag": bad_tag,
                "too_long": too_long,
                "too_long_tag": too_long_tag,
                "too_many_tags": too_many_tags,
                "too_many_elements": too_many_elements,
                "unpack_from": struct.unpack_from,
            }
        )
        self._letters = ""
        self._targets: list[str] = []
        self._after: list[str] = []
        self._level = 0

    def generate(self, cls: type[Message]) -> Any:
        """Returns the compiled function."""
        source = self._source
        with source.block("def decode(buffer, position):"):
            source.line("limit = len(buffer)")
            source.line(f"budget = {self._elements_max}")
            if self._holds_records(cls):
                source.line("view = memoryview(buffer)")
            if self._in_steps:
                source.line("if 0: yield")  # a generator, also where the message has no array
            self._struct(cls, "o")
            source.line("return o, position")
        return source.function("decode")

    def _holds_records(self, cls: type[Message]) -> bool:
        return any(
            field.kind in ("Records", "RecordParts")
            or (field.is_struct and self._holds_records(struct_of(cls, field)))
            for field in cls.declared_fields
            if field.exists_in(self._version)
        )

    # --- runs ---

    def _fixed(self, letter: str, target: str, after: str = "") -> None:
        """Adds a fixed-width item to the run; the line `after` is executed once it is read."""
        self._letters += letter
        self._targets.append(target)
        if after:
            self._after.append(after)

    def _end_run(self) -> None:
        """Writes the code that reads the run, if there is one."""
        if not self._letters:
            return
        source = self._source
        if self._letters == "B":
            source.line(f"{self._targets[0]} = buffer[position]")
            source.line("position += 1")
        else:
            unpack, size = source.struct(self._letters, "unpack_from")
            targets = ", ".join(self._targets) + ("," if len(self._targets) == 1 else "")
            source.line(f"{targets} = {unpack}(buffer, position)")
            source.line(f"position += {size}")
        for line in self._after:
            source.line(line)
        self._letters, self._targets, self._after = "", [], []

    # --- structs and their fields ---

    def _struct(self, cls: type[Message], target: str) -> None:
        """Reads a struct into the new local `target`."""
        source = self._source
        source.names[cls.__name__] = cls
        self._end_run()
        source.line(f"{target} = new({cls.__name__})")
        tagged = []
        for field in cls.declared_fields:
            exists = field.exists_in(self._version)
            if exists and field.tag is not None:
                tagged.append(field)
            if not exists or field.tag is not None:
                default = default_source(cls, field, source.names)
                source.line(f"{target}.{field.name} = {default}")
        for field in cls.declared_fields:
            if field.exists_in(self._version) and field.tag is None:
                self._field(cls, field, f"{target}.{field.name}")
        if self._flexible:
            self._tags(cls, tagged, target)
        self._end_run()

    def _field(self, owner: type[Message], field: Field, target: str) -> None:
        if field.is_array:
            self._array(owner, field, target)
        elif field.is_struct:
            self._nested_struct(owner, field, target)
        elif field.kind == "Uuid":
            # The slot holds the raw bytes until the run is read.
            self._fixed("16s", target, f"{target} = read_uuid({target})")
        elif field.kind in FIXED:
            self._fixed(FIXED[field.kind], target)
        else:
            self._variable(field, target)

    def _nested_struct(self, owner: type[Message], field: Field, target: str) -> None:
        """Reads a struct; a nullable struct is preceded by a byte, which is negative for null."""
        source = self._source
        nullable = field.is_nullable_in(self._version)
        self._level += 1
        inner = f"o{self._level}"
        if nullable:
            self._fixed("b", "n")
            self._end_run()
            source.line(f"if n < 0: {target} = None")
            source.line("else:")
            source.indent(1)
        self._struct(struct_of(owner, field), inner)
        source.line(f"{target} = {inner}")
        if nullable:
            source.indent(-1)
        self._level -= 1

    def _tags(self, cls: type[Message], tagged: list[Field], target: str) -> None:
        """Reads the tag section, which is nearly always one byte 0, the end of the last run."""
        source = self._source
        self._fixed("B", "n")
        self._end_run()
        if not tagged:
            with source.block("if n:"):
                source.line("position = skip_tags(buffer, position - 1, limit)")
                self._spend()
            return
        depth = self._level
        with source.block("if n:"):
            source.line("if n > 127: n, position = read_uvarint(buffer, position - 1)")
            source.line(f"if n > {TAGS_MAX}: raise too_many_tags(n)")
            self._spend()
            with source.block("for _ in range(n):"):
                self._uvarint("tag")
                self._uvarint(f"size{depth}")
                source.line(f"stop{depth} = position + size{depth}")
                source.line(
                    f"if stop{depth} > limit: "
                    f"raise bad_length('a tagged field', size{depth}, limit - position)"
                )
                for word, field in zip(["if", *["elif"] * len(tagged)], tagged, strict=False):
                    with source.block(f"{word} tag == {field.tag}:"):
                        self._field(cls, field, f"{target}.{field.name}")
                        self._end_run()
                        source.line(
                            f"if position != stop{depth}: "
                            f"raise bad_tag({field.name!r}, size{depth})"
                        )
                with source.block("else:"):
                    source.line(f"position = stop{depth}")
                    source.line(
                        f"if size{depth} > {TAG_BYTES_MAX}: raise too_long_tag(size{depth})"
                    )

    def _uvarint(self, target: str) -> None:
        """Reads a varint into a local; one of one byte without a call."""
        source = self._source
        source.line(f"{target} = buffer[position]")
        source.line("position += 1")
        source.line(f"if {target} > 127: {target}, position = read_uvarint(buffer, position - 1)")

    def _spend(self) -> None:
        """Takes `n` array elements or tagged fields from what the whole message may have."""
        self._source.line("budget -= n")
        self._source.line(f"if budget < 0: raise too_many_elements({self._elements_max})")

    # --- values with a length prefix ---

    def _length(self, letter: str) -> None:
        """Reads a length into `n`: -1 is null, in both encodings."""
        source = self._source
        if not self._flexible:
            self._fixed(letter, "n")
            self._end_run()
            return
        self._fixed("B", "n")
        self._end_run()
        source.line("if n > 127: n, position = read_uvarint(buffer, position - 1)")
        source.line("n -= 1")

    def _variable(self, field: Field, target: str) -> None:
        """Reads a string, bytes or records."""
        source = self._source
        self._length(_PREFIXES[field.kind][0])
        data = {
            "String": "str(buffer[position:end], 'utf-8')",
            "Bytes": "bytes(buffer[position:end])",
        }.get(field.kind, "view[position:end]")
        nullable = field.is_nullable_in(self._version)
        if nullable:
            source.line(f"if n == -1: {target} = None")
            source.line("else:")
            source.indent(1)
        source.line("end = position + n")
        source.line(
            f"if n < 0 or end > limit: raise bad_length({field.name!r}, n, limit - position)"
        )
        if self._flexible and field.kind == "String":
            source.line(f"if n > {STRING_MAX}: raise too_long({field.name!r}, n)")
        source.line(f"{target} = {data}")
        source.line("position = end")
        if nullable:
            source.indent(-1)

    def _array(self, owner: type[Message], field: Field, target: str) -> None:
        source = self._source
        self._length("i")
        nullable = field.is_nullable_in(self._version)
        if nullable:
            source.line(f"if n == -1: {target} = None")
            source.line("else:")
            source.indent(1)
        least = self._least_size(owner, field)
        source.line(
            f"if n < 0 or n * {least} > limit - position: "
            f"raise bad_length({field.name!r}, n, limit - position)"
        )
        self._spend()
        if field.kind in FIXED and field.kind != "Uuid":
            letter = FIXED[field.kind]
            source.line(f"{target} = [*unpack_from(f'>{{n}}{letter}', buffer, position)]")
            source.line(f"position += n * {least}")
        else:
            self._elements(owner, field, target)
        if nullable:
            source.indent(-1)

    def _elements(self, owner: type[Message], field: Field, target: str) -> None:
        """Reads the `n` elements of an array one by one."""
        source = self._source
        self._level += 1
        level = self._level
        source.line(f"{target} = a{level} = []")
        with source.block(f"for i{level} in range(n):"):
            if self._in_steps:
                source.line(f"if not i{level} & {_STEP - 1}: yield")
            if field.is_struct:
                self._struct(struct_of(owner, field), f"o{level}")
                source.line(f"a{level}.append(o{level})")
            else:
                element = field._replace(is_array=False, nullable_first=None)
                self._field(owner, element, f"e{level}")
                self._end_run()
                source.line(f"a{level}.append(e{level})")
        self._level -= 1

    def _least_size(self, owner: type[Message], field: Field) -> int:
        """Returns the fewest bytes that an element of an array can take."""
        if field.is_struct:
            cls = struct_of(owner, field)
            return max(
                1,
                self._flexible
                + sum(
                    self._least_field_size(cls, inner)
                    for inner in cls.declared_fields
                    if inner.exists_in(self._version) and inner.tag is None
                ),
            )
        return self._least_field_size(owner, field._replace(is_array=False))

    def _least_field_size(self, owner: type[Message], field: Field) -> int:
        if field.is_array:
            return 1 if self._flexible else 4
        if field.is_struct:
            nullable = field.is_nullable_in(self._version)
            return 1 if nullable else self._least_size(owner, field)
        if field.kind in FIXED:
            return self._source.struct(FIXED[field.kind], "unpack_from")[1]
        return 1 if self._flexible else _PREFIXES[field.kind][1]
