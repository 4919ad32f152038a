"""How a job declares its options, once: a frozen dataclass whose fields are instances of `Option`.

    @declared
    class AuditOptions(Run, Source):
        margin: Item[int] = Item("how far ...", default=60_000, parse=duration, metavar="SPAN")

    AuditOptions(logs="/data", margin="2m").margin  # 120000

The parser of the command (`pipeline/cli.py`), the function (`tidelog.jobs`) and the table of options on
the job's page follow from the class. A field takes any value that its type names: text as on the
command line, or Python's own. An instance has what `parse` makes of the text. A type checker knows both.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import inspect
import json
import keyword
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Self,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    overload,
)

from tidelog.command_line import invalid_choice
from tidelog.pipeline.errors import UsageError

Value: TypeAlias = str | int | float | os.PathLike[str] | dt.datetime | dt.timedelta
Values: TypeAlias = Value | Iterable[Value]
Settings: TypeAlias = Values | Mapping[str, Value | Mapping[str, Value]]

Given = TypeVar("Given")
Parsed = TypeVar("Parsed")
T = TypeVar("T")

HOW_TO_RUN: Final = "how to run"


class OptionError(UsageError):
    """A value that an option refuses; the message names the keyword of Python."""

    def __init__(self, option: Option[Any, Any], reason: str) -> None:
        super().__init__(f"argument {option.name}: {reason}")
        self.option, self.reason = option, reason


class Option(Generic[Given, Parsed]):
    """A field of a job's options: `to_broker` is --to-broker, and is described by `meaning`.

    `also` are more spellings. `section` is that of the help, if it is not that of the class.
    `secured_by` names the field with the security settings of the brokers at these addresses. An
    option with `instead` is deprecated: no help shows it, and who uses it reads the sentence.
    """

    name: str
    spellings: tuple[str, ...]
    is_flag: ClassVar = False
    is_needed: ClassVar = False
    is_repeated: ClassVar = False

    def __init__(
        self,
        meaning: str = "",
        *,
        also: tuple[str, ...] = (),
        is_positional: bool = False,
        section: str | None = None,
        metavar: str | None = None,
        parse: Callable[[str], Any] = str,
        choices: tuple[str, ...] | None = None,
        default: Any = None,
        secured_by: str | None = None,
        instead: str | None = None,
    ) -> None:
        self.meaning, self.section, self.metavar = meaning, section, metavar
        self.choices, self.default = choices, default
        self.secured_by, self.instead = secured_by, instead
        self.parse = parse
        self._also = None if is_positional else also

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.section = self.section or vars(owner).get("section")
        dashed = f"--{name.rstrip('_').replace('_', '-')}"
        self.spellings = () if self._also is None else (dashed, *self._also)

    @overload
    def __get__(self, options: None, owner: type) -> Self: ...
    @overload
    def __get__(self, options: object, owner: type) -> Parsed: ...
    def __get__(self, options: object | None, owner: type) -> Any:
        """Returns the parsed value of an instance, or the option itself of a class."""
        if options is not None:
            return options.__dict__[self.name]
        if self.is_needed:  # so a dataclass sees no default
            raise AttributeError(self.name)
        return self

    def __set__(self, options: object, value: Given) -> None:
        """Parses a value. Raises OptionError."""
        is_given = self.is_needed or (value is not None and value is not self)
        options.__dict__[self.name] = self.parsed(value) if is_given else self.default

    @property
    def spelled(self) -> str | None:
        """How a mistake of the command line names it."""
        return "/".join(self.spellings) or self.metavar

    @property
    def takes(self) -> str:
        """The type of what is given, for the signature of the function."""
        kind = "Settings" if self.is_repeated else "Values"
        if self.choices is not None:
            kind = f"Literal[{', '.join(map(json.dumps, self.choices))}]"
        return "bool" if self.is_flag else kind if self.is_needed else f"{kind} | None"

    def parsed(self, value: Any) -> Any:
        """Returns what a value means. Raises OptionError."""
        return self.parsed_text(text_of(value))

    def parsed_text(self, text: str) -> Any:
        """Returns what a text of the command line means. Raises OptionError."""
        if self.choices is not None and text not in self.choices:
            raise OptionError(self, invalid_choice(text, self.choices))
        try:
            return self.parse(text)
        except ValueError as error:
            raise OptionError(self, str(error)) from None


class Item(Option[Value | None, T]):
    """An option with one value, parsed to a T."""


class Text(Option[Values | None, "str | None"]):
    """An option with a text, or with several that commas separate."""


class Choice(Option["T | None", T]):
    """An option with one of some words."""


class Needed(Option[Values, str]):
    """A text without which there is no job."""

    is_needed = True

    def parsed(self, value: Any) -> Any:
        """Returns what a value means. Raises OptionError, also for None."""
        if value is None:
            raise OptionError(self, "it is needed")
        return super().parsed(value)


class Flag(Option[bool, bool]):
    """An option without a value."""

    is_flag = True

    def __init__(self, meaning: str, **more: Any) -> None:
        super().__init__(meaning, **more, default=False)

    def parsed(self, value: Any) -> bool:
        """Returns whether it is set: a scheduler may have only texts. Raises OptionError."""
        if not isinstance(value, str):
            return bool(value)
        if value.lower() not in {"true", "false"}:
            raise OptionError(self, f"'{value}' is not true or false")
        return value.lower() == "true"


class Many(Option["Settings | None", tuple[T, ...]]):
    """An option that may be given many times; a mapping is given as KEY=VALUE for each key."""

    is_repeated = True

    def __init__(self, meaning: str, **more: Any) -> None:
        super().__init__(meaning, **more, default=())

    def parsed(self, value: Any) -> tuple[T, ...]:
        """Returns what each of the values means. Raises OptionError."""
        if isinstance(value, Mapping):
            texts = [_pair(key, one) for key, one in value.items()]
        elif isinstance(value, (str, os.PathLike)) or not isinstance(value, Iterable):
            texts = [text_of(value)]
        else:
            texts = [text_of(one) for one in value]
        return tuple(self.parsed_text(text) for text in texts)


def _pair(key: str, value: Any) -> str:
    """Returns KEY=VALUE, or NAME:KEY=VALUE,... for settings that have a name (`policy`)."""
    if isinstance(value, Mapping):
        return f"{key}:" + ",".join(f"{name}={text_of(one)}" for name, one in value.items())
    return f"{key}={text_of(value)}"


def text_of(value: Any) -> str:
    """Returns a value as the command line has it. Raises UsageError for a time without a zone."""
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise UsageError(f"{value.isoformat()} has no time zone: give the datetime one")
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return str(value // dt.timedelta(milliseconds=1))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return ",".join(text_of(one) for one in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def keyword_of(option: str) -> str:
    """Returns the keyword of Python for an option without its dashes."""
    name = option.replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


# A type checker is not told that the classes are frozen: mypy would then give the fields that a class
# inherits the type of what is given instead of what is parsed.


@dataclass_transform(kw_only_default=True, field_specifiers=(Needed,))
def declared(cls: type[T]) -> type[T]:
    """Makes a class of options a frozen dataclass, whose fields are given by keyword."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)


