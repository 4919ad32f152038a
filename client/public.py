"""Names errors by the public module from which a program imports them.

Our packages are imported as `tidelog._house.<room>` in a user's process, which is no name to catch an
error by. Pickles and tracebacks use the name that `public` gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_E = TypeVar("_E", bound=Exception)


def public(module: str, name: str | None = None) -> Callable[[type[_E]], type[_E]]:
    """Returns a decorator that names an error by a public module, which must have it.

    In our own processes, where our packages have their short names, it changes nothing: the class
    there is another one than that of the public module.
    """

    def named(kind: type[_E]) -> type[_E]:
        if kind.__module__.startswith("tidelog."):
            kind.__module__ = module
            kind.__name__ = kind.__qualname__ = name or kind.__name__
        return kind

    return named
