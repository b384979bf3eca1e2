"""PLAIN, with the responses of Apache Kafka's PlainSaslServer."""

from __future__ import annotations

import pytest

from pykbroker.sasl.plain_server import PlainServer, PlainUsers
from pykbroker.sasl.sasl_client import Login, LoginRefused, PlainClient
from pykbroker.sasl.sasl_server import AuthenticationFailed

USERS = PlainUsers(
    {"username": "admin", "password": "x", "user_alice": "alice-secret", "user_": "nameless", "user_e": ""}
)


def outcome(token: bytes) -> str | None:
    one = PlainServer(USERS)
    try:
        assert one.evaluate(token) == b""
    except AuthenticationFailed as error:
        assert one.user is None
        return str(error)
    return one.user


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (b"\0alice\0alice-secret", "alice"),
        (b"alice\0alice\0alice-secret", "alice"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0alice-secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0x\0y\0z\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0nameless", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0e\0", "Authentication failed: password not specified"),
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0bob\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0Alice\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0admin\0x", "Authentication failed: Invalid username or password"),
        (b"\0alice\0alice-secret\xff", "Authentication failed: Invalid username or password"),
        (b"\0" + b"a" * 300_000 + b"\0b", "Authentication failed: Invalid username or password"),
        (
            b"admin\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_what_a_token_leads_to(token: bytes, expected: str) -> None:
    assert outcome(token) == expected


def test_the_client_says_what_the_server_takes() -> None:
    one, other = PlainServer(USERS), PlainClient(Login("PLAIN", "alice", "alice-secret"))
    assert other.evaluate(one.evaluate(other.first())) is None
    assert other.is_complete
    assert one.user == "alice"
    with pytest.raises(LoginRefused):
        PlainClient(Login("PLAIN", "alice", "alice-secret")).evaluate(b"more")


def test_the_text_of_users_has_no_secret() -> None:
    assert repr(USERS) == "PlainUsers([hidden])"
