"""Generates the encoder of one message in one version.

The result is a single function `encode(message) -> list of buffers`. Small pieces are collected and
joined; records are passed on without a copy, so a fetch response is a list like [head, records,
head, records, ..., tail]. For example, the partitions of Produce v9:

    for o2 in a2:
        a3 = o2.record_errors
        n3 = len(a3)
        out += (pack_ihqqq(o2.index, ...), UVARINTS[n3 + 1])
        ...

A field that the version lacks is dropped if it is ignorable; any other must have its default.

`make_stepper` generates the same code as a generator, which stops after every few elements and yields
the bytes written so far.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tidelog.protocol.schema import FIXED, Field, Message, struct_of
from tidelog.protocol.source import FunctionSource
from tidelog.protocol.wire import UVARINTS, ZERO_UUID, Buffer, EncodeError, no_place

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_STEP = 64  # elements of an array that an encoder in steps writes at once; a power of two
_PIECES = 8192  # pieces that it joins at once
_RECORDS = ("Records", "RecordParts")


def make_encoder(
    cls: type[Message], version: int, *, flexible: bool
) -> Callable[[Any], list[Buffer]]:
    """Returns an encoder of `cls` in `version` into buffers; it raises EncodeError."""
    encode = _Encoder(version, flexible=flexible).generate(cls)
    where = f"{cls.__name__} v{version}"

    def encode_safely(message: Any) -> list[Buffer]:
        try:
            return encode(message)  # type: ignore[no-any-return]
        except EncodeError:
            raise
        except _BAD as error:
            raise EncodeError(f"{where}: {error}") from error

    return encode_safely


def make_stepper(
    cls: type[Message], version: int, *, flexible: bool
) -> Callable[[Any], Generator[int, None, list[Buffer]]]:
    """Returns an encoder as `make_encoder` does, as a generator that yields every few elements.

    It yields the bytes that are written so far, without those of the last few thousand elements, and
    returns buffers that are small enough to be joined at once.
    """
    encode = _Encoder(version, flexible=flexible, in_steps=True).generate(cls)
    where = f"{cls.__name__} v{version}"

    def encode_safely(message: Any) -> Generator[int, None, list[Buffer]]:
        try:
            return (yield from encode(message))  # type: ignore[no-any-return]
        except EncodeError:
            raise
        except _BAD as error:
            raise EncodeError(f"{where}: {error}") from error

    return encode_safely


_BAD = (struct.error, AttributeError, TypeError, ValueError)


class _Encoder:
    """Generates the encoding function from a declaration."""

    def __init__(self, version: int, *, flexible: bool, in_steps: bool = False) -> None:
        self._version = version
        self._flexible = flexible
        self._in_steps = in_steps
        self._names: dict[str, Any] = {
            "UVARINTS": UVARINTS,
            "ZERO_UUID": ZERO_UUID,
            "join": b"".join,
            "pack": struct.pack,
            "no_place": no_place,
        }
        self._source = FunctionSource(self._names)
        self._letters = ""
        self._values: list[str] = []
        self._items: list[str] = []
        self._serial = 0

    def generate(self, cls: type[Message]) -> Any:
        """Returns the compiled function."""
        source = self._source
        with source.block("def encode(o):"):
            source.line("parts = []")
            source.line("out = []")
            if self._in_steps:
                source.line("written = 0")
                source.line("if 0: yield")  # a generator, also where the message has no array
            self._struct(cls, "o")
            self._flush()
            source.line("if out or not parts: parts.append(join(out))")
            source.line("return parts")
        return source.function("encode")

    # --- pieces ---

    def _fixed(self, letters: str, value: str = "") -> None:
        """Adds an item of fixed width to the run; the letter x (a zero byte) takes no value."""
        self._letters += letters
        if value:
            self._values.append(value)

    def _item(self, expression: str) -> None:
        """Adds bytes of any length."""
        self._end_run()
        self._items.append(expression)

    def _end_run(self) -> None:
        if not self._letters:
            return
        if self._values:
            pack, _ = self._source.struct(self._letters, "pack")
            self._items.append(f"{pack}({', '.join(self._values)})")
        else:
            self._items.append(repr(bytes(len(self._letters))))
        self._letters, self._values = "", []

    def _flush(self) -> None:
        """Writes the collected pieces; needed before any branch or loop that adds some."""
        self._end_run()
        if self._items:
            self._source.line(f"out += ({', '.join(self._items)},)")
        self._items = []

    def _fresh(self) -> int:
        """Returns a new number for the locals of one field; pieces may be written much later."""
        self._serial += 1
        return self._serial

    # --- structs and their fields ---

    def _struct(self, cls: type[Message], value: str) -> None:
        tagged = []
        for field in cls.declared_fields:
            if not field.exists_in(self._version):
                if not field.ignorable:
                    self._demand_default(cls, field, value)
            elif field.tag is not None:
                tagged.append(field)
            else:
                self._field(cls, field, f"{value}.{field.name}")
        if self._flexible:
            self._tags(cls, tagged, value)

    def _demand_default(self, cls: type[Message], field: Field, value: str) -> None:
        self._source.line(
            f"if {self._is_set(field, value)}: "
            f"raise no_place({cls.__name__!r}, {field.name!r}, {self._version})"
        )

    @staticmethod
    def _is_set(field: Field, value: str) -> str:
        """Returns the condition that is true if a field differs from its default."""
        value = f"{value}.{field.name}"
        if field.default is None:
            return f"{value} is not None"
        if field.is_array or field.default in (0, "", b""):
            return value
        if field.default == ZERO_UUID:
            return f"{value} != ZERO_UUID"
        return f"{value} != {field.default!r}"

    def _nested_struct(self, owner: type[Message], field: Field, value: str) -> None:
        """Writes a struct; a nullable struct is preceded by a byte, -1 for null and else 1."""
        source, number = self._source, self._fresh()
        source.line(f"o{number} = {value}")
        if not field.is_nullable_in(self._version):
            self._struct(struct_of(owner, field), f"o{number}")
            return
        self._flush()
        source.line(f"if o{number} is None: out.append(b'\\xff')")
        source.line("else:")
        source.indent(1)
        self._item(repr(b"\x01"))
        self._struct(struct_of(owner, field), f"o{number}")
        self._flush()
        source.indent(-1)

    def _field(self, owner: type[Message], field: Field, value: str) -> None:
        if field.is_array:
            self._array(owner, field, value)
        elif field.is_struct:
            self._nested_struct(owner, field, value)
        elif field.kind == "Uuid":
            self._fixed("16s", f"{value}.bytes")
        elif field.kind in FIXED:
            self._fixed(FIXED[field.kind], value)
        else:
            self._variable(field, value)

    def _length(self, letter: str, name: str) -> None:
        """Writes a length of which -1 is null."""
        if self._flexible:
            self._item(f"UVARINTS[{name} + 1]")
        else:
            self._fixed(letter, name)

    def _variable(self, field: Field, value: str) -> None:
        """Writes a string, bytes or records."""
        source, number = self._source, self._fresh()
        data, length = f"b{number}", f"n{number}"
        if field.is_nullable_in(self._version):
            source.line(f"{data} = {value}")
            source.line(f"if {data} is None: {length} = -1; {data} = b''")
            source.line("else:")
            source.indent(1)
            self._measure(field, data, data, length)
            source.indent(-1)
        else:
            self._measure(field, value, data, length)
        self._length("h" if field.kind == "String" else "i", length)
        if field.kind in _RECORDS:
            self._flush()
            with source.block(f"if {length} > 0:"):
                source.line("parts.append(join(out))")
                source.line("out = []")
                source.line(f"if isinstance({data}, list): parts += {data}")
                source.line(f"else: parts.append({data})")
        else:
            self._item(data)

    def _measure(self, field: Field, value: str, data: str, length: str) -> None:
        """Assigns the bytes and the length of a value that is not null."""
        source = self._source
        if field.kind == "String":
            source.line(f"{data} = {value}.encode()")
            source.line(f"{length} = len({data})")
            return
        if data != value:
            source.line(f"{data} = {value}")
        if field.kind in _RECORDS:
            source.line(
                f"{length} = sum(map(len, {data})) if isinstance({data}, list) else len({data})"
            )
        else:
            source.line(f"{length} = len({data})")

    def _array(self, owner: type[Message], field: Field, value: str) -> None:
        source, number = self._source, self._fresh()
        array, length = f"a{number}", f"n{number}"
        source.line(f"{array} = {value}")
        if field.is_nullable_in(self._version):
            source.line(f"if {array} is None: {length} = -1; {array} = ()")
            source.line(f"else: {length} = len({array})")
        else:
            source.line(f"{length} = len({array})")
        self._length("i", length)
        if field.kind in FIXED and field.kind != "Uuid":
            letter = FIXED[field.kind]
            self._item(f"pack(f'>{{len({array})}}{letter}', *{array})")
            return
        self._flush()
        element = f"o{number}"
        head = f"for {element} in {array}:"
        if self._in_steps:
            head = f"for i{number}, {element} in enumerate({array}):"
        with source.block(head):
            if self._in_steps:
                self._step(number)
            if field.is_struct:
                self._struct(struct_of(owner, field), element)
            else:
                inner = field._replace(is_array=False, nullable_first=None)
                self._field(owner, inner, element)
            self._flush()

    def _step(self, number: int) -> None:
        """Stops before every few elements; joins what is written if it is much."""
        source = self._source
        with source.block(f"if not i{number} & {_STEP - 1}:"):
            with source.block(f"if len(out) > {_PIECES}:"):
                source.line("parts.append(join(out))")
                source.line("written += len(parts[-1])")
                source.line("out = []")
            source.line("yield written")

    # --- tags ---

    def _tags(self, cls: type[Message], tagged: list[Field], value: str) -> None:
        """Writes the tag section, which is nearly always one byte 0."""
        if not tagged:
            self._fixed("x")
            return
        source, name = self._source, f"tags_of_{cls.__name__}"
        if name not in self._names:
            self._names[name] = self._tag_writer(cls, tagged)
        number = self._fresh()
        conditions = " or ".join(self._is_set(field, value) for field in tagged)
        source.line(f"t{number} = {name}({value}) if {conditions} else b'\\0'")
        self._item(f"t{number}")

    def _tag_writer(self, cls: type[Message], tagged: list[Field]) -> Any:
        """Generates the function that writes the tags of a struct that has some."""
        inner = _Encoder(self._version, flexible=True)
        source = inner._source
        with source.block("def encode(o):"):
            source.line("count = 0")
            source.line("body = []")
            for field in sorted(tagged, key=lambda field: field.tag or 0):
                with source.block(f"if {inner._is_set(field, 'o')}:"):
                    source.line("count += 1")
                    source.line("out = []")
                    inner._field(cls, field, f"o.{field.name}")
                    inner._flush()
                    source.line("data = join(out)")
                    source.line(f"body += (UVARINTS[{field.tag}], UVARINTS[len(data)], data)")
            source.line("return UVARINTS[count] + join(body)")
        return source.function("encode")
