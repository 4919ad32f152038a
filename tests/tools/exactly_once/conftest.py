"""A broker that programs are killed with."""

from __future__ import annotations

import pytest

from tests.broker.subject import Subject


@pytest.fixture
def broker(tmp_path):
    with Subject(tmp_path / "data", {"log.retention.ms": -1}) as subject:
        yield subject
        assert subject.unexpected_errors == 0, subject.log()[-8000:]
