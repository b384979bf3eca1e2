"""A node with SASL_PLAINTEXT and SASL_SSL listeners, users and ACLs, on which each client tries each mechanism.

Its sessions end every two seconds, so a client that works for longer has renewed its session.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compat_tests.node import Node, make_node
from compat_tests.sasl.secured import MODULES, USERS, add_users
from compat_tests.secured_clients.said import CASES, PROTOCOLS
from testkit.certificates import authority, node_properties
from testkit.ports import steady_port

PATIENCE: Final = 60
DENIED: Final = "denied"


@dataclass(frozen=True)
class SecuredListeners:
    node: Node
    ports: dict[str, int]
    authority: str

    def address(self, protocol: str) -> str:
        return f"localhost:{self.ports[protocol]}"


@contextmanager
def secured_listeners(against: str, folder: Path, clients: Collection[str]) -> Iterator[SecuredListeners]:
    """Start the node, with a topic for each of these clients and cases.

    The users may use topics and groups whose names begin with the name of a client. The certificate of the authority is
    written into `folder`.
    """
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        NewTopic,
        ResourcePatternType,
        ResourceType,
    )

    from testkit.any_acl import ANY_ACL

    file = folder / "authority.pem"
    file.write_bytes(authority().certificate_pem)
    plain = steady_port()
    ports = {protocol: steady_port() for protocol in PROTOCOLS}
    points = f"PLAINTEXT://localhost:{plain}" + "".join(f",{name}://localhost:{port}" for name, port in ports.items())
    user, password = USERS["PLAIN"]
    jaas = {name: f"{module} required;" for name, module in MODULES.items()}
    jaas["PLAIN"] = f'{MODULES["PLAIN"]} required user_{user}="{password}";'
    node = make_node(
        against,
        {
            **node_properties(),
            "listeners": f"{points},CONTROLLER://localhost:{plain + 1}",
            "advertised.listeners": points,
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
            "SASL_SSL:SASL_SSL",
            "sasl.enabled.mechanisms": ",".join(MODULES),
            **{
                f"listener.name.{protocol.lower()}.{name.lower()}.sasl.jaas.config": line
                for protocol in PROTOCOLS
                for name, line in jaas.items()
            },
            "connections.max.reauth.ms": "2000",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
        port=plain,
    )
    try:
        node.start()
        add_users(node)
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        names = [DENIED, *(f"{client}-{protocol}-{mechanism}" for client in clients for protocol, mechanism in CASES)]
        for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            made.result(PATIENCE)
        allowed = [
            AclBinding(
                kind, prefix, ResourcePatternType.PREFIXED, f"User:{name}", "*", operation, AclPermissionType.ALLOW
            )
            for kind, operations in (
                (ResourceType.TOPIC, (AclOperation.READ, AclOperation.WRITE)),
                (ResourceType.GROUP, (AclOperation.READ,)),
            )
            for prefix in clients
            for name, _ in USERS.values()
            for operation in operations
        ]
        for added in admin.create_acls(allowed).values():
            added.result(PATIENCE)
        # Apache Kafka answers before its broker has the rules.
        deadline = time.monotonic() + PATIENCE
        while len(admin.describe_acls(ANY_ACL).result(PATIENCE)) < len(allowed):
            assert time.monotonic() < deadline
        yield SecuredListeners(node, ports, str(file))
    finally:
        node.close()
