"""The grammar of sasl.jaas.config; errors show no value."""

from __future__ import annotations

import pytest

from tidelog.client.errors import SecuritySettingsError
from tidelog.client.security.jaas import parse_jaas


def options(text):
    login = parse_jaas(text)
    return login.module, {name: value.reveal() for name, value in login.options.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a.B required username="u" password="p";', {"username": "u", "password": "p"}),
        ("a.B REQUIRED username=u password=p ;", {"username": "u", "password": "p"}),
        ('a.B required\n  username="u"\n  password = "p w";', {"username": "u", "password": "p w"}),
        (r'a.B required password="a\"b\\c;=d";', {"password": r'a"b\c;=d'}),
        ("a.B required;", {}),
        ('a.B required // a comment\n /* another */ k="v";', {"k": "v"}),
        ('a.B required k="";', {"k": ""}),
    ],
)
def test_what_java_reads(text, expected):
    assert options(text) == ("a.B", expected)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "write it as CLASS required"),
        ('username="hunter2"', "write it as CLASS required"),
        ('a.B username="hunter2";', "write it as CLASS required"),
        ('a.B required password="hunter2"', "must end with a semicolon"),
        ('a.B required password="hunter2;', "quotation mark is not closed"),
        ("a.B required password hunter2;", 'option 1 is not key="value"'),
        ("a.B required password=;", 'option 1 is not key="value"'),
        ("a.B required k=v hunter2;", 'option 2 is not key="value"'),
        ("a.B required k=v k=hunter2;", "k is given twice"),
        ("a.B required k=hunter2; a.C required k=hunter2;", "must have one login module"),
    ],
)
def test_what_java_refuses(text, sentence):
    with pytest.raises(SecuritySettingsError, match=sentence) as told:
        parse_jaas(text)
    assert "hunter2" not in str(told.value)
