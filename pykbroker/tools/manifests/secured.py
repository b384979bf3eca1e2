"""The protection of nodes in generated files: listeners, their protocols, and keys of TLS, SASL and ACLs.

Responsible for the protection that is the same in every kind of file. Nodes show each other certificates on the
listeners NODES and CONTROLLER. Clients show a certificate too (SSL), or log in with SCRAM over TLS (SASL_SSL). The
authorizer refuses every request that no ACL allows. The generated files contain no secret: the operator provides
`node.pem`, `authority.pem` and passwords.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from pykbroker.config.kinds import STANDARD_AUTHORIZER

#: The files that `pykbroker tls create` writes: key and certificate of the nodes, and the authority's certificate.
NODE_FILE: Final = "node.pem"
AUTHORITY_FILE: Final = "authority.pem"
#: The user or the client certificate that may do everything.
ADMIN: Final = "admin"
#: The common name of the nodes' certificate; their principal is a super user.
NODE: Final = "node"
CONTROLLERS: Final = "CONTROLLER"
#: The listener between brokers of a secured cluster, and the listener of its clients.
NODES: Final = "NODES"
CLIENTS: Final = "CLIENTS"


class Security(Enum):
    """The protocol between clients and nodes; the names are those of Kafka's `security.protocol`."""

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_SSL = "sasl_ssl"

    @property
    def is_secured(self) -> bool:
        return self is not Security.PLAINTEXT


def secured_keys(security: Security, folder: str, clients: tuple[str, ...] = (CLIENTS,)) -> dict[str, str]:
    """Return key -> text for all keys that protect a node, except `listeners` and `advertised.listeners`.

    `folder`: the folder with NODE_FILE and AUTHORITY_FILE. `clients`: the listeners of clients.
    """
    of_clients = ",".join(f"{name}:{security.name}" for name in clients)
    keys = {
        "listener.security.protocol.map": f"{CONTROLLERS}:SSL,{NODES}:SSL,{of_clients}",
        "inter.broker.listener.name": NODES,
        "controller.listener.names": CONTROLLERS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{folder}/{NODE_FILE}",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{folder}/{AUTHORITY_FILE}",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:CN={NODE};{admin_principal(security)}",
    }
    shows_certificate = [CONTROLLERS, NODES]
    if security is Security.SASL_SSL:
        keys["sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
    else:
        shows_certificate += clients
    for name in shows_certificate:
        keys[f"listener.name.{name.lower()}.ssl.client.auth"] = "required"
    return keys


def admin_principal(security: Security) -> str:
    return f"User:{ADMIN}" if security is Security.SASL_SSL else f"User:CN={ADMIN}"


def client_as_node(folder: str) -> str:
    """Return the options with which a command of `pykbroker` shows the certificate of the nodes."""
    properties = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{folder}/{NODE_FILE}",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{folder}/{AUTHORITY_FILE}",
    }
    return " ".join(f"-X {key}={text}" for key, text in properties.items())
