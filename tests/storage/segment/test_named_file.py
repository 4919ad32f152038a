"""A file is opened through its object: by its name now, never as what took its name."""

import threading

import pytest

from tidelog.storage import files
from tidelog.storage.segment.log_file import Tail
from tidelog.storage.segment.named_file import NamedFile
from tidelog.storage.segment.segment import Segment

SUFFIXES = (".log", ".index", ".timeindex", ".appendtimes")


def read(descriptor):
    return files.read_at(descriptor, 100, 0)


def test_a_renamed_file_is_opened_by_its_new_name(tmp_path):
    path, away = tmp_path / "a", tmp_path / "a.deleted"
    path.write_bytes(b"old")
    file = NamedFile(path)
    file.rename(away)
    path.write_bytes(b"new")
    assert (read(file.open()), file.read(), file.path) == (b"old", b"old", away)


def test_a_failed_renaming_changes_nothing(tmp_path):
    file = NamedFile(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        file.rename(tmp_path / "b")
    assert file.path == tmp_path / "a"


def test_a_file_given_up_is_never_opened_again(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"another")
    file = NamedFile(path)
    file.give_up()
    for open_it in (file.open, file.read):
        with pytest.raises(FileNotFoundError):
            open_it()


def test_whoever_opens_beside_a_renaming_opens_the_old_file(tmp_path):
    """The name changes, and another file takes it, at any time beside the reader."""
    path = tmp_path / "a"
    path.write_bytes(b"0")
    file, stop, wrong = NamedFile(path), threading.Event(), []

    def look():
        while not stop.is_set():
            if read(file.open()) != b"0":
                wrong.append(file.path)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(300):
            before = file.path
            file.rename(tmp_path / f"a.{number}")
            before.write_bytes(b"another")
    finally:
        stop.set()
        reader.join(30)
    assert wrong == []


def test_all_files_of_a_segment_follow_their_names(tmp_path, monkeypatch):
    """A segment that rests, for others were used since, opens what is its own, not its successor's."""
    monkeypatch.setattr(files, "RECENT", files.Recent(1))
    for suffix in SUFFIXES:
        (tmp_path / f"{7:020d}{suffix}").write_bytes(b"old" + suffix.encode())
    segment = Segment(tmp_path, 7, Tail(8, 7))
    read(segment.files.of(".log").open())
    segment.files.rename_away()
    segment.rest()
    for suffix in SUFFIXES:
        (tmp_path / f"{7:020d}{suffix}").write_bytes(b"new" + suffix.encode())
    for suffix in SUFFIXES:
        assert segment.files.of(suffix).read() == b"old" + suffix.encode()
    segment.give_up()
    for suffix in SUFFIXES:
        with pytest.raises(FileNotFoundError):
            segment.files.of(suffix).open()
