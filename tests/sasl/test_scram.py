"""Both sides of SCRAM against the example of RFC 7677, each other, and tampered messages."""

from __future__ import annotations

import base64
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.sasl import scram
from pykbroker.sasl.sasl_client import Login, LoginRefused, ScramClient
from pykbroker.sasl.sasl_server import AuthenticationFailed, InvalidCredentials
from pykbroker.sasl.scram import SHA_256, SHA_512, ScramMechanism
from pykbroker.sasl.scram_server import Decoys, ScramServer
from pykbroker.security.stored_keys import StoredKeys

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
DECOYS = Decoys("MkU3OEVBNTcwNTJENDM2Qk")


def keys_of(
    password: str, mechanism: ScramMechanism = SHA_256, salt: bytes = SALT, iterations: int = 4096
) -> StoredKeys:
    return scram.stored_keys(mechanism, scram.salted_password(mechanism, password, salt, iterations), salt, iterations)


KEYS = {(1, "user"): keys_of("pencil"), (2, "user"): keys_of("pencil", SHA_512), (1, "a,b=c"): keys_of("x")}


def server(mechanism: ScramMechanism = SHA_256, nonce: str = SERVER_NONCE) -> ScramServer:
    return ScramServer(mechanism, lambda number, user: KEYS.get((number, user)), DECOYS, lambda: nonce)


def client(user: str = "user", password: str = "pencil", mechanism: ScramMechanism = SHA_256) -> ScramClient:
    return ScramClient(Login(mechanism.name, user, password), mechanism, lambda: CLIENT_NONCE)


def test_the_example_of_rfc_7677() -> None:
    one, other = server(), client()
    assert other.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = one.evaluate(other.first())
    assert challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proof = other.evaluate(challenge)
    assert proof == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert one.user is None
    last = one.evaluate(proof)
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert other.evaluate(last) is None
    assert one.user == "user"
    assert other.is_complete


@pytest.mark.parametrize(
    ("user", "password", "mechanism"),
    [("user", "pencil", SHA_256), ("user", "pencil", SHA_512), ("a,b=c", "x", SHA_256)],
)
def test_both_sides_agree(user: str, password: str, mechanism: ScramMechanism) -> None:
    one, other = server(mechanism), client(user, password, mechanism)
    proof = other.evaluate(one.evaluate(other.first()))
    assert proof is not None
    assert other.evaluate(one.evaluate(proof)) is None
    assert one.user == user


FIRST = b"n,,n=user,r=" + CLIENT_NONCE.encode()
#: the largest request before authentication (sasl.server.max.receive.size)
LARGE = 524_288


