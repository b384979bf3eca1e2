"""10,000 SASL exchanges that are wrong in one thing each: none authenticates, none raises, all end as in Kafka.

Comparisons of secrets take constant time: bytes that only hmac.compare_digest may compare replace them.
"""

from __future__ import annotations

import ast
import base64
import hmac
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

import pykbroker
from pykbroker.sasl import plain_server, sasl_client, scram_server
from pykbroker.sasl.plain_server import PlainServer, PlainUsers
from pykbroker.sasl.sasl_client import Login, LoginRefused, ScramClient
from pykbroker.sasl.sasl_server import AuthenticationFailed, InvalidCredentials
from pykbroker.sasl.scram import MECHANISMS, SHA_256, to_base64
from pykbroker.sasl.scram_server import Decoys, ScramServer
from pykbroker.sasl.server_authenticator import AuthenticationState
from pykbroker.security.stored_keys import StoredKeys
from pykbroker_wire.errors import ErrorCode
from tests.net.any_client import PASSWORDS, STORED, controllers_authentication
from tests.sasl.hostile_exchanges import Target, attack, final_of

EXCHANGES: Final = 10_000
PLAIN_TEXTS: Final = (
    "Authentication failed: Invalid username or password",
    "Authentication failed: username not specified",
    "Authentication failed: password not specified",
    "Authentication failed: Client requested an authorization id that is different from username",
    "Invalid SASL/PLAIN response: expected 3 tokens, got ",
)
SCRAM_TEXTS: Final = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-",
    "Authentication failed: Client requested an authorization id that is different from username",
)


def check(name: str, target: Target) -> str:
    """Return how it ended."""
    assert not any(step.authenticated for step in target.steps), name
    last = target.steps[-1]
    if last.failed is None:
        # The client sends no more, and the deadline ends it.
        assert target.authenticator.state is not AuthenticationState.COMPLETE, name
        return "waits"
    assert not any(password in last.failed for password in PASSWORDS.values()), name
    if not last.answer:
        return "ends"
    if target.version == 0:
        raise AssertionError(f"{name}: a bare token is refused without an answer")
    key_is_token = "and SaslAuthenticate was expected" not in last.failed
    if key_is_token:
        response = target.response
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, name
        assert response.auth_bytes == b"", name
        assert response.error_message.startswith(PLAIN_TEXTS + SCRAM_TEXTS), name
    return "refused"


@pytest.mark.slow
def test_10000_mutated_exchanges() -> None:
    ends = Counter(check(*attack(seed)) for seed in range(EXCHANGES))
    # An exchange that only waits has attacked little.
    assert ends["refused"] > EXCHANGES / 3
    assert ends["waits"] < EXCHANGES / 10


@pytest.mark.slow
def test_1000_mutated_exchanges_with_a_controller() -> None:
    rules = controllers_authentication().rules
    ends = Counter(check(*attack(seed, rules)) for seed in range(EXCHANGES, EXCHANGES + 1000))
    assert ends["refused"] > 1000 / 3
    target = Target("PLAIN", 1, rules)
    target.token(b"\0alice\0alice-secret")
    assert target.steps[-1].authenticated is not None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_same_exchange_without_a_change_is_right(mechanism: str) -> None:
    target = Target(mechanism, 1)
    bare = "n=alice,r=abc"
    without, proof = final_of(MECHANISMS[mechanism], "alice", bare, target.token(f"n,,{bare}".encode()))
    target.token(f"{without},p={to_base64(proof)}".encode())
    assert target.steps[-1].authenticated is not None
    plain = Target("PLAIN", 0)
    plain.token(b"\0alice\0alice-secret")
    assert plain.steps[-1].authenticated is not None


# Comparisons of secrets.


class Secret(bytes):
    """Bytes that only hmac.compare_digest may compare."""

    def _compared(self, other: object) -> bool:
        raise AssertionError("a secret was compared in a time that says where it differs")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _compared
    startswith = endswith = find = index = count = _compared  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class SecretText(str):
    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return Secret(super().encode(encoding, errors))


