"""`tidelog scrub`: a directory of every format is good, and what is spoilt is named with its place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tidelog.cli.parser import main
from tidelog.storage.directory.scrub_file import Damage, ScrubProgress, write_progress
from tidelog.storage.filenames import SCRUB_CHECKPOINT

VECTORS = Path(__file__).parents[2] / "vectors" / "kafka-0.10.2.2"
NAMES = sorted(path.name for path in VECTORS.iterdir() if path.is_dir())


@pytest.fixture
def directory(tmp_path):
    """Logs that Kafka 0.10 wrote, of formats 0 and 1 and every codec it has."""
    for name in NAMES:
        shutil.copytree(VECTORS / name, tmp_path / "data" / name)
    return tmp_path / "data"


def scrub(capsys, *arguments):
    status = main(["scrub", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def test_logs_of_every_format_are_good(capsys, directory):
    sizes = [path.stat().st_size for path in directory.glob("*/*.log")]
    status, out, err = scrub(capsys, "--log-dirs", directory, "--with-active", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {"segments": len(sizes), "bytes": sum(sizes), "bad": []}
    assert len(sizes) > len(NAMES)
    status, out, _ = scrub(capsys, "--log-dirs", directory)
    assert (status, out.count("\n")) == (0, 1)
    assert f"{len(sizes) - len(NAMES)} segments" in out
    assert "every batch is good" in out


@pytest.mark.parametrize("name", NAMES)
def test_a_spoilt_byte_is_named_with_its_place(capsys, directory, name):
    path = min((directory / name).glob("*.log"))
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    asked = ("--log-dirs", directory, "--with-active", "--topic", name[:-2])
    status, out, _ = scrub(capsys, *asked, "--json")
    (bad,) = json.loads(out)["bad"]
    assert status == 1
    assert (bad["topic"], bad["partition"], bad["file"]) == (name[:-2], 0, str(path))
    assert 0 < bad["position"] < len(data)
    assert 0 < bad["offset"] < 200
    assert bad["reason"] == "fails its CRC"
    status, out, _ = scrub(capsys, *asked)
    assert status == 1
    assert out.splitlines()[-1].endswith(": 1 bad place.")
    assert str(bad["position"]) in out
    other = next(each for each in NAMES if each != name)
    assert scrub(capsys, "--log-dirs", directory, "--topic", other[:-2])[0] == 0


def test_a_segment_that_cannot_be_read_is_bad(capsys, directory):
    path = min((directory / NAMES[0]).glob("*.log"))
    path.unlink()
    path.mkdir()
    status, out, _ = scrub(capsys, "--log-dirs", directory, "--with-active", "--json")
    assert status == 1
    assert [each["reason"] for each in json.loads(out)["bad"]] == ["cannot be read: Is a directory"]


def test_mistakes(capsys, directory, tmp_path):
    missing = tmp_path / "missing"
    status, out, err = scrub(capsys, "--log-dirs", missing)
    assert (status, out) == (2, "")
    assert err == f"tidelog scrub: cannot read {missing}: No such file or directory\n"
    both = scrub(capsys, "--log-dirs", f"{directory},{missing}")
    assert both == (2, "", f"tidelog scrub: cannot read {missing}: No such file or directory\n")
    status, _, err = scrub(capsys, "--log-dirs", directory, "--topic", "nothing")
    assert (status, err) == (2, "tidelog scrub: there is no log of nothing in these directories\n")


def test_dump_shows_how_far_scrubbing_has_come(capsys, tmp_path):
    damage = Damage("moon", 0, 100, 3, 4_096, 117, "fails its CRC")
    write_progress(tmp_path, ScrubProgress(1_000, ("sun", 2, 50), (damage,)))
    assert main(["dump", "--json", str(tmp_path / SCRUB_CHECKPOINT)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["kind"] for line in lines] == ["pass", "damage", "verdict"]
    assert (lines[0]["topic"], lines[0]["base_offset"]) == ("sun", 50)
    assert (lines[1]["base_offset"], lines[1]["bad_batches"], lines[1]["position"]) == (
        100,
        3,
        4_096,
    )
    path = tmp_path / SCRUB_CHECKPOINT
    path.write_bytes(path.read_bytes().replace(b"moon", b"mooN"))
    assert main(["dump", str(path)]) == 1
    assert "its checksum is wrong" in capsys.readouterr().out
