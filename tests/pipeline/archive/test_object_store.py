"""Logs and archives in an object store: moto's server answers as S3 does."""

from __future__ import annotations

import pytest
from pyarrow import fs

from tests.pipeline.archive import archives, test_iceberg, test_iceberg_back
from tests.pipeline.archive.archives import expected, some, with_logs
from tidelog.pipeline import cli
from tidelog.pipeline.errors import FINDINGS, OK

pytestmark = pytest.mark.slow

moto = pytest.importorskip("moto.server", reason="moto is not installed")
BUCKET = "tidelog-tests"


@pytest.fixture(scope="module")
def server():
    """The port of a server of S3 with one bucket."""
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    try:
        yield running.get_host_and_port()[1]
    finally:
        running.stop()


@pytest.fixture
def store(server, tmp_path, monkeypatch):
    """A file system of S3, and a function that makes URIs in it; each test has a directory of its own."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    system = fs.S3FileSystem(
        endpoint_override=f"127.0.0.1:{server}",
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    system.create_dir(BUCKET)
    options = f"region=us-east-1&scheme=http&endpoint_override=127.0.0.1%3A{server}"
    return system, lambda name: f"s3://{BUCKET}/{tmp_path.name}/{name}?{options}"


def copied(system, root, name, local):
    """Copy a directory of this machine to the store, or back."""
    far = f"{BUCKET}/{root.name}/{name}"
    near = fs.LocalFileSystem()
    where = (
        (near, str(root / local), system, far)
        if name == "logs"
        else (system, far, near, str(root / local))
    )
    source, start, target, end = where
    for info in source.get_file_info(fs.FileSelector(start, recursive=True)):
        if info.type == fs.FileType.File:
            place = end + info.path[len(start) :]
            target.create_dir(place.rpartition("/")[0], recursive=True)
            with source.open_input_file(info.path) as data, target.open_output_stream(place) as out:
                out.write(data.read())


def test_an_archive_there_of_logs_there(root, store, capsys):
    """Archived, verified, compacted, late data too; then read back from a copy."""
    system, uri = store
    copied(system, root, "logs", "logs")
    here = ("--out", str(root / "runs"), "--master", "inline")

    def run(name, *more):
        given = (
            "archive",
            "--logs",
            uri("logs"),
            "--upto",
            "log-end",
            "--to",
            uri("far"),
            "--run",
            name,
        )
        return cli.main([*given, *here, *more])

    assert run("one", "--file-bytes", "8000") == OK
    assert run("one", "--file-bytes", "8000") == OK
    assert "was done before" in capsys.readouterr().out
    with_logs(root, [(0, some(30, 5))])
    copied(system, root, "logs", "logs")
    assert run("two") == OK
    assert cli.main(["archive", "verify", uri("far"), *here]) == OK
    assert cli.main(["archive", "compact", uri("far"), *here, "--run", "c"]) == OK
    assert cli.main(["archive", "verify", uri("far"), *here]) == OK
    assert "named by no manifest" not in capsys.readouterr().out
    copied(system, root, "far", "near")
    assert archives.contents(root, "near") == expected(root)
    assert len(archives.tree(root, "near")) == len(set(archives.DATES.values()))


def test_an_iceberg_table_there(root, store, server, monkeypatch, capsys):
    pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
    system, _ = store
    there = {
        "uri": f"sqlite:///{root}/catalog.db",
        "warehouse": f"s3://{BUCKET}/{root.name}/warehouse",
        "s3.endpoint": f"http://127.0.0.1:{server}",
        "s3.region": "us-east-1",
    }
    monkeypatch.setattr(test_iceberg, "catalog", lambda _: there)
    small = [time_ms for time_ms in archives.TIMES if 0 <= time_ms < 2**50]
    logs = root / "plain"
    with_logs(logs, [(0, some(50, 1, dates=[*small, -1]))])
    assert test_iceberg.fill(logs) == OK
    with_logs(logs, [(0, some(10, 2, dates=[0, -2]))])
    assert test_iceberg.fill(logs, run="two") == OK
    assert test_iceberg.contents(test_iceberg.table(logs).scan()) == expected(logs)
    assert test_iceberg_back.verify(logs) == OK
    found = system.get_file_info(fs.FileSelector(f"{BUCKET}/{root.name}/warehouse", recursive=True))
    data = [one.path for one in found if one.path.endswith(".parquet")]
    system.delete_file(data[0])
    assert test_iceberg_back.verify(logs) == FINDINGS
    assert "missing (" in capsys.readouterr().out
