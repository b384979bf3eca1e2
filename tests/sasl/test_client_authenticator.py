"""The messages of this node to a peer that authenticates it, and the responses that it accepts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.sasl import scram
from pykbroker.sasl.client_authenticator import ClientAuthenticator, ClientSession
from pykbroker.sasl.sasl_client import Derivation, Login, LoginRefused, SaltedPasswords
from pykbroker.sasl.scram import SHA_512
from pykbroker.sasl.scram_server import Decoys, ScramServer
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeResponse

LOGIN = Login("SCRAM-SHA-512", "node", "node-secret")
PLAIN = Login("PLAIN", "node", "node-secret")
SALT = b"salt"
KEYS = scram.stored_keys(SHA_512, scram.salted_password(SHA_512, "node-secret", SALT, 4096), SALT, 4096)


def server() -> ScramServer:
    return ScramServer(SHA_512, lambda number, user: KEYS if user == "node" else None, Decoys("cluster"))


def challenge(data: bytes, lifetime_ms: int = 0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(auth_bytes=data, session_lifetime_ms=lifetime_ms)


def begun(login: Login, salted: SaltedPasswords | None = None) -> tuple[ClientAuthenticator, bytes]:
    """Return an exchange that has agreed on the mechanism, and its first token."""
    authenticator = ClientAuthenticator(login, salted or SaltedPasswords())
    assert authenticator.begin().mechanism == login.mechanism
    return authenticator, authenticator.handshaken(SaslHandshakeResponse(mechanisms=[login.mechanism])).auth_bytes


@pytest.mark.parametrize(("lifetime_ms", "session"), [(0, None), (5_000, 5_000)])
def test_plain_is_one_token(lifetime_ms: int, session: int | None) -> None:
    authenticator, token = begun(PLAIN)
    assert token == b"\0node\0node-secret"
    assert authenticator.receive(challenge(b"", lifetime_ms)) == ClientSession(session)


def test_scram_is_two_tokens_and_the_second_time_costs_no_derivation() -> None:
    salted = SaltedPasswords()
    for number in range(2):
        authenticator, token = begun(LOGIN, salted)
        peer = server()
        first = challenge(peer.evaluate(token))
        wanted = authenticator.derivation(first)
        assert wanted == (Derivation(SALT, 4096) if number == 0 else None)
        if wanted is not None:
            salted.keep(wanted, authenticator.derive(wanted))
        following = authenticator.receive(first)
        assert isinstance(following, SaslAuthenticateRequest)
        last = challenge(peer.evaluate(following.auth_bytes))
        assert authenticator.derivation(last) is None
        assert authenticator.receive(last) == ClientSession(None)
        assert peer.user == "node"


def test_few_salted_passwords_are_kept_and_none_is_shown() -> None:
    salted = SaltedPasswords()
    for number in range(1_000):
        salted.keep(Derivation(b"%d" % number, 4096), b"secret")
    assert salted.find(Derivation(b"999", 4096)) == b"secret"
    assert salted.find(Derivation(b"900", 4096)) is None
    assert "secret" not in repr(salted)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, r"does not serve PLAIN, only GSSAPI, a\\nb"),
        (ErrorCode.ILLEGAL_SASL_STATE, "asks for no SASL"),
        (ErrorCode.UNSUPPORTED_VERSION, "UNSUPPORTED_VERSION"),
    ],
)
def test_a_handshake_that_is_refused(error: ErrorCode, said: str) -> None:
    authenticator = ClientAuthenticator(PLAIN, SaltedPasswords())
    authenticator.begin()
    with pytest.raises(LoginRefused, match=said):
        authenticator.handshaken(SaslHandshakeResponse(error_code=error, mechanisms=["GSSAPI", "a\nb"]))


def test_a_password_that_is_refused_says_so_in_the_peers_words() -> None:
    authenticator, _ = begun(PLAIN)
    refused = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no\nentry " + "x" * 1000
    )
    with pytest.raises(LoginRefused, match=r"SASL_AUTHENTICATION_FAILED: no\\nentry x+$") as raised:
        authenticator.receive(refused)
    assert len(str(raised.value)) < 300
    # The exchange cannot continue.
    with pytest.raises(LoginRefused):
        authenticator.receive(challenge(b""))


def test_a_peer_that_does_not_know_the_key_is_not_believed() -> None:
    authenticator, token = begun(LOGIN)
    following = authenticator.receive(challenge(server().evaluate(token)))
    assert isinstance(following, SaslAuthenticateRequest)
    signature = scram.to_base64(bytes(64)).encode()
    with pytest.raises(LoginRefused, match="does not prove"):
        authenticator.receive(challenge(b"v=" + signature))


@pytest.mark.slow
@given(st.lists(st.one_of(st.binary(max_size=80), st.just(b"")), max_size=4), st.integers(0, 3))
def test_no_answer_but_the_right_ones_makes_a_session(answers: list[bytes], honest: int) -> None:
    """The first `honest` responses are the server's; no random one replaces its signature."""
    authenticator, token = begun(LOGIN)
    peer = server()
    answered = 0
    try:
        for data in answers:
            is_honest = answered < honest
            response = challenge(peer.evaluate(token) if is_honest else data)
            following = authenticator.receive(response)
            answered += 1
            if isinstance(following, ClientSession):
                assert honest >= 2
                assert peer.user == "node"
                return
            token = following.auth_bytes
    except LoginRefused:
        return
