"""Three combined nodes with TLS, SASL and ACLs: SCRAM between brokers, and a test's choice between
controllers."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pykbroker.sasl.sasl_client import Login
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest
from testkit.acting import note
from testkit.certificates import client_context, node_properties
from testkit.nodes.trio import REPLICATED, Trio
from testkit.nodes.wire import Wire

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
MECHANISM = "SCRAM-SHA-512"
#: The listeners are named PLAINTEXT and CONTROLLER, like those of `Trio`.
BROKERS: Mapping[str, object] = {
    **REPLICATED,
    **node_properties(),
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "listener.name.plaintext.sasl.enabled.mechanisms": MECHANISM,
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f'{SCRAM} required username="node" '
    'password="node-secret";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:controller;User:CN=node",
}
#: the kind of connections to controllers -> properties
CONTROLLERS: Mapping[str, Mapping[str, object]] = {
    "mTLS": {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SSL",
        "listener.name.controller.ssl.client.auth": "required",
    },
    "PLAIN": {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN} required username="controller" '
        'password="controller-secret" user_controller="controller-secret";',
    },
}


def log_in(wire: Wire, user: str, password: str, mechanism: str = MECHANISM) -> None:
    """Log in by any mechanism of a client."""
    client = Login(mechanism, user, password).begin()
    assert wire.call(SaslHandshakeRequest(mechanism=mechanism)).error_code == ErrorCode.NONE
    token: bytes | None = client.first()
    while token is not None:
        answer = wire.call(SaslAuthenticateRequest(auth_bytes=token))
        assert answer.error_code == ErrorCode.NONE, answer
        token = client.evaluate(bytes(answer.auth_bytes))
    assert client.is_complete


class SecuredTrio(Trio):
    """The users of SCRAM are node and alice, whose passwords are `<name>-secret`."""

    def __init__(self, folder: Path, controllers: str, settings: Mapping[str, object] | None = None) -> None:
        users: Sequence[str] = [f"{MECHANISM}=[name={name},password={name}-secret]" for name in ("node", "alice")]
        whole = note({**BROKERS, **CONTROLLERS[controllers], **(settings or {})})
        super().__init__(folder, "static", whole, users=users)
        self._tls: ssl.SSLContext = client_context(folder)

    def wire(self, number: int, user: str = "node") -> Wire:
        wire = Wire(self.address(number), tls=self._tls, timeout=60)
        log_in(wire, user, f"{user}-secret")
        return wire

    def wires(self) -> Iterator[tuple[int, Wire]]:
        for number in self.living():
            with self.wire(number) as wire:
                yield number, wire
