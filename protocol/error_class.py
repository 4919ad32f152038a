"""From an error code to the exception that carries it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol import group_errors  # noqa: F401 - so that its classes are among CLASSES
from tidelog.protocol.error_codes import ERRORS
from tidelog.protocol.errors import CLASSES

if TYPE_CHECKING:
    from tidelog.protocol.errors import BrokerError


def error_class(code: int) -> type[BrokerError] | None:
    """Returns the exception class of `code`; None if this broker never raises it."""
    known = ERRORS.get(code)
    return None if known is None else CLASSES.get(known)
