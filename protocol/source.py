"""Python source under construction: lines, blocks, bound names, and runs of fixed-width fields.

Both generators of codecs write into a `FunctionSource`. A *run* is a sequence of adjacent fields whose
widths do not depend on the data. It becomes one precompiled struct, which gives most of the speed.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType


class FunctionSource:
    """The lines of one function and the names that they refer to."""

    def __init__(self, names: dict[str, Any] | None = None) -> None:
        self.names: dict[str, Any] = {} if names is None else names
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        """Adds a line at the current indentation."""
        self._lines.append("    " * self._depth + text)

    def block(self, head: str) -> Block:
        """Adds `head` and indent the lines that are added inside the `with` statement."""
        self.line(head)
        return Block(self)

    def indent(self, levels: int) -> None:
        """Changes the current indentation."""
        self._depth += levels

    def struct(self, letters: str, method: str) -> tuple[str, int]:
        """Binds a method of the big-endian struct of `letters`; returns its name and the size."""
        compiled = Struct(">" + letters)
        name = f"{method}_{letters.replace('?', 'B_')}"
        self.names[name] = getattr(compiled, method)
        return name, compiled.size

    def function(self, name: str) -> Any:
        """Compiles the lines and returns the function `name` that they define."""
        exec("\n".join(self._lines), self.names)  # noqa: S102 - made of declarations only
        return self.names[name]

    def __str__(self) -> str:
        return "\n".join(self._lines)


class Block:
    """An indented block of lines."""

    def __init__(self, source: FunctionSource) -> None:
        self._source = source

    def __enter__(self) -> None:
        self._source.indent(1)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._source.indent(-1)
