"""Lets `df.write.format("timelog").save()` append without a mode, as Spark's own Kafka sink does.

PySpark's default is `errorifexists`. Spark lets its Kafka sink decide what that means, and refuses it
for every data source in Python, which is never asked. So `register` wraps the method `save`.
"""

from __future__ import annotations

import functools
from typing import Any

_DEFAULT = "ErrorIfExists"


def append_by_default(writer: Any, format_name: str) -> None:
    """Wraps `save` of PySpark's DataFrameWriter, once: other formats and modes stay as they are."""
    save = writer.save
    if getattr(save, "appends_to", "") == format_name:
        return

    @functools.wraps(save)
    def saved(
        self: Any,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - PySpark calls it so
        mode: str | None = None,
        *args: Any,
        **options: Any,
    ) -> None:
        self.mode(mode)
        written = self._jwrite
        if (format or written.source()).lower() == format_name:
            mode = "append" if written.curmode().toString() == _DEFAULT else None
        save(self, path, format, mode, *args, **options)

    saved.appends_to = format_name  # type: ignore[attr-defined]
    writer.save = saved
