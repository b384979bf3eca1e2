"""One connection of a listener of any kind and a client that may do anything, in memory; TLS is Python's own.

The client's bytes wait in `wire` until `deliver`, so that a test cuts them as it likes. `check` is the judge: before
each dispatched frame the user must have been proved.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pykbroker.config.load import development_profile, load
from pykbroker.net.connection import Connection
from pykbroker.net.connection_home import Limits
from pykbroker.net.connection_state import ConnectionState
from pykbroker.net.listener import Listener
from pykbroker.net.promise import Promise
from pykbroker.node.sasl_listeners import SaslListeners
from pykbroker.runtime import Runtime
from pykbroker.sasl.plain_server import PlainServer, PlainUsers
from pykbroker.sasl.sasl_connection import ListenerAuthentication
from pykbroker.sasl.scram import SHA_256, SHA_512, ScramMechanism, salted_password, stored_keys
from pykbroker.sasl.scram_server import Decoys, ScramServer
from pykbroker.sasl.server_authenticator import MAX_FRAMES, ListenerRules, Mechanism
from pykbroker.security.stored_keys import StoredKeys
from pykbroker.tls.handshakes import Handshakes
from pykbroker.tls.principal_mapping import PrincipalMapper
from pykbroker.tls.tls_listener import TlsListener
from pykbroker.tls.tls_server import TlsServer
from pykbroker_wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tests.net.fakes import FakeTransport
from tests.tls.test_tls_layer import Below, SteppedRuntime

PASSWORDS: Final = {"alice": "alice-secret", "bob": "bob-secret"}
SCRAM: Final = {"SCRAM-SHA-256": SHA_256, "SCRAM-SHA-512": SHA_512}
MECHANISMS: Final = ("PLAIN", *SCRAM)
FRAME_BYTES: Final = 20_000
SASL_FRAME_BYTES: Final = 4096
ANSWER: Final = b"\0\0\0\x06answer"
DEADLINE_SECONDS: Final = 60.0
FAILURE_SECONDS: Final = 0.1


def _keys(mechanism: ScramMechanism, user: str) -> StoredKeys:
    salt = f"salt of {user}".encode()
    return stored_keys(mechanism, salted_password(mechanism, PASSWORDS[user], salt, 4096), salt, 4096)


STORED: Final = {(one.number, user): _keys(one, user) for one in SCRAM.values() for user in PASSWORDS}


def authentication(reauth_ms: int = 0) -> ListenerAuthentication:
    """Return that of a listener with the users of PASSWORDS, by each mechanism."""
    users = PlainUsers({f"user_{name}": password for name, password in PASSWORDS.items()})
    decoys = Decoys("cluster")

    def scram(mechanism: ScramMechanism) -> Mechanism:
        return Mechanism(lambda: ScramServer(mechanism, lambda *who: STORED.get(who), decoys), reauth_ms)

    mechanisms = {"PLAIN": Mechanism(lambda: PlainServer(users), reauth_ms)}
    mechanisms |= {name: scram(mechanism) for name, mechanism in SCRAM.items()}
    rules = ListenerRules(
        mechanisms, lambda version: ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, max_version=1)])
    )
    return ListenerAuthentication(rules, SASL_FRAME_BYTES, FAILURE_SECONDS, DEADLINE_SECONDS)


def controllers_authentication(reauth_ms: int = 0) -> ListenerAuthentication:
    """Return the same, as a node makes it from its properties for a listener of controllers."""
    module = "org.apache.kafka.common.security."
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    own = "listener.name.controller."
    config = load(
        {
            **development_profile("/nowhere", 0),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "connection.failed.authentication.delay.ms": str(int(FAILURE_SECONDS * 1000)),
            "pykbroker.connection.request.receive.timeout.ms": str(int(DEADLINE_SECONDS * 1000)),
            f"{own}sasl.server.max.receive.size": str(SASL_FRAME_BYTES),
            f"{own}connections.max.reauth.ms": str(reauth_ms),
            f"{own}sasl.enabled.mechanisms": ",".join(MECHANISMS),
            f"{own}plain.sasl.jaas.config": f'{module}plain.PlainLoginModule required username="alice" '
            f'password="{PASSWORDS["alice"]}" {users};',
            **{f"{own}{name.lower()}.sasl.jaas.config": f"{module}scram.ScramLoginModule required;" for name in SCRAM},
        }
    )
    listeners = SaslListeners(config, lambda: "cluster", lambda: STORED)
    found = listeners.of("CONTROLLER", authentication().rules.versions)
    assert found is not None
    return found


@dataclass(frozen=True)
class SentFrame:
    """The meaning of a frame: `mechanism` of a handshake; `proves`: the user that it proves."""

    data: bytes
    mechanism: str = ""
    proves: str = ""


@dataclass(frozen=True)
class Expected:
    """The frames that may come next. `needs`: the next step of the running exchange, "handshake", "first" or "final";
    "" for requests. `ended`: the last frame was wrong, or it has not come."""

    proven: str
    needs: str
    mechanism: str
    ended: bool


class _Parked:
    """A response that comes when the test allows it (see Pending)."""

    def __init__(self) -> None:
        self.future = Promise()

    def encode(self, result: Any) -> list[bytes]:
        return [ANSWER]


@dataclass
class AnyClient:
    """`kind`: a security protocol. `own` and `peer` are the contexts of TLS. `is_controllers`: the authentication is
    that of a controller's listener."""

    kind: str
    reauth_ms: int = 0
    own: ssl.SSLContext | None = None
    peer: ssl.SSLContext | None = None
    is_controllers: bool = False

    sent: list[SentFrame] = field(default_factory=list)
    dispatched: list[bytes] = field(default_factory=list)
    principals: list[str] = field(default_factory=list)
    parked: list[_Parked] = field(default_factory=list)
    wire: bytearray = field(default_factory=bytearray)
    #: the bytes that the client read: whole and parts of frames
    received: bytearray = field(default_factory=bytearray)
    delivered: int = 0
    #: the connection got `connection_lost` from its transport, as from a real one
    lost: bool = False
    #: the sent bytes are no longer a series of frames
    garbled: bool = False
    is_handshaken: bool = False

    def __post_init__(self) -> None:
        self.runtime = SteppedRuntime()
        self.loop = self.runtime.loop
        self.is_tls = self.kind.endswith("SSL")
        self.is_sasl = self.kind.startswith("SASL_")
        mapper = None if self.is_sasl else PrincipalMapper("DEFAULT")
        runtime = cast(Runtime, self.runtime)
        server = TlsServer(cast(ssl.SSLContext, self.own), mapper)
        tls = TlsListener(runtime, server, Handshakes(runtime)) if self.is_tls else None
        self.listener = Listener(
            runtime,
            self.kind,
            Limits(frame_bytes=FRAME_BYTES, frame_seconds=10, idle_seconds=600, unanswered_requests=20),
            security_protocol=self.kind,
            tls=tls,
        )
        made = controllers_authentication if self.is_controllers else authentication
        self.listener.answer_with(self._dispatch, made(self.reauth_ms) if self.is_sasl else None)
        self.connection = Connection(self.listener)
        self.below: FakeTransport = Below() if self.is_tls else FakeTransport()
        self._top: asyncio.BufferedProtocol = self.connection
        if tls is not None:
            layer = tls.layer(self.connection)
            cast(Below, self.below).layer = layer
            self._top = layer
            self._to_peer, self._from_peer = ssl.MemoryBIO(), ssl.MemoryBIO()
            assert self.peer is not None
            self.tls = self.peer.wrap_bio(self._to_peer, self._from_peer, server_hostname="localhost")
        self._top.connection_made(self.below)

    def _dispatch(self, connection: Connection, frame: memoryview) -> list[bytes] | _Parked | None:
        assert connection.state is ConnectionState.READY
        assert not self.is_tls or self.is_handshaken, "a byte came through before the client had spoken TLS"
        self.dispatched.append(bytes(frame))
        self.principals.append(connection.session.principal)
        # Some requests have no response, some have it later.
        how = frame[-1] % 4
        if how == 1:
            self.parked.append(_Parked())
            return self.parked[-1]
        return None if how == 2 else [ANSWER]

    def answer_parked(self) -> None:
        if self.parked:
            self.parked.pop(0).future.set_result(None)

    # -- actions of the client ----------------------------------------------------------------------------------------

    def start_tls(self) -> None:
        """Send the next flight of the handshake, if it is the client's turn."""
        if self.is_tls and not self.is_handshaken and not self.lost:
            try:
                self.tls.do_handshake()
                self.is_handshaken = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                self.garbled = True
            self.wire += self._from_peer.read()

    def send(self, frame: SentFrame) -> None:
        """Send a frame, through TLS if it is in use; before the handshake nothing can be sent."""
        if self.garbled or (self.is_tls and not self.is_handshaken):
            return
        self.sent.append(frame)
        self._send(len(frame.data).to_bytes(4, "big") + frame.data)

    def send_garbled(self, data: bytes) -> None:
        """Send bytes that are no frame, so that no later bytes are one."""
        self.garbled = True
        self._send(data)

    def send_below(self, data: bytes) -> None:
        """Send past TLS."""
        self.garbled = True
        self.wire += data

    def corrupt(self, position: int, flip: int) -> None:
        """Change a byte on its way. Only with TLS, because a change of plain bytes might make a proof."""
        if self.wire and self.is_tls:
            self.garbled = True
            self.wire[position % len(self.wire)] ^= flip

    def _send(self, data: bytes) -> None:
        if self.is_tls and self.is_handshaken:
            try:
                self.tls.write(data)
            except ssl.SSLError:
                self.garbled = True
            self.wire += self._from_peer.read()
        else:
            self.wire += data

    def deliver(self, count: int) -> None:
        """Deliver the next bytes as the network does; a transport that reads no more takes none."""
        while count > 0 and self.wire and not self.below.closed and not self.lost:
            if not self.below.reading:
                self.loop.turn()
                if not self.below.reading:
                    return
            view = cast(memoryview, self._top.get_buffer(-1))
            take = min(count, len(view), len(self.wire))
            view[:take] = self.wire[:take]
            del self.wire[:take]
            count -= take
            self.delivered += take
            self._top.buffer_updated(take)
            self.check_bounds()
        self._read()

    def pass_seconds(self, seconds: float) -> None:
        if not self.lost:
            self.connection.tidy(self.loop.now)
        self.loop.pass_seconds(seconds)
        self.loop.turn()
        if not self.lost:
            self.connection.tidy(self.loop.now)
        self._read()
        self.after_close()

    def after_close(self) -> None:
        """Lose a closed transport when it has sent its bytes."""
        if self.below.closed and not self.lost:
            self.lose()

    def lose(self) -> None:
        if not self.lost:
            self.lost = True
            self._top.connection_lost(None)
            self.loop.turn()

    def finish(self) -> None:
        """Send no more."""
        if not self.lost and not self.below.closed:
            if self._top.eof_received():
                # Responses, or the rest of one, are due to it.
                self._read()
                self.after_close()
            else:
                self.below.closed = True
                self.lose()

    def _read(self) -> None:
        self.loop.turn()
        if not self.is_tls:
            self.received += self.below.written
            self.below.written.clear()
            return
        self._to_peer.write(cast(Below, self.below).take())
        if self.is_handshaken:
            try:
                while piece := self.tls.read(65536):
                    self.received += piece
            except ssl.SSLError:
                pass

    def answers(self) -> list[bytes]:
        """Return the whole frames among the read bytes, and remove them."""
        found = []
        while len(self.received) >= 4:
            end = 4 + int.from_bytes(self.received[:4], "big")
            if len(self.received) < end:
                break
            found.append(bytes(self.received[4:end]))
            del self.received[:end]
        return found

    # -- checks -------------------------------------------------------------------------------------------------------

    def check_bounds(self) -> None:
        memory = self.listener.memory.used
        assert memory <= max(8192, 4 * self.delivered), "memory grows faster than what came"
        assert memory <= 4 * FRAME_BYTES
        if self.connection.state is ConnectionState.AUTHENTICATING and not self.connection._flow.mutes:
            assert memory <= 4 * SASL_FRAME_BYTES

    def check(self) -> Expected:
        """A dispatched frame is one that was sent, in order, after the proof of its user, and in no exchange."""
        connection = self.connection
        rest = list(zip(self.dispatched, self.principals, strict=True))
        rest.reverse()
        proven = "" if self.is_sasl else "CN=alice" if self.is_tls else "ANONYMOUS"
        expects = ""  # the next step of the running exchange
        frames = 0
        ended = False
        mechanism = used = ""
        for sent in self.sent:
            if proven and not expects:
                if rest and rest[-1][0] == sent.data:
                    assert rest.pop()[1] == f"User:{proven}"
                elif self.is_sasl and self.reauth_ms and sent.mechanism and sent.mechanism == used:
                    mechanism, expects, frames = sent.mechanism, "first", 1
                else:
                    # It was refused, or has not come, so no later frame may be dispatched.
                    ended = True
                    break
                continue
            frames += 1
            if not expects:
                if sent.mechanism:
                    mechanism, expects = sent.mechanism, "first"
                elif sent.data[:2] != b"\0\x12":
                    ended = True
                    break
            elif expects == "first" and mechanism != "PLAIN":
                expects = "final"
            elif sent.proves and (not proven or proven == sent.proves) and frames <= MAX_FRAMES:
                proven, expects, used = sent.proves, "", mechanism
                frames = 0
            else:
                ended = True
                break
        else:
            if self.garbled and proven and not expects:
                # Bytes that happen to be frames are the user's.
                assert {principal for _, principal in rest} <= {f"User:{proven}"}
                rest = []
        assert not rest, "a frame was dispatched that no proof precedes"
        assert connection.session.principal in {f"User:{name}" for name in (proven, used and proven, "ANONYMOUS")}
        if self.is_sasl and connection.session.principal == "User:ANONYMOUS":
            assert not self.dispatched
            assert connection.state is not ConnectionState.READY
        return Expected(proven, expects if proven else expects or "handshake", mechanism, ended)
