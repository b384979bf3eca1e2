"""SASL exchanges of a dishonest client, from a seed: tokens and frames that differ in one thing from correct ones.

Each attack is a function of a random generator and a `Target`, which has one ServerAuthenticator. No attack has what
the server requires. If chance could make a correct PLAIN token, the token is changed again (`is_right`).
"""

from __future__ import annotations

import functools
import hmac
import unicodedata
from collections.abc import Callable
from random import Random
from typing import Any, Final

from pykbroker.sasl.scram import (
    ScramMechanism,
    client_key,
    hash_of,
    parse_server_first,
    salted_password,
    saslname,
    server_key,
    to_base64,
    xor,
)
from pykbroker.sasl.server_authenticator import ListenerRules, SaslStep, ServerAuthenticator
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.headers import decode_response
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest
from testkit.nodes.wire import frame_of
from tests.net.any_client import MECHANISMS, PASSWORDS, SCRAM, STORED, authentication

RULES: Final = authentication().rules
USERS: Final = sorted(PASSWORDS)


@functools.cache
def salted(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    return salted_password(mechanism, password, salt, iterations)


class Target:
    """One connection's authentication, and its last response."""

    def __init__(self, mechanism: str, version: int, rules: ListenerRules = RULES) -> None:
        self.rules = rules
        self.authenticator = ServerAuthenticator(rules)
        self.version = version
        self.steps: list[SaslStep] = []
        self._ask(SaslHandshakeRequest(mechanism=mechanism), version)

    def _ask(self, message: Any, version: int) -> SaslStep:
        return self.frame(frame_of(message, version, correlation_id=7, client_id="c")[4:])

    def frame(self, data: bytes) -> SaslStep:
        if not self.is_over:
            self._asked_version = int.from_bytes(data[2:4], "big")
            self.steps.append(self.authenticator.receive(memoryview(data)))
        return self.steps[-1]

    def token(self, data: bytes) -> bytes:
        """Return the challenge; b"" if there is none."""
        if self.version == 0:
            if not data:
                # A frame has at least one byte.
                data = b"\0"
            step = self.frame(data)
            return b"" if step.failed is not None else b"".join(map(bytes, step.answer))[4:]
        step = self._ask(SaslAuthenticateRequest(auth_bytes=data), 2)
        return b"" if step.failed is not None or not step.answer else self.response.auth_bytes

    @property
    def response(self) -> Any:
        """Return the last response to SaslAuthenticate."""
        answer = b"".join(map(bytes, self.steps[-1].answer))[4:]
        return decode_response(ApiKey.SASL_AUTHENTICATE, self._asked_version, answer)[1]

    @property
    def is_over(self) -> bool:
        return bool(self.steps) and (self.steps[-1].failed is not None or self.steps[-1].authenticated is not None)


# Texts that are almost equal to their source.


def changed_text(chance: Random, text: str) -> str:
    """Return another text: in case, normal form, look, length, or with bytes that end a text elsewhere."""
    position = chance.randrange(len(text) + 1)
    choices = [
        text.upper(),
        text.title(),
        text + " ",
        " " + text,
        text[:-1],
        text[1:],
        text + text[-1],
        text + "\u0301",
        unicodedata.normalize("NFD", text.replace("e", "\u00e9", 1)),
        text.replace("a", "\u0430", 1).replace("o", "\u043e", 1),
        "".join(chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter for letter in text),
        text[:position] + "\u200b" + text[position:],
        text + "\ufffd",
        text[:position] + chr(chance.randrange(1, 0xD7FF)) + text[position:],
        text * 1000,
        "x" * chance.choice([1, 255, 65_536, 500_000]),
        "\u212a" * 3,
        "%s%n{0}${env:HOME}",
        "*",
        "User:" + text,
    ]
    found = chance.choice(choices)
    return found if found != text else text + "'"


def changed_bytes(chance: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        position = chance.randrange(len(changed) + 1)
        match chance.randrange(4):
            case 0 if changed:
                changed[position % len(changed)] ^= chance.randrange(1, 256)
            case 1:
                changed.insert(position, chance.choice([0, 0, 0x2C, 0x3D, 0x0A, 0xFF, chance.randrange(256)]))
            case 2 if changed:
                del changed[position % len(changed)]
            case _:
                changed[position:] = changed[position // 2 :]
    return bytes(changed) if bytes(changed) != data else data + b"\x01"


# PLAIN


def plain_token(chance: Random, target: Target) -> None:
    user = chance.choice(USERS)
    password = PASSWORDS[user]
    other = PASSWORDS[USERS[1 - USERS.index(user)]]
    tokens = [
        f"\0{user}\0{changed_text(chance, password)}",
        f"\0{user}\0{other}",
        f"\0{user}\0{user}",
        f"\0{user}\0",
        f"\0{user}",
        "\0\0",
        f"\0\0{password}",
        f"\0{changed_text(chance, user)}\0{password}",
        f"{changed_text(chance, user)}\0{user}\0{password}",
        f"{USERS[1 - USERS.index(user)]}\0{user}\0{password}",
        f"admin\0{user}\0{password}",
        f"\0{user}\0{password}\0",
        f"\0{user}\0{password}\0{password}",
        f"\0{user}\0\0{password}",
        f"\0\0{user}\0{password}",
        f"\0{user}\0{password[:5]}\0{password[5:]}",
        "\0" * chance.randrange(300),
        "\0" + "a" * chance.choice([1, 1000, 400_000]) + "\0b",
        f"\0__proto__\0{password}",
        f"\0user_{user}\0{password}",
    ]
    target.token(chance.choice(tokens).encode("utf-8", "surrogatepass"))


def plain_bytes(chance: Random, target: Target) -> None:
    """Change bytes of a correct token, until it is no longer correct."""
    user = chance.choice(USERS)
    data = changed_bytes(chance, f"\0{user}\0{PASSWORDS[user]}".encode())
    while is_right(data):
        data = changed_bytes(chance, data)
    target.token(data)


def is_right(data: bytes) -> bool:
    parts = data.split(b"\0")
    rights = {name.encode(): password.encode() for name, password in PASSWORDS.items()}
    return len(parts) == 3 and parts[0] in (b"", parts[1]) and rights.get(parts[1]) == parts[2]


# SCRAM


def scram_of(target: Target) -> ScramMechanism:
    mechanism = target.authenticator._mechanism
    return SCRAM[mechanism]


def nonce_of(chance: Random) -> str:
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=24))


def final_of(
    mechanism: ScramMechanism,
    user: str,
    bare: str,
    challenge: bytes,
    *,
    password: str | None = None,
    channel: str = "biws",
    nonce: str | None = None,
    extensions: str = "",
) -> tuple[str, bytes]:
    """Return the last message without its proof, and a proof by the password."""
    first = parse_server_first(challenge)
    without = f"c={channel},r={first.nonce if nonce is None else nonce}{extensions}"
    signed = f"{bare},{challenge.decode()},{without}".encode()
    key = client_key(mechanism, salted(mechanism, password or PASSWORDS[user], first.salt, first.iterations))
    return without, xor(key, hmac.digest(hash_of(mechanism, key), signed, mechanism.hash_name))


def scram_first(chance: Random, target: Target) -> None:
    """Send an invalid first message, or one that the client contradicts later."""
    mechanism, user, nonce = scram_of(target), chance.choice(USERS), nonce_of(chance)
    other = USERS[1 - USERS.index(user)]
    bare = f"n={user},r={nonce}"
    firsts = [
        f"y,,{bare}",
        f"p=tls-unique,,{bare}",
        f"p=tls-server-end-point,,{bare}",
        f"p=,,{bare}",
        f"n,a={other},{bare}",
        f"n,a={saslname(changed_text(chance, user))},{bare}",
        f"n,a=,{bare}",
        f"n,{bare}",
        f",,{bare}",
        f"N,,{bare}",
        bare,
        f"n,,m=x,{bare}",
        f"n,,{bare},m=x",
        f"n,,{bare},tokenauth=true",
        f"n,,{bare},tokenauth=TRUE",
        f"n,,r={nonce},n={user}",
        f"n,,n={user}",
        f"n,,n=,r={nonce}",
        f"n,,n={user},r=",
        f"n,,n={user},r={nonce},",
        f"n,,n={user}=,r={nonce}",
        f"n,,n={user}=2c,r={nonce}",
        f"n,,n={user},r={nonce} ",
        f"n,,n={changed_text(chance, user)},r={nonce}",
        f"n,,n={user}\0,r={nonce}",
        "n,,n=" + "=2C" * 100_000 + ",r=a",
        "n,,n=a,r=" + "a" * 400_000 + ",",
        "n,,n=a,r=b" + ",x=y" * 50_000 + "=",
        "",
        "\0",
    ]
    data = chance.choice(firsts).encode()
    if chance.random() < 0.3:
        # The change is made on the way: the client signs the original.
        data = changed_bytes(chance, f"n,,{bare}".encode())
    challenge = target.token(data)
    if challenge:
        without, proof = final_of(mechanism, user, bare, challenge)
        target.token(f"{without},p={to_base64(proof)}".encode())


def scram_challenge(chance: Random, target: Target) -> None:
    """The client gets another challenge than the server's."""
    mechanism, user, nonce = scram_of(target), chance.choice(USERS), nonce_of(chance)
    bare = f"n={user},r={nonce}"
    said = parse_server_first(target.token(f"n,,{bare}".encode()))
    changes: list[dict[str, Any]] = [
        {"iterations": chance.choice([1, 4095, 4097, 8192])},
        {"salt": changed_bytes(chance, said.salt)[:64]},
        {"salt": b""},
        {"nonce": said.nonce[:-1]},
        {"nonce": said.nonce + "x"},
        {"nonce": nonce},
        {"nonce": said.nonce.swapcase()},
    ]
    changed = said._replace(**chance.choice(changes))
    without, proof = final_of(mechanism, user, bare, changed.to_text().encode())
    target.token(f"{without},p={to_base64(proof)}".encode())


def scram_final(chance: Random, target: Target) -> None:
    """Send a wrong last message."""
    mechanism, user, nonce = scram_of(target), chance.choice(USERS), nonce_of(chance)
    other = USERS[1 - USERS.index(user)]
    bare = f"n={user},r={nonce}"
    challenge = target.token(f"n,,{bare}".encode())
    said = parse_server_first(challenge)
    stored = STORED[mechanism.number, user]

    def full(**changes: Any) -> str:
        without, proof = final_of(mechanism, user, bare, challenge, **changes)
        return f"{without},p={to_base64(proof)}"

    without, right = final_of(mechanism, user, bare, challenge)
    signed = f"{bare},{challenge.decode()},{without}".encode()
    signature = hmac.digest(stored.stored_key, signed, mechanism.hash_name)
    proofs = [
        b"",
        right[:-1],
        right + b"\0",
        right[::-1],
        bytes(len(right)),
        signature,
        # The stored keys of a password are not the password.
        xor(signature, stored.stored_key),
        xor(signature, stored.server_key),
        xor(right, b"\x01" + bytes(len(right) - 1)),
        xor(right, bytes(len(right) - 1) + b"\x80"),
        changed_bytes(chance, right)[: len(right)],
        final_of(mechanism, other, bare, challenge)[1],
        final_of(mechanism, user, f"n={other},r={nonce}", challenge)[1],
        final_of(mechanism, user, bare, challenge, password=changed_text(chance, PASSWORDS[user]))[1],
        hmac.digest(server_key(mechanism, salted(mechanism, PASSWORDS[user], said.salt, 4096)), signed, "sha256"),
        chance.randbytes(len(right)),
        b"A" * 300_000,
    ]
    text = to_base64(right)
    finals = [
        *[f"{without},p={to_base64(proof)}" for proof in proofs if proof != right],
        full(channel="eSws"),
        full(channel="cD10bHMtdW5pcXVlLCw="),
        full(channel="biwsYWJj"),
        full(channel=""),
        full(channel="biwt"),
        full(channel="bixhPWFsaWNlLA=="),
        full(nonce=said.nonce[:-1]),
        full(nonce=said.nonce + "a"),
        full(nonce=nonce),
        full(nonce=said.nonce[len(nonce) :]),
        full(nonce=nonce_of(chance)),
        full(nonce=said.nonce.upper()),
        full(extensions=",m=x") + ",",
        f"{without},x=y,p={text}",
        f"{without},p={text},x=y",
        f"{without},p={text},p={text}",
        f"{without},p={text}=",
        f"{without},p= {text}",
        f"{without},p={text}\n",
        f"{without},p={text.rstrip('=')}",
        f"{without},p={text.replace('+', '-').replace('/', '_')}~",
        f"{without}, p={text}",
        f"{without},P={text}",
        f"r={said.nonce},c=biws,p={text}",
        f"c=biws,r={said.nonce},r={said.nonce},p={text}",
        f"c=biws,c=biws,r={said.nonce},p={text}",
        f"p={text},{without}",
        f"{without}",
        f"n,,{bare}",
        challenge.decode(),
        "e=other-error",
        "v=" + text,
        "",
    ]
    data = chance.choice(finals).encode()
    if chance.random() < 0.3:
        data = changed_bytes(chance, full().encode())
    target.token(data)


def scram_replay(chance: Random, target: Target) -> None:
    """Repeat the proof of another connection on this one; or a proof twice on one."""
    mechanism, user, nonce = scram_of(target), chance.choice(USERS), nonce_of(chance)
    bare = f"n={user},r={nonce}"
    heard = Target(mechanism.name, 1, target.rules)
    without, proof = final_of(mechanism, user, bare, heard.token(f"n,,{bare}".encode()))
    last = f"{without},p={to_base64(proof)}".encode()
    heard.token(last)
    assert heard.steps[-1].authenticated is not None
    order = chance.randrange(4)
    if order == 1:
        # Before there is a challenge.
        target.token(last)
        return
    challenge = target.token(f"n,,{bare}".encode())
    if order == 2:
        # The old proof with this connection's nonce.
        last = f"c=biws,r={parse_server_first(challenge).nonce},p={to_base64(proof)}".encode()
    elif order == 3:
        # First wrong, then right: the exchange has ended.
        target.token(last)
        without, proof = final_of(mechanism, user, bare, challenge)
        last = f"{without},p={to_base64(proof)}".encode()
    target.token(last)


def scram_unknown_user(chance: Random, target: Target) -> None:
    """Use users that do not exist, with passwords of existing ones."""
    mechanism, nonce = scram_of(target), nonce_of(chance)
    user = chance.choice(["nobody", "Alice", "alice2", "alic", "ALICE", "root", "admin", "a=b,c", "User:alice"])
    bare = f"n={saslname(user)},r={nonce}"
    challenge = target.token(f"n,,{bare}".encode())
    without, proof = final_of(mechanism, "alice", bare, challenge)
    target.token(f"{without},p={to_base64(proof)}".encode())


# Any mechanism


def mutated_frame(chance: Random, target: Target) -> None:
    """Send a correct exchange's frames, one of them with changed bytes: headers, lengths, tokens."""
    mechanism = target.authenticator._mechanism
    user, nonce = chance.choice(USERS), nonce_of(chance)
    bare = f"n={user},r={nonce}"
    message = SaslAuthenticateRequest(auth_bytes=f"n,,{bare}".encode())
    if mechanism == "PLAIN":
        message = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{changed_text(chance, 'x')}".encode())
    data = frame_of(message, chance.randrange(3), correlation_id=7, client_id="c")[4:]
    target.frame(changed_bytes(chance, data))
    if not target.is_over:
        target.frame(changed_bytes(chance, data))


def other_request(chance: Random, target: Target) -> None:
    target.frame(
        chance.randrange(100).to_bytes(2, "big") + chance.randrange(20).to_bytes(2, "big") + chance.randbytes(30)
    )


Attack = Callable[[Random, Target], None]
PLAIN_ATTACKS: Final[list[Attack]] = [plain_token, plain_bytes, mutated_frame, other_request]
SCRAM_ATTACKS: Final[list[Attack]] = [
    scram_first,
    scram_challenge,
    scram_final,
    scram_final,
    scram_replay,
    scram_unknown_user,
    mutated_frame,
    other_request,
]


def attack(seed: int, rules: ListenerRules = RULES) -> tuple[str, Target]:
    """The attack of a seed on a listener's rules; its name, and what became of it."""
    chance = Random(seed)
    mechanism = chance.choice(MECHANISMS)
    target = Target(mechanism, chance.choice([0, 1, 1]), rules)
    chosen = chance.choice(PLAIN_ATTACKS if mechanism == "PLAIN" else SCRAM_ATTACKS)
    chosen(chance, target)
    return f"{chosen.__name__} of {mechanism}, seed {seed}", target
