"""A node with a plain listener and a listener for clients that authenticate, and the names of its users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compat_tests.node import Node
from testkit.ports import steady_port

MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
#: mechanism -> its one user and the password of that user
USERS = {
    "PLAIN": ("alice", "alice-secret"),
    "SCRAM-SHA-256": ("carol", "carol-secret"),
    "SCRAM-SHA-512": ("dave", "dave-secret"),
}


@dataclass(frozen=True)
class Ports:
    """The ports of the plain listener and of the listener that authenticates."""

    plain: int
    sasl: int

    @classmethod
    def free(cls) -> Ports:
        return cls(steady_port(), steady_port())

    @property
    def secured(self) -> str:
        return f"localhost:{self.sasl}"

    def config(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the properties of a node of either kind. They contain the user of PLAIN; SCRAM needs `add_users`."""
        listeners = f"PLAINTEXT://localhost:{self.plain},CONTROLLER://localhost:{self.plain + 1},CLIENTS://localhost:{self.sasl}"
        name, password = USERS["PLAIN"]
        lines = {mechanism: f"{module} required;" for mechanism, module in MODULES.items()}
        lines["PLAIN"] = f'{MODULES["PLAIN"]} required user_{name}="{password}";'
        return {
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://localhost:{self.plain},CLIENTS://localhost:{self.sasl}",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MODULES),
            **{f"listener.name.clients.{name.lower()}.sasl.jaas.config": line for name, line in lines.items()},
            **(more or {}),
        }


def add_users(node: Node) -> None:
    """Add the users of SCRAM through the plain listener."""
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialAlteration,
        UserScramCredentialUpsertion,
    )

    numbers = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    upsertions: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(USERS[name][0], ScramCredentialInfo(number, 4096), USERS[name][1].encode())
        for name, number in numbers.items()
    ]
    for future in admin.alter_user_scram_credentials(upsertions).values():
        future.result(60)
