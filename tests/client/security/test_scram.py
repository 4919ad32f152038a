"""SCRAM without a broker: the exchange of RFC 7677, and brokers that lie."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.errors import AuthenticationFailed
from tidelog.client.security import scram
from tidelog.client.security.secret import HiddenValue

NONCE = "rOprNGfwEbeRWgbNEkqO"
JOINED = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"r={JOINED},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
LAST = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def begun(user="user", password="pencil", mechanism="SCRAM-SHA-256"):
    steps = scram.exchange(mechanism, user, HiddenValue(password), NONCE)
    return steps, next(steps)


def test_the_exchange_of_rfc_7677():
    steps, first = begun()
    assert first == f"n,,n=user,r={NONCE}".encode()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert steps.send(FIRST.encode()) == f"c=biws,r={JOINED},p={proof}".encode()
    with pytest.raises(StopIteration):
        steps.send(LAST.encode())


def test_names_are_escaped():
    assert begun(user="a=b,c")[1] == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()


def test_a_broker_that_does_not_know_the_password_is_an_impostor():
    steps, _ = begun()
    steps.send(FIRST.encode())
    forged = base64.b64encode(bytes(32)).decode()
    with pytest.raises(AuthenticationFailed, match=r"signature is wrong.*impostor"):
        steps.send(f"v={forged}".encode())


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (FIRST.replace(JOINED, NONCE), "nonce does not continue"),
        (FIRST.replace(JOINED, "x" + JOINED), "nonce does not continue"),
        (FIRST.replace("4096", "4095"), "wants 4095 iterations"),
        (FIRST.replace("4096", "1000001"), "wants 1000001 iterations"),
        (FIRST.replace("4096", "0"), "wants 0 iterations"),
        (FIRST.replace("4096", "-1"), "first SCRAM message is malformed"),
        (FIRST.replace("4096", "9" * 4000), "first SCRAM message is malformed"),
        ("m=ext," + FIRST, "first SCRAM message is malformed"),
        (FIRST.replace("s=W22Z", "s=W22"), "first SCRAM message is malformed"),
        (FIRST.replace("s=W22ZaJ0SNY7soEsUEjb6gQ==", "s="), "first SCRAM message is malformed"),
        ("", "first SCRAM message is malformed"),
        ("e=unknown-user", "refuses the login .'unknown-user'"),
    ],
)
def test_a_first_message_that_is_wrong(message, sentence):
    steps, _ = begun()
    with pytest.raises(AuthenticationFailed, match=sentence):
        steps.send(message.encode())


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (b"e=invalid-proof", "refuses the login .'invalid-proof'"),
        (b"", "last SCRAM message is malformed"),
        (b"v=", "last SCRAM message is malformed"),
        (b"v=!!!!", "last SCRAM message is malformed"),
        (b"v=" + LAST[2:-2].encode(), "last SCRAM message is malformed"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_last_message_that_is_wrong(message, sentence):
    steps, _ = begun()
    steps.send(FIRST.encode())
    with pytest.raises(AuthenticationFailed, match=sentence):
        steps.send(message)


@given(first=st.binary(max_size=200), last=st.binary(max_size=100))
def test_no_bytes_are_taken_for_a_proof(first, last):
    steps, _ = begun()
    with pytest.raises(AuthenticationFailed):
        steps.send(first)
    steps, _ = begun()
    steps.send(FIRST.encode())
    with pytest.raises(AuthenticationFailed):
        steps.send(last)
