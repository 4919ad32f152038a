"""Topic names and ids, by Kafka's rules."""

from __future__ import annotations

import base64

import pytest

from tidelog.broker.metadata.names import check_topic_name, collision_key, new_id, written_id
from tidelog.protocol.errors import InvalidTopic


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249, "-", "__consumer_offsets"])
def test_allowed(name):
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "must not be empty"),
        (".", "cannot be called '.'"),
        ("..", "cannot be called '..'"),
        ("x" * 250, "at most 249 characters, this one has 250"),
        ("a b", "'a b' has characters other than"),
        ("a/b", "'a/b' has characters other than"),
        ("é", "has characters other than"),
        ("٣", "has characters other than"),
        ("a\n", "has characters other than"),
        ("a\x00", "has characters other than"),
    ],
)
def test_refused(name, sentence):
    with pytest.raises(InvalidTopic) as caught:
        check_topic_name(name)
    assert sentence in caught.value.message


def test_dots_and_underscores_collide():
    assert collision_key("a.b_c") == collision_key("a_b.c") != collision_key("a-b_c")


def test_ids_are_22_characters_of_base64_that_no_command_line_takes_for_an_option():
    for _ in range(300):
        chosen = new_id()
        text = written_id(chosen)
        assert len(text) == 22
        assert not text.startswith("-")
        assert base64.urlsafe_b64decode(text + "==") == chosen.bytes
