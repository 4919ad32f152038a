"""Error codes and the exceptions that carry them, judged by kio's table of Kafka 4."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from tidelog.protocol import errors, group_errors
from tidelog.protocol.error_class import error_class
from tidelog.protocol.error_codes import ERRORS
from tidelog.protocol.errors import BrokerError, ErrorCode, RecordError


def subclasses() -> list[type[BrokerError]]:
    return BrokerError.__subclasses__()


def test_kio_agrees_on_names_and_retriability():
    for theirs in KioErrorCode:
        ours = ERRORS[theirs.value]
        assert ours.name.lower() == theirs.name
        assert ours.retriable == theirs.retriable


def test_codes_are_dense_and_have_a_sentence_each():
    assert sorted(ERRORS) == list(range(-1, 137))
    sentences = [code.sentence for code in ERRORS.values()]
    assert len(set(sentences)) == len(sentences)
    assert all(sentence.endswith(".") for sentence in sentences)


def test_a_code_is_an_int():
    assert ErrorCode.INVALID_TIMESTAMP == 32
    assert ErrorCode(32).sentence == ERRORS[32].sentence


@pytest.mark.parametrize("cls", subclasses(), ids=lambda cls: cls.__name__)
def test_a_class_is_named_after_its_code(cls):
    expected = "".join(word.capitalize() for word in cls.code.name.split("_"))
    assert cls.__name__ == expected.removesuffix("Exception")
    assert cls in (getattr(module, cls.__name__, None) for module in (errors, group_errors))
    assert error_class(cls.code) is cls


def test_two_classes_for_one_code_are_refused():
    with pytest.raises(TypeError, match="InvalidTimestamp"):
        type("Other", (BrokerError,), {}, code=ErrorCode.INVALID_TIMESTAMP)


def test_the_message_falls_back_to_the_sentence():
    assert errors.InvalidRecord().message == ErrorCode.INVALID_RECORD.sentence
    assert errors.InvalidRecord("three").message == str(errors.InvalidRecord("three")) == "three"


def test_record_errors_are_kept():
    error = errors.InvalidTimestamp(record_errors=[RecordError(3, "late")])
    assert error.record_errors == (RecordError(3, "late"),)
    assert error.code is ErrorCode.INVALID_TIMESTAMP


def test_no_class_for_codes_nobody_raises():
    assert error_class(ErrorCode.NONE) is None
    assert error_class(12345) is None


def test_a_special_case_shares_the_code_and_does_not_stand_for_it():
    assert errors.UnpackedTooLarge.code is ErrorCode.CORRUPT_MESSAGE
    assert error_class(ErrorCode.CORRUPT_MESSAGE) is errors.CorruptMessage
