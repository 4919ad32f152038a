"""Brokers for the tests of this directory.

`broker` is one process for them all: give topics names of their own. When the session ends it must be
alive, must have met no error it did not foresee, and must stop in order. `start` starts brokers with
settings of their own, held to the same.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import pytest

from tests.broker.subject import Subject


@contextmanager
def healthy(directory, settings=None):
    """A broker that is judged by its end."""
    with Subject(directory / "data", settings) as subject:
        yield subject
        if subject.is_running:
            assert subject.unexpected_errors == 0, subject.log()[-8000:]
            assert subject.stop() == 0, subject.log()[-8000:]
        assert "Traceback" not in subject.log(), subject.log()[-8000:]


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    with healthy(tmp_path_factory.mktemp("broker")) as subject:
        yield subject


@pytest.fixture
def connection(broker):
    with broker.connect() as connection:
        yield connection


@pytest.fixture
def start(tmp_path_factory):
    with ExitStack() as brokers:

        def start_one(settings=None):
            return brokers.enter_context(healthy(tmp_path_factory.mktemp("broker"), settings))

        yield start_one
