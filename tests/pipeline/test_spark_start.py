"""What a job checks before it starts Spark, and the settings with which it starts it."""

from __future__ import annotations

import pytest

from tidelog.pipeline.errors import SetupError
from tidelog.pipeline.spark_start import EXACT, check_java, check_pyspark, settings, with_retries


def test_a_missing_java_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="no Java runtime was found below JAVA_HOME"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="no Java runtime was found on the PATH"):
        check_java()


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('java version "1.8.0_202"', "is Java 8"),
        ('openjdk version "11.0.2"', "is Java 11"),
        ("what?", "of an unknown version"),
    ],
)
def test_the_version_of_java_is_checked(monkeypatch, tmp_path, said, refused):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if refused is None:
        check_java()
    else:
        with pytest.raises(SetupError, match=refused):
            check_java()


@pytest.mark.parametrize(
    ("version", "refused"), [("4.1.0", False), ("4.0.9", True), ("5.0.0", True)]
)
def test_the_version_of_pyspark_is_checked(monkeypatch, version, refused):
    monkeypatch.setattr("tidelog.pipeline.spark_start.metadata.version", lambda name: version)
    if refused:
        with pytest.raises(SetupError, match=rf"PySpark {version} is installed"):
            check_pyspark()
    else:
        check_pyspark()


def test_a_setting_given_wins():
    found = settings("local[*]", {"spark.driver.memory": "4g", "spark.x": "y"})
    assert (found["spark.driver.memory"], found["spark.x"]) == ("4g", "y")
    assert "spark.driver.memory" not in settings("spark://h:7077", {})


def test_settings_of_spark_submit_stay_unless_times_need_others():
    theirs = {
        "spark.speculation": "true",
        "spark.task.maxFailures": "2",
        "spark.driver.memory": "8g",
        "spark.executor.extraJavaOptions": "-Dx=y",
        "spark.sql.session.timeZone": "Europe/Brussels",
    }
    found = settings("local[2]", {}, theirs)
    assert not {"spark.speculation", "spark.task.maxFailures", "spark.driver.memory"} & set(found)
    assert found["spark.executor.extraJavaOptions"] == "-Dx=y -Duser.timezone=UTC"
    assert found["spark.master"] == "local[2,2]"
    assert found.items() >= EXACT.items()


def test_the_ui_is_off_only_where_that_is_asked():
    assert "spark.ui.enabled" not in settings("local[2]", {})
    assert settings("local[2]", {"spark.ui.enabled": "false"})["spark.ui.enabled"] == "false"


def test_the_ui_of_a_local_master_under_spark_submit_is_off_unless_it_is_asked_for(monkeypatch):
    """Without SPARK_LOCAL_IP the JVM, which runs already, would open it to every interface."""
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    ui = "spark.ui.enabled"
    assert settings("local[2]", {}, {})[ui] == "false"
    assert ui not in settings("spark://h:7077", {}, {})
    assert ui not in settings("local[2]", {}, {ui: "true"}), "spark-submit --conf stays"
    assert settings("local[2]", {ui: "true"}, {})[ui] == "true"
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    assert ui not in settings("local[2]", {}, {})


@pytest.mark.parametrize(
    ("master", "meant"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_local_master_tries_again_too(master, meant):
    assert with_retries(master, 4) == meant