@dataclass_transform(field_specifiers=(Needed,))
def declared_in_order(cls: type[T]) -> type[T]:
    """Makes a class of positional arguments a frozen dataclass."""
    return dataclasses.dataclass(frozen=True)(cls)


@declared
class Options:
    """What every job has; `spark` is a SparkSession of the caller's. Raises UsageError when made."""

    job: ClassVar[str]
    action: ClassVar[str | None] = None
    """The part of a job, with options of its own, that this class is about."""
    actions: ClassVar[Mapping[str, type[Options]]] = {}
    summary: ClassVar[str] = ""
    """Of an action: its line in the help of the job."""
    section: ClassVar[str | None] = None
    """The section of the help for options of this class that do not name another."""
    one_of: ClassVar[tuple[str, ...]] = ()
    """The fields that exclude each other."""
    needs_one: ClassVar[bool] = False
    """Whether one of these has to be given."""

    spark: Any = None
    verbose: Flag = Flag(
        "show Spark's log, and on failure where it happened", also=("--traceback",)
    )

    def __post_init__(self) -> None:
        given = [name for name in self.one_of if getattr(self, name) not in (None, ())]
        if len(given) > 1:
            raise UsageError(f"argument {given[1]}: not allowed with argument {given[0]}")
        if self.needs_one and not given:
            raise UsageError(f"one of the arguments {' '.join(self.one_of)} is required")

    @classmethod
    def description(cls) -> str:
        """Returns the help text: the docstring of the job's module."""
        return sys.modules[cls.__module__].__doc__ or ""

    @classmethod
    def declared(cls) -> list[Option[Any, Any]]:
        """Returns the options by the sections of the help; last how to run, and what every job has."""
        found = [inspect.getattr_static(cls, one.name) for one in dataclasses.fields(cls)]
        options = [one for one in found if isinstance(one, Option)]
        last = (HOW_TO_RUN, None)
        sections = [one.section for one in options if one.section not in last]
        return sorted(options, key=lambda one: [*sections, *last].index(one.section))

    @classmethod
    def shown(cls) -> list[Option[Any, Any]]:
        """Returns the options that are not deprecated."""
        return [one for one in cls.declared() if one.instead is None]

    def but(self, **parsed: Any) -> Self:
        """Returns a copy in which some fields have other values, which are parsed already."""
        made = copy.copy(self)
        made.__dict__.update(parsed)
        return made
