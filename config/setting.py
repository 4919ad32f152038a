"""How a setting is declared: name, type, default, bounds, a one-sentence doc, and its parser.

A configuration class is a frozen dataclass whose fields are made by `setting(...)`. The same
declaration gives a typed attribute to code, an entry to DescribeConfigs, a row to
docs/configuration.md, and the checks below. Values are text, as Kafka's are: surrounding whitespace
is ignored, integers have 32 bits (INT) or 64 bits (LONG), and booleans are true or false in any
case. Every error is a ConfigError of one sentence that names the setting, the value and what to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LONG_MAX = 2**63 - 1
SHORT_MAX = 2**15 - 1
INT_MAX = 2**31 - 1

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LOGIN = re.compile(r"//[^/@]*@")  # user and password in an address
_METADATA = "setting"
PART: Final[Mapping[str, bool]] = MappingProxyType({"part": True})
"""The metadata of a field that holds the settings of one subject, made by its default_factory."""


class ConfigError(ValueError):
    """A setting is misspelt, out of range, of the wrong type, or contradicts another one.

    The text says which setting, in one sentence.
    """


class Given(NamedTuple):
    """One value that was set: its text, its origin, and the rank of its source.

    `below` is the value that a change of the running broker replaces, as long as that change lasts.
    """

    value: str
    origin: str
    rank: int
    below: Given | None = None


class Type(IntEnum):
    """Kafka's types of settings, by their numbers in DescribeConfigs v3+.

    UNKNOWN is that of what is stored and not a setting here.
    """

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class BrokerName(NamedTuple):
    """A broker setting that is the default of a topic setting.

    `factor` converts its unit into that of the topic setting (hours into ms). With `zero=False` a
    value of 0 is an error, as Kafka refuses log.retention.ms=0.
    """

    name: str
    factor: int = 1
    zero: bool = True


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting."""

    name: str
    type: Type
    default: str | None  # as Kafka writes it; None: no default
    doc: str
    aliases: tuple[str, ...] = ()  # other names of the same setting; contradictions are refused
    fallbacks: tuple[str, ...] = ()  # weaker names: used if the name itself is not set
    broker_names: tuple[BrokerName, ...] = ()  # topic settings: broker defaults, strongest first
    broker_aliases: tuple[str, ...] = ()  # topic settings: other names of broker_names[0]
    # The names, of a topic and of the broker, under which a value is kept that another setting
    # implied. It is weaker than every value that somebody gave.
    implied_names: tuple[str, str] | None = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    convert: Callable[[str], Any] | None = None  # from the text; raises ValueError(reason)
    dynamic: bool = True  # may be changed while the broker runs
    for_one_broker: bool = False  # and for one of several brokers alone
    # The least value that clients may set while the broker runs: with less, nobody might be able to
    # connect and undo it. `low` holds at the start.
    least_live: int | None = None
    effective: bool = True  # False: accepted, kept and described, but nothing acts on it yet

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of the setting in its own scope, strongest first."""
        implied = self.implied_names[:1] if self.implied_names else ()
        return (self.name, *self.aliases, *self.fallbacks, *implied)

    @property
    def default_names(self) -> tuple[str, ...]:
        """Every name of the broker setting that is a topic setting's default, strongest first."""
        implied = self.implied_names[1:] if self.implied_names else ()
        names = (*(each.name for each in self.broker_names), *self.broker_aliases, *implied)
        return tuple(dict.fromkeys(names))

    def parse(self, text: str, name: str | None = None, origin: str = "") -> Any:
        """Returns the value of `text`; raises ConfigError, which says `name` and `origin`."""
        try:
            return self._parse(text.strip())
        except ValueError as error:
            where = f" (from {origin})" if origin else ""
            said = _LOGIN.sub("//(hidden)@", text.strip())
            if self.type is Type.PASSWORD:
                said = "(hidden)"
            raise ConfigError(f"{name or self.name}={said}{where}: {error}") from None

    def _parse(self, text: str) -> Any:
        value = _READERS[self.type](text)
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._check_range(value)
        if self.choices:
            given = value if isinstance(value, tuple) else (value,)
            unknown = [item for item in given if item not in self.choices]
            if unknown:
                raise ValueError(f"expected {_one_of(self.choices, isinstance(value, tuple))}")
        return value if self.convert is None else self.convert(text)

    def _check_range(self, value: float) -> None:
        if self.low is not None and value < self.low:
            raise ValueError(f"the least possible value is {self.low}")
        if self.high is not None and value > self.high:
            raise ValueError(f"the largest possible value is {self.high}")


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("expected true or false")
    return lowered == "true"