class Recorded:
    """hmac's functions, with a record of the compared bytes."""

    def __init__(self) -> None:
        self.pairs: list[tuple[bytes, bytes]] = []
        self.digest = hmac.digest

    def compare_digest(self, one: Any, other: Any) -> bool:
        self.pairs.append((one, other))
        return hmac.compare_digest(one, other)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    found = Recorded()
    for module in (plain_server, scram_server, sasl_client):
        monkeypatch.setattr(module, "hmac", found)
    return found


@pytest.mark.parametrize(
    ("user", "password"),
    [("alice", "alice-secret"), ("alice", "alice-secreT"), ("alice", "Alice-secret"), ("alice", "x"), ("bob", "x")],
)
def test_passwords_are_compared_in_one_time(recorded: Recorded, user: str, password: str) -> None:
    server = PlainServer(PlainUsers({"user_alice": SecretText("alice-secret")}))
    try:
        server.evaluate(f"\0{user}\0{password}".encode())
    except AuthenticationFailed:
        assert password != "alice-secret"
    # Also for a user that does not exist.
    assert len(recorded.pairs) == 1


@pytest.mark.parametrize("user", ["alice", "nobody"])
@pytest.mark.parametrize("flip", [0, 1, 31])
def test_proofs_and_nonces_are_compared_in_one_time(recorded: Recorded, user: str, flip: int) -> None:
    stored = STORED[1, "alice"]
    keys = StoredKeys(stored.salt, Secret(stored.stored_key), Secret(stored.server_key), 4096)
    server = ScramServer(SHA_256, lambda number, name: keys if name == "alice" else None, Decoys("cluster"))
    bare = f"n={user},r=abc"
    challenge = server.evaluate(f"n,,{bare}".encode())
    without, proof = final_of(SHA_256, "alice", bare, challenge)
    changed = bytearray(proof)
    changed[flip] ^= 1
    with pytest.raises(InvalidCredentials):
        server.evaluate(f"{without},p={to_base64(bytes(changed))}".encode())
    # The nonce, and the key that the proof leads to, also for a user that does not exist.
    assert [len(one) for one, _ in recorded.pairs] == [len(without) - len("c=biws,r="), 32]


def test_a_server_that_lies_is_told_nothing_by_time(recorded: Recorded) -> None:
    client = ScramClient(Login("SCRAM-SHA-256", "alice", "alice-secret"), SHA_256)
    nonce = client.first().decode().rpartition("=")[2]
    client.evaluate(f"r={nonce}x,s=c2FsdA==,i=4096".encode())
    with pytest.raises(LoginRefused):
        client.evaluate(b"v=" + base64.b64encode(Random(1).randbytes(32)))
    assert len(recorded.pairs) == 1


SECRET_NAMES: Final = (
    "password",
    "secret",
    "proof",
    "stored_key",
    "server_key",
    "client_key",
    "signature",
    "salted",
    "proven",
)


def test_no_module_compares_a_secret_otherwise() -> None:
    """In the rooms of security, SASL, TLS and connections no `==`, `!=` or `in` stands next to a name of a secret."""
    found = []
    package = Path(pykbroker.__path__[0])
    rooms = [package / room for room in ("security", "sasl", "tls", "net")]
    assert all(room.is_dir() for room in rooms)
    for file in (file for room in rooms for file in room.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Compare) and any(
                isinstance(operator, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for operator in node.ops
            ):
                for side in (node.left, *node.comparators):
                    name = getattr(side, "attr", getattr(side, "id", "")).lower()
                    if any(name == secret or name.endswith("_" + secret) for secret in SECRET_NAMES):
                        found.append(f"{file.name}:{node.lineno}: {ast.unparse(node)}")
    assert found == []