@pytest.mark.parametrize(
    "token",
    [
        b"n,,n=" + b"a" * LARGE + b",r=x",
        FIRST + b"a" * LARGE,
        FIRST + b",a=b" * (LARGE // 4),
        FIRST + b",a=b" * (LARGE // 4) + b",",
    ],
    ids=["a long name", "a long nonce", "many extensions", "many extensions and no end"],
)
def test_a_first_message_that_is_too_long_costs_no_more_than_its_bytes(token: bytes) -> None:
    """Formerly one took 100 MiB and a quarter of a second, from a client without authentication."""
    tracemalloc.start()
    with pytest.raises(InvalidCredentials, match="Invalid SCRAM client first message format"):
        server().evaluate(token)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < LARGE


@pytest.mark.parametrize("end", [b"AAAA" * (LARGE // 4), b"!" * LARGE])
def test_a_last_message_that_is_too_long_costs_no_more_than_its_bytes(end: bytes) -> None:
    one = server()
    one.evaluate(FIRST)
    token = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=".encode() + end
    tracemalloc.start()
    with pytest.raises(InvalidCredentials, match="Invalid SCRAM client final message format"):
        one.evaluate(token)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < LARGE


def test_a_message_as_long_as_allowed_is_read() -> None:
    token = FIRST + b"x" * (scram.MAX_MESSAGE_BYTES - len(FIRST))
    assert server().evaluate(token).startswith(b"r=" + CLIENT_NONCE.encode() + b"xx")
    with pytest.raises(InvalidCredentials):
        server().evaluate(token + b"x")


@pytest.mark.parametrize(
    ("user", "password", "mechanism"),
    [("user", "Pencil", SHA_256), ("user", "", SHA_256), ("other", "pencil", SHA_256), ("a,b=c", "x", SHA_512)],
)
def test_a_wrong_password_and_an_unknown_user_fail_at_the_last_step_alike(
    user: str, password: str, mechanism: ScramMechanism
) -> None:
    one, other = server(mechanism), client(user, password, mechanism)
    proof = other.evaluate(one.evaluate(other.first()))
    assert proof is not None
    with pytest.raises(InvalidCredentials, match=r"^Invalid client credentials$"):
        one.evaluate(proof)
    assert one.user is None


def test_an_unknown_user_has_one_salt_in_one_cluster_in_the_shape_of_a_real_one() -> None:
    first = b"n,,n=nobody,r=abc"
    salts = {
        scram.parse_server_first(ScramServer(mechanism, lambda number, user: None, decoys).evaluate(first)).salt
        for mechanism in (SHA_256, SHA_512)
        for decoys in (DECOYS, Decoys("MkU3OEVBNTcwNTJENDM2Qk"), Decoys("another"))
        for _ in range(3)
    }
    assert len(salts) == 4
    assert all(re.fullmatch(rb"[0-9a-z]{20,26}", salt) for salt in salts)
    assert re.fullmatch("[0-9a-z]{20,26}", scram.random_string())


class _Counted(Decoys):
    made = 0

    def keys_for(self, mechanism: ScramMechanism, user: str) -> StoredKeys:
        self.made += 1
        return super().keys_for(mechanism, user)


@pytest.mark.parametrize("keys", [None, keys_of("pencil")], ids=["unknown", "known"])
def test_the_work_of_a_first_message_does_not_tell_who_exists(keys: StoredKeys | None) -> None:
    decoys = _Counted("")
    ScramServer(SHA_256, lambda number, user: keys, decoys).evaluate(b"n,,n=user,r=abc")
    assert decoys.made == 1


class _Guessed(Decoys):
    def keys_for(self, mechanism: ScramMechanism, user: str) -> StoredKeys:
        return keys_of("pencil")


def test_the_key_of_an_unknown_user_opens_nothing() -> None:
    """It opens nothing even for a client that has found a password for it."""
    one, other = ScramServer(SHA_256, lambda number, user: None, _Guessed("")), client()
    proof = other.evaluate(one.evaluate(other.first()))
    assert proof is not None
    with pytest.raises(InvalidCredentials):
        one.evaluate(proof)
    assert one.user is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=must,n=user,r=abc",
        b"n,,n=user,r=abc,m",
        b"n,,n=us\0er,r=abc",
        b"n,,n=us\xffer,r=abc",
        "n,,n=üser,r=abc".encode(),
        b"n,,n=user,r=ab c",
        b"n,,n=user,r=abc\n",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,,n=user,r=abc,tokenauth=TRUE",
    ],
)
def test_a_first_message_that_is_none_fails(first: bytes) -> None:
    one = server()
    with pytest.raises(InvalidCredentials) as failed:
        one.evaluate(first)
    assert "user" not in str(failed.value)
    with pytest.raises(InvalidCredentials):
        one.evaluate(b"n,,n=user,r=abc")


@pytest.mark.parametrize("name", ["user", "nobody"])
def test_a_client_may_ask_to_act_as_itself_alone(name: str) -> None:
    """CVE-2017-12610. The same for a user that does not exist."""
    assert server().evaluate(f"n,a={name},n={name},r=abc".encode()).startswith(b"r=abc")
    with pytest.raises(AuthenticationFailed, match=r"authorization id that is different from username$"):
        server().evaluate(f"n,a=admin,n={name},r=abc".encode())


def test_names_are_decoded_before_they_are_compared() -> None:
    assert server().evaluate(b"n,a=a=2Cb=3Dc,n=a=2Cb=3Dc,r=abc").startswith(b"r=abc")


def exchange() -> tuple[ScramServer, bytes]:
    """Return a server that waits for the last message, and the correct one."""
    one, other = server(), client()
    proof = other.evaluate(one.evaluate(other.first()))
    assert proof is not None
    return one, proof


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # CVE-2024-56128: the whole nonce counts.
        (b"r=rOpr", b"r=Xrpr"),
        (b"$k0,p", b"$k1,p"),
        (b"r=rOpr", b"r=prefix-rOpr"),
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c=biwsbiws"),
        (b"c=biws", b"c="),
        (b"p=dH", b"p=dI"),
        # The same bytes, written differently.
        (b"AndVQ=", b"AndVR="),
        (b"p=dHzb", b"p="),
        (b",p=", b",q="),
        (b",p=", b",x=y,p="),
        (b",r=", b",,r="),
        (b"c=", b"C="),
    ],
)
def test_a_changed_last_message_fails(old: bytes, new: bytes) -> None:
    one, proof = exchange()
    assert old in proof
    with pytest.raises(InvalidCredentials):
        one.evaluate(proof.replace(old, new))
    with pytest.raises(InvalidCredentials):
        one.evaluate(proof)
    assert one.user is None


def test_an_exchange_cannot_be_replayed() -> None:
    _, proof = exchange()
    one = server(nonce="another")
    one.evaluate(client().first())
    with pytest.raises(InvalidCredentials):
        one.evaluate(proof)
    finished, proof = exchange()
    finished.evaluate(proof)
    with pytest.raises(InvalidCredentials):
        finished.evaluate(proof)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4))
def test_no_mutation_of_the_last_message_gets_in(changes: list[tuple[int, int]]) -> None:
    one, proof = exchange()
    mutated = bytearray(proof)
    for position, byte in changes:
        mutated[position % len(mutated)] = byte
    if bytes(mutated) == proof:
        return
    with pytest.raises(InvalidCredentials):
        one.evaluate(bytes(mutated))
    assert one.user is None


def test_too_few_iterations_are_not_used() -> None:
    weak = keys_of("pencil", iterations=4095)
    with pytest.raises(InvalidCredentials, match="4095 is less than the minimum 4096"):
        ScramServer(SHA_256, lambda number, user: weak, DECOYS).evaluate(b"n,,n=user,r=abc")


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=999999999",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z aJ0,i=4096",
        b"e=other-error",
        b"",
    ],
)
def test_a_client_takes_no_challenge_that_is_not_one(challenge: bytes) -> None:
    with pytest.raises(LoginRefused):
        client().evaluate(challenge)


@pytest.mark.parametrize(
    "last", [b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", b"v=", b"e=invalid-proof", b"", b"x"]
)
def test_a_client_takes_no_server_that_does_not_know_its_password(last: bytes) -> None:
    one, other = server(), client()
    other.evaluate(one.evaluate(other.first()))
    with pytest.raises(LoginRefused):
        other.evaluate(last)
    assert not other.is_complete


def test_no_text_of_an_object_has_a_secret() -> None:
    for secret in (keys_of("pencil"), DECOYS, Login("PLAIN", "user", "pencil")):
        assert "[hidden]" in repr(secret)
        assert "pencil" not in repr(secret)
        assert "salt" not in repr(secret)