def _integer(text: str, limit: int) -> int:
    if not _INTEGER.fullmatch(text) or len(text) > 20:
        raise ValueError("expected an integer")
    value = int(text)
    if not -limit - 1 <= value <= limit:
        raise ValueError(f"expected an integer of {(limit + 1).bit_length()} bits")
    return value


def _double(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("expected a number") from None
    if value != value:  # noqa: PLR0124 - only NaN is unequal to itself
        raise ValueError("expected a number")
    return value


def _list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",")) if text else ()


_READERS: Mapping[Type, Callable[[str], Any]] = {
    Type.BOOLEAN: _boolean,
    Type.STRING: str,
    Type.SHORT: lambda text: _integer(text, SHORT_MAX),
    Type.INT: lambda text: _integer(text, INT_MAX),
    Type.LONG: lambda text: _integer(text, LONG_MAX),
    Type.DOUBLE: _double,
    Type.LIST: _list,
    Type.PASSWORD: str,
}


def _one_of(choices: tuple[str, ...], several: bool) -> str:
    return ("a list of " if several else "one of ") + ", ".join(choices)


def written(value: object) -> str | None:
    """Returns a value as Kafka writes it: true, 5, 1.5E20, a,b; None for None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    if isinstance(value, float):
        return str(value).replace("e+", "E")
    return str(value)


def setting(
    name: str, kind: Type, default: object, doc: str, *, text: str | None = None, **more: Any
) -> Any:
    """Declares a dataclass field with this default; `text` is how Kafka writes it, if different."""
    declared = Setting(name, kind, written(default) if text is None else text, doc, **more)
    return field(default=default, metadata={_METADATA: declared})


def declared_in(cls: Any) -> dict[str, Setting]:
    """Returns the settings of a configuration class by attribute, in order of declaration.

    The attribute of a setting in a part is the part's, a dot, and its own: http.http_listener.
    """
    found: dict[str, Setting] = {}
    for each in fields(cls):
        if _METADATA in each.metadata:
            found[each.name] = each.metadata[_METADATA]
        elif each.metadata == PART:
            own = declared_in(each.default_factory)
            found |= {f"{each.name}.{attribute}": setting for attribute, setting in own.items()}
    return found


def arguments_of(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a configuration class is made with: `values` by attribute, as `declared_in` has them."""
    found = {attribute: value for attribute, value in values.items() if "." not in attribute}
    for each in fields(cls):
        if each.metadata == PART:
            kind: Any = each.default_factory
            before = f"{each.name}."
            own = {a.removeprefix(before): v for a, v in values.items() if a.startswith(before)}
            found[each.name] = kind(**own)
    return found


def unknown(name: str, known: Iterable[str], origin: str = "") -> ConfigError:
    """Returns the error for an unknown name, with the most similar known name."""
    where = f" (from {origin})" if origin else ""
    near = closest(name, known)
    hint = f"; did you mean {near}?" if near else ""
    return no_setting(f"{name}{where}{hint}")


def no_setting(name: str) -> ConfigError:
    """Returns the error for an unknown name, without a search for a similar one."""
    return ConfigError(f"there is no setting {name}")


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Returns the known name that is most similar to a misspelt one, None if none is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)
