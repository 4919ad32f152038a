"""`save` without a mode appends to `timelog`; other formats and modes stay as they are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidelog.pipeline.timelog.saving import append_by_default


@pytest.fixture
def writer():
    """A class like PySpark's DataFrameWriter, whose Java object says what it was given."""

    class Writer:
        saved: list

        def __init__(self, source, mode):
            self.saved = []
            self._jwrite = SimpleNamespace(
                source=lambda: source, curmode=lambda: SimpleNamespace(toString=lambda: self.set)
            )
            self.set = mode

        def mode(self, mode):
            self.set = self.set if mode is None else mode
            return self

        def save(self, path=None, format=None, mode=None, partitionBy=None, **options):  # noqa: A002, N803
            self.mode(mode)
            self.saved.append((self.set, options))

    append_by_default(Writer, "timelog")
    append_by_default(Writer, "timelog")  # another session
    return Writer


@pytest.mark.parametrize(
    ("source", "mode", "expected"),
    [
        ("timelog", "ErrorIfExists", "append"),
        ("Timelog", "ErrorIfExists", "append"),
        ("timelog", "Overwrite", "Overwrite"),
        ("timelog", "Append", "Append"),
        ("parquet", "ErrorIfExists", "ErrorIfExists"),
    ],
)
def test_a_mode_that_nobody_gives(writer, source, mode, expected):
    one = writer(source, mode)
    one.save(topic="t")
    assert one.saved == [(expected, {"topic": "t"})]


def test_what_save_itself_is_given(writer):
    one = writer("parquet", "ErrorIfExists")
    one.save(format="timelog")
    one.save(None, "timelog", "Overwrite")
    assert one.saved == [("append", {}), ("Overwrite", {})]
