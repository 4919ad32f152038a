"""Errors that a program meets: by public names, in tracebacks and in pickles."""

from __future__ import annotations

import importlib
import pickle
import traceback

import pytest

import tidelog.errors
import tidelog.jobs
import tidelog.spark
from tidelog.client import Client, errors

WITH_A_CODE = {"RequestError", "PartitionRefused"}


@pytest.mark.parametrize(
    "name",
    [
        "tidelog.jobs.JobError",
        "tidelog.jobs.Refused",
        "tidelog.jobs.UsageError",
        "tidelog.jobs.SetupError",
        "tidelog.spark.OptionError",
        "tidelog.spark.SourceError",
        "tidelog.spark.NotThere",
        *(f"tidelog.errors.{name}" for name in tidelog.errors.__all__ if name not in WITH_A_CODE),
    ],
)
def test_an_error_is_named_as_it_is_imported(name):
    module, _, kind = name.rpartition(".")
    error = getattr(importlib.import_module(module), kind)("it said so")
    assert traceback.format_exception_only(error) == [f"{name}: it said so\n"]
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.args) == (type(error), error.args)


def test_every_error_of_the_client_is_public():
    """As a cause in a traceback, too."""
    internal = vars(errors).values()
    kinds = {each for each in internal if isinstance(each, type) and issubclass(each, Exception)}
    assert {each.__module__ for each in kinds} == {"tidelog.errors"}
    assert {each.__name__ for each in kinds} == set(tidelog.errors.__all__)
    with pytest.raises(tidelog.errors.ClusterUnreachable) as failed:
        Client("127.0.0.1:1", timeout_s=0.1).topics()
    told = "".join(traceback.format_exception(failed.value))
    assert "\ntidelog.errors.ClusterUnreachable: 127.0.0.1:1 cannot be reached" in told
    assert "tidelog.client.errors" not in told


def test_a_job_that_fails_raises_them(tmp_path):
    with pytest.raises(tidelog.jobs.JobError) as failed:
        tidelog.jobs.audit(logs=tmp_path / "nowhere", out=tmp_path)
    assert traceback.format_exception_only(failed.value)[0].startswith("tidelog.jobs.UsageError: ")
    with pytest.raises(tidelog.jobs.UsageError):
        tidelog.jobs.audit(logs=tmp_path, topics="(", out=tmp_path)


def test_nothing_else_is_an_attribute_of_the_module():
    with pytest.raises(AttributeError, match="has no attribute 'Other'"):
        _ = tidelog.spark.Other
