"""Kafka's text files: the bytes it writes are read, the bytes we write are its own."""

import uuid

import pytest

from tidelog.storage import checkpoints
from tidelog.storage.checkpoints import CheckpointError


def test_an_offset_checkpoint_is_kafkas(tmp_path):
    path = tmp_path / "recovery-point-offset-checkpoint"
    checkpoints.write_offsets(path, {("t", 1): 20, ("a-b", 0): 3})
    assert path.read_bytes() == b"0\n2\na-b 0 3\nt 1 20\n"
    assert checkpoints.read_offsets(path) == {("t", 1): 20, ("a-b", 0): 3}
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_missing_checkpoint_is_empty(tmp_path):
    assert checkpoints.read_offsets(tmp_path / "none") == {}
    assert checkpoints.read_epochs(tmp_path / "none") == []
    assert checkpoints.read_topic_id(tmp_path) is None


def test_kafka_makes_a_checkpoint_of_no_bytes_before_it_has_entries(tmp_path):
    path = tmp_path / "cleaner-offset-checkpoint"
    path.touch()
    assert checkpoints.read_offsets(path) == {}
    assert checkpoints.read_epochs(path) == []


@pytest.mark.parametrize(
    "text",
    ["\n", "0\n", "1\n0\n", "0\n2\nt 0 1\n", "0\n1\nt 0\n", "0\n1\nt 0 x\n", "0\nx\n", "\xff\n\n"],
)
def test_a_broken_checkpoint_says_so(tmp_path, text):
    path = tmp_path / "checkpoint"
    path.write_text(text)
    with pytest.raises(CheckpointError, match="checkpoint"):
        checkpoints.read_offsets(path)


def test_leader_epochs(tmp_path):
    path = tmp_path / "leader-epoch-checkpoint"
    checkpoints.write_epochs(path, [(0, 0), (3, 17)])
    assert path.read_bytes() == b"0\n2\n0 0\n3 17\n"
    assert checkpoints.read_epochs(path) == [(0, 0), (3, 17)]
    path.write_text("0\n2\n3 17\n1 20\n")
    with pytest.raises(CheckpointError, match="goes back"):
        checkpoints.read_epochs(path)


def test_partition_metadata_is_kafkas(tmp_path):
    topic_id = checkpoints.parse_topic_id("MzMtxf0jTkGCr7CmSIVnzg")
    checkpoints.write_topic_id(tmp_path, topic_id)
    written = (tmp_path / "partition.metadata").read_text()
    assert written == "version: 0\ntopic_id: MzMtxf0jTkGCr7CmSIVnzg\n"
    assert checkpoints.read_topic_id(tmp_path) == topic_id
    assert checkpoints.parse_topic_id(checkpoints.format_topic_id(uuid.UUID(int=1))).int == 1


@pytest.mark.parametrize("text", ["", "version: 1\ntopic_id: x\n", "version: 0\ntopic_id: a\n"])
def test_broken_partition_metadata_says_so(tmp_path, text):
    (tmp_path / "partition.metadata").write_text(text)
    with pytest.raises(CheckpointError):
        checkpoints.read_topic_id(tmp_path)
