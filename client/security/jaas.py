"""Reads `sasl.jaas.config`: one login module with its options.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";

The grammar is that of Java's login configuration for one entry: a class, a flag, options `key=value`
and a semicolon. Values may be quoted; in quotes a backslash escapes the next character. Errors name
the place and never a value.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tidelog.client.errors import SecuritySettingsError
from tidelog.client.security.secret import HiddenValue

_TOKEN: Final = re.compile(
    r"""\s* (?: //[^\n]*\s* | /\*.*?\*/\s* )*
    (?: (?P<end>;) | (?P<equals>=) | "(?P<quoted>(?:[^"\\\n]|\\.)*)" | (?P<word>[^\s"=;]+) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_CONTROL: Final = {"n": "\n", "t": "\t", "r": "\r"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


class Login(NamedTuple):
    """A login module by its class, and its options."""

    module: str
    options: dict[str, HiddenValue]


class _Token(NamedTuple):
    kind: str
    text: str


def parse_jaas(text: str) -> Login:
    """Returns the login module in `text`. Raises SecuritySettingsError."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[0].kind != "word" or tokens[1].text.lower() not in _FLAGS:
        raise _wrong(f'write it as CLASS {_FLAGS[0]} key="value";')
    options: dict[str, HiddenValue] = {}
    position = 2
    while tokens[position].kind != "end":
        key, *rest = tokens[position : position + 3]
        kinds = [one.kind for one in rest]
        if key.kind != "word" or kinds not in (["equals", "word"], ["equals", "quoted"]):
            raise _wrong(f'option {len(options) + 1} is not key="value"')
        if key.text in options:
            raise _wrong(f"{key.text} is given twice")
        options[key.text] = HiddenValue(rest[1].text)
        position += 3
        if position >= len(tokens):
            raise _wrong("it must end with a semicolon")
    if position != len(tokens) - 1:
        raise _wrong("it must have one login module")
    return Login(tokens[0].text, options)


def _tokens(text: str) -> list[_Token]:
    found, position = [], 0
    text = text.strip()
    while position < len(text):
        matched = _TOKEN.match(text, position)
        if matched is None:
            raise _wrong(f"a quotation mark is not closed after character {position}")
        kind = matched.lastgroup or ""
        value = matched[kind]
        if kind == "quoted":
            value = _ESCAPED.sub(lambda one: _CONTROL.get(one[1], one[1]), value)
        found.append(_Token(kind, value))
        position = matched.end()
    return found


def _wrong(why: str) -> SecuritySettingsError:
    return SecuritySettingsError(f"sasl.jaas.config cannot be read: {why}")
