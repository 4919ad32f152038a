"""The properties syntax, case by case from the documentation of java.util.Properties.load."""

from __future__ import annotations

import pytest

from tidelog.config.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a \t = \t b ", {"a": "b "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a = : b", {"a": ": b"}),
        ("# c\n! d\n\n  # e\na=1", {"a": "1"}),
        ("a=1\r\nb=2\rc=3\nd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x,\\\n   y,\\\n\tz", {"a": "x,y,z"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=x\\\n# no comment", {"a": "x# no comment"}),
        ("a=x\\", {"a": "x"}),
        ("a\\ b\\=c\\:d = e", {"a b=c:d": "e"}),
        ("a=\\t\\n\\r\\f\\\\\\z\\u00e9", {"a": "\t\n\r\f\\zé"}),
        ("path=C:\\\\logs", {"path": "C:\\logs"}),
        ("listeners=PLAINTEXT://:9092,B://[::1]:0", {"listeners": "PLAINTEXT://:9092,B://[::1]:0"}),
        ("ключ=значение", {"ключ": "значение"}),
        ("", {}),
    ],
)
def test_syntax(text, expected):
    assert parse_properties(text) == expected
