"""A value that must not be shown: a password, a key, a token."""

from __future__ import annotations

from typing import Final

HIDDEN: Final = "(hidden)"


class HiddenValue:
    """Hides a value from print, logs, errors and JSON. `reveal` returns it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Returns the value."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HiddenValue) and other.reveal() == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return HIDDEN
