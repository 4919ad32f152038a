"""The sender in the header of a broker's request: read by us, and passed over by everybody else."""

from __future__ import annotations

import io

import pytest
from kafka.protocol.api_header import RequestHeader

from tidelog.protocol.message import DecodeError, read_request_header
from tidelog.protocol.sender import Sender, written_tags
from tidelog.protocol.wire import skip_tags

SENDER = Sender(2, 2**40, bytes(range(16)))
HEAD = bytes.fromhex("0001 0011 00000005 0001 63")  # Fetch v17
TAGS = bytes.fromhex("01 ece801 1c 00000002 0000010000000000") + SENDER.proof


def test_what_is_written_is_read():
    assert written_tags(SENDER) == TAGS
    assert read_request_header(HEAD + TAGS + b"body") == (1, 17, 5, "c", len(HEAD + TAGS), SENDER)


def test_among_other_tags():
    tags = b"\3\x07\2ab" + TAGS[1:] + bytes.fromhex("ede801 00")
    header = read_request_header(HEAD + tags)
    assert (header.sender, header.body_offset) == (SENDER, len(HEAD + tags))


@pytest.mark.parametrize("tags", ["00", "01 07 02 aabb", "01 ece801 03 aabbcc", "01 ebe801 00"])
def test_none_in_other_headers(tags):
    assert read_request_header(HEAD + bytes.fromhex(tags)).sender is None


@pytest.mark.parametrize("cut", [1, 5, 20, 32])
def test_one_that_is_cut_short_is_no_header(cut):
    with pytest.raises(DecodeError):
        read_request_header(HEAD + TAGS[:cut])


def test_readers_of_kafkas_header_and_an_older_tidelog_pass_over_it():
    frame = HEAD + TAGS + b"body"
    rest = io.BytesIO(frame)
    header = RequestHeader.decode(rest, True)
    assert (header.request_api_key, header.correlation_id, rest.read()) == (1, 5, b"body")
    assert skip_tags(frame, len(HEAD), len(frame)) == len(frame) - 4  # all that it did with tags
