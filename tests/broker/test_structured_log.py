"""How the broker logs failures: an error of the protocol in one line, any other with a traceback."""

from __future__ import annotations

import logging

from broker.structured_log import Logfmt
from protocol.errors import KafkaStorageError

LOG = logging.getLogger("tidelog.tests")


def logged(caplog, error):
    try:
        raise error
    except type(error):
        LOG.exception("the work failed", extra={"log": "orders-0"})
    return Logfmt().format(caplog.records[-1]).split(" ", 1)[1].splitlines()


def test_an_error_of_the_protocol_is_one_line_with_its_reason(caplog):
    assert logged(caplog, KafkaStorageError("the metadata do not answer")) == [
        (
            'level=error logger=tidelog.tests msg="the work failed" log=orders-0 '
            'reason="the metadata do not answer"'
        )
    ]


def test_any_other_error_has_a_traceback(caplog):
    first, *traceback = logged(caplog, ZeroDivisionError("a fault of the broker"))
    assert first == 'level=error logger=tidelog.tests msg="the work failed" log=orders-0'
    assert traceback[0] == "  Traceback (most recent call last):"
    assert traceback[-1] == "  ZeroDivisionError: a fault of the broker"
