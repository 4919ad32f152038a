"""Kafka's small text files: offset checkpoints, leader epochs, partition.metadata.

A checkpoint has a version line (`0`), a line with the number of entries, and then one entry a line,
with fields separated by spaces:

    recovery-point-offset-checkpoint, log-start-offset-checkpoint,
    replication-offset-checkpoint        topic partition offset
    leader-epoch-checkpoint              epoch start-offset

They are replaced whole by rename, so a crash leaves the old one or the new one. A caller that can
do without one that cannot be read catches `CheckpointError`.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage import filenames, files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tidelog.protocol.topic_partition import TopicPartition

_VERSION = "0"


class CheckpointError(ValueError):
    """A checkpoint file does not hold what its format promises."""


class EpochStart(NamedTuple):
    """From `start_offset` on, batches were appended by the leader of `epoch` (KIP-101)."""

    epoch: int
    start_offset: int


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Reads an offset checkpoint: (topic, partition) -> offset.

    A missing or empty file has no entries.

    Raises CheckpointError.
    """
    return _offsets(path, _read_lines(path))


def parse_offsets(name: str, data: bytes) -> dict[TopicPartition, int]:
    """Parses the bytes of an offset checkpoint; `name` stands in error messages.

    Raises CheckpointError.
    """
    return _offsets(name, _lines(name, data.decode(errors="replace")))


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces an offset checkpoint; raises OSError."""
    _write_lines(
        path, [f"{topic} {index} {offset}" for (topic, index), offset in sorted(offsets.items())]
    )


def read_epochs(path: Path) -> list[EpochStart]:
    """Reads a leader-epoch-checkpoint, oldest entry first. A missing or empty file has no entries.

    Raises CheckpointError.
    """
    epochs: list[EpochStart] = []
    for line in _read_lines(path):
        fields = line.split()
        if len(fields) != 2:
            raise CheckpointError(f"{path} has a line that is not 'epoch offset'")
        entry = EpochStart(_number(path, fields[0]), _number(path, fields[1]))
        if epochs and (entry.epoch <= epochs[-1].epoch or entry.start_offset < epochs[-1][1]):
            raise CheckpointError(f"{path} goes back at epoch {entry.epoch}")
        epochs.append(entry)
    return epochs


def write_epochs(path: Path, epochs: Iterable[EpochStart]) -> None:
    """Replaces a leader-epoch-checkpoint, not yet durably; raises OSError."""
    _write_lines(path, [f"{epoch} {start}" for epoch, start in epochs], durable=False)


def read_topic_id(directory: Path) -> uuid.UUID | None:
    """Reads the topic id from a partition's partition.metadata; None when there is no such file.

    Raises CheckpointError.
    """
    path = directory / filenames.PARTITION_METADATA_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return parse_metadata(path, data)


def parse_metadata(path: Path | str, data: bytes) -> uuid.UUID:
    """Returns the topic id in the bytes of a partition.metadata; raises CheckpointError."""
    text = data.decode("utf-8", errors="replace")
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if fields.get("version", "").strip() != _VERSION or "topic_id" not in fields:
        raise CheckpointError(f"{path} is not a partition.metadata of version 0")
    return parse_topic_id(fields["topic_id"].strip())


def write_topic_id(directory: Path, topic_id: uuid.UUID) -> None:
    """Writes a partition's partition.metadata, durable with the first flush; raises OSError."""
    text = f"version: {_VERSION}\ntopic_id: {format_topic_id(topic_id)}\n"
    path = directory / filenames.PARTITION_METADATA_FILE
    files.replace(path, text.encode(), durable=False)


def remove_topic_id(directory: Path) -> None:
    """Removes a partition's partition.metadata, if there is one; raises OSError."""
    files.unlink(directory / filenames.PARTITION_METADATA_FILE)


def format_topic_id(topic_id: uuid.UUID) -> str:
    """Returns an id as Kafka shows it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def parse_topic_id(text: str) -> uuid.UUID:
    """Returns the id that Kafka shows as this text; raises CheckpointError."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error) as error:
        raise CheckpointError(f"'{text}' is not a topic id") from error


def _offsets(name: Path | str, lines: list[str]) -> dict[TopicPartition, int]:
    offsets = {}
    for line in lines:
        fields = line.split()
        if len(fields) != 3:
            raise CheckpointError(f"{name} has a line that is not 'topic partition offset'")
        offsets[fields[0], _number(name, fields[1])] = _number(name, fields[2])
    return offsets


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return _lines(path, text) if text else []  # Kafka creates the file before it writes to it


def _lines(path: Path | str, text: str) -> list[str]:
    """Returns the entries of a checkpoint, one line each."""
    lines = text.splitlines()
    if len(lines) < 2 or lines[0].strip() != _VERSION:
        raise CheckpointError(f"{path} is not a checkpoint of version {_VERSION}")
    entries = [line for line in lines[2:] if line.strip()]
    if _number(path, lines[1]) != len(entries):
        raise CheckpointError(f"{path} announces {lines[1]} entries and has {len(entries)}")
    return entries


def _write_lines(path: Path, lines: list[str], *, durable: bool = True) -> None:
    data = "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()
    files.replace(path, data, durable=durable)


def _number(path: Path | str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise CheckpointError(f"{path} has '{text}' where a number belongs") from error
