"""The users of nodes that authenticate their clients: certificates, passwords, and the settings of clients.

Responsible for what a node and its clients have in common. Not responsible for listeners (secure_broker.py,
cluster_layout.py) nor for sending passwords to a node.
"""

from __future__ import annotations

import datetime
import secrets
import ssl
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pykbroker.config.kinds import ConfigError
from pykbroker.metadata.image import MetadataImage
from pykbroker.sasl.scram import MECHANISMS, salted_password
from pykbroker.tls.authority import Authority, Issued
from pykbroker_wire.errors import KafkaError
from pykbroker_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)

ADMIN: Final = "admin"
DEFAULT_USERS: Final = ("alice", "bob")
PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SASL: Final = "org.apache.kafka.common.security."
_MODULES: Final = {
    "PLAIN": f"{_SASL}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_SASL}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_SASL}scram.ScramLoginModule",
}
_ITERATIONS: Final = 4096
#: The validity of a certificate: long enough that a node does not warn of its end.
_DAYS: Final = 60
_PATIENCE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.005


class SecuredUsers:
    """Users with their passwords, and the certificates of one authority. The files of clients are there between `open`
    and `close`."""

    def __init__(self, users: Mapping[str, str] | Iterable[str], protocol: str, mechanism: str) -> None:
        """Raises ConfigError for an unknown protocol or mechanism."""
        if protocol not in PROTOCOLS:
            raise ConfigError(f"protocol {protocol} is not one of {', '.join(PROTOCOLS)}")
        if mechanism not in _MODULES:
            raise ConfigError(f"mechanism {mechanism} is not one of {', '.join(_MODULES)}")
        named = dict(users) if isinstance(users, Mapping) else {name: f"{name}-secret" for name in users}
        self.users: dict[str, str] = {ADMIN: f"{ADMIN}-secret", **named}
        self.protocol, self.mechanism = protocol, mechanism
        self._issued: dict[str, Issued] = {}
        self._now = datetime.datetime.now(datetime.UTC)
        self._authority = Authority.create("pykbroker tests", now=self._now, days=_DAYS)
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def authority_pem(self) -> bytes:
        return self._authority.certificate_pem

    def open(self) -> None:
        """Make the folder of the clients' files; a second call changes nothing."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="pykbroker-clients-")

    def close(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()

    # -- the node -----------------------------------------------------------------------------------------------------

    def keys_of_node(self, own: str, *, acls: bool) -> dict[str, str]:
        """Return the keys of a node whose listener SECURE authenticates clients, without its listeners. `own`: the name
        of its plain listener, for nodes."""
        found = {"listener.security.protocol.map": f"SECURE:{self.protocol},{own}:PLAINTEXT,CONTROLLER:PLAINTEXT"}
        if acls:
            found |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                # Requests in memory have no user (inspection.py).
                "super.users": f"User:{ADMIN};User:ANONYMOUS",
            }
        if self.protocol.endswith("SSL"):
            node = self._authority.issue("localhost", now=self._now, days=_DAYS, hosts=("localhost", "127.0.0.1"))
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": node.key_pem.decode(),
                "ssl.keystore.certificate.chain": node.chain_pem.decode(),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self._authority.certificate_pem.decode(),
            }
        if self.protocol == "SSL":
            found["listener.name.secure.ssl.client.auth"] = "required"
            found["listener.name.secure.ssl.principal.mapping.rules"] = "RULE:^CN=([^,]*).*$/$1/"
        else:
            found["sasl.enabled.mechanisms"] = self.mechanism
            found[f"listener.name.secure.{self.mechanism.lower()}.sasl.jaas.config"] = self._jaas_of_node()
        return found

    def _jaas_of_node(self) -> str:
        users = self.users.items() if self.mechanism == "PLAIN" else ()
        return " ".join((_MODULES[self.mechanism], "required", *(f"user_{n}={_quoted(p)}" for n, p in users))) + ";"

    def set_passwords(
        self,
        change: Callable[[AlterUserScramCredentialsRequest, Callable[[Any], Any]], Any],
        images: Callable[[], list[MetadataImage]],
    ) -> None:
        """Store the users' passwords if the mechanism is SCRAM, and wait until every node knows them. `change`: sends a
        request as `Arranged` does. `images`: returns the metadata of each node. Raises ConfigError for a password that
        is refused, and TimeoutError."""
        if self.protocol == "SSL" or self.mechanism not in MECHANISMS:
            return
        mechanism = MECHANISMS[self.mechanism]
        for name, password in self.users.items():
            salt = secrets.token_bytes(16)
            salted = salted_password(mechanism, password, salt, _ITERATIONS)
            upsertion = ScramCredentialUpsertion(
                name=name, mechanism=mechanism.number, iterations=_ITERATIONS, salt=salt, salted_password=salted
            )
            try:
                change(AlterUserScramCredentialsRequest(upsertions=[upsertion]), lambda answer: answer.results[0])
            except KafkaError as error:
                raise ConfigError(f"user {name}: {error.message}") from error
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while any((mechanism.number, name) not in image.scram for name in self.users for image in images()):
            if time.monotonic() > deadline:
                raise TimeoutError("the users are not known to every broker")
            time.sleep(_POLL_SECONDS)

    # -- its clients --------------------------------------------------------------------------------------------------

    def check(self, user: str) -> None:
        if user not in self.users:
            raise ValueError(f"there is no user {user!r}; there are {', '.join(self.users)}")

    def number(self, user: str) -> int:
        """Return a number for names of files, because the name of a user may contain any character."""
        return [*self.users].index(user)

    def key_file(self, user: str) -> str:
        if user not in self._issued:
            self._issued[user] = self._authority.issue(user, now=self._now, days=_DAYS)
        issued = self._issued[user]
        return self.file(f"{self.number(user)}.pem", issued.key_pem + issued.chain_pem)

    def file(self, name: str, data: bytes) -> str:
        if self._folder is None:
            raise RuntimeError("the broker is not running")
        path = Path(self._folder.name) / name
        if not path.exists():
            path.write_bytes(data)
        return str(path)


class SecuredClients(ABC):
    """A broker or a cluster with users, and the settings with which clients connect to it."""

    _credentials: SecuredUsers

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """The addresses of the listeners that authenticate clients."""

    @property
    def users(self) -> dict[str, str]:
        """Every user with its password. With SSL passwords are not used."""
        return self._credentials.users

    @property
    def protocol(self) -> str:
        """SSL, SASL_PLAINTEXT or SASL_SSL."""
        return self._credentials.protocol

    @property
    def mechanism(self) -> str:
        """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; not used with SSL."""
        return self._credentials.mechanism

    def kafka_python(self, user: str = DEFAULT_USERS[0]) -> dict[str, Any]:
        """Return settings of kafka-python, with `bootstrap_servers`: `KafkaProducer(**broker.kafka_python("alice"))`.
        Raises ValueError for an unknown user, and RuntimeError before `start`."""
        self._credentials.check(user)
        found: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers, "security_protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found["ssl_cafile"] = self._credentials.file("authority.pem", self._credentials.authority_pem)
        if self.protocol == "SSL":
            found["ssl_certfile"] = found["ssl_keyfile"] = self._credentials.key_file(user)
            return found
        return found | {
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": self.users[user],
        }

    def aiokafka(self, user: str = DEFAULT_USERS[0]) -> dict[str, Any]:
        """Return settings of aiokafka: those of kafka-python, with a context for TLS. Raises as `kafka_python` does."""
        found = {key: value for key, value in self.kafka_python(user).items() if not key.startswith("ssl_")}
        if self.protocol.endswith("SSL"):
            context = ssl.create_default_context(cadata=self._credentials.authority_pem.decode())
            if self.protocol == "SSL":
                context.load_cert_chain(self._credentials.key_file(user))
            found["ssl_context"] = context
        return found

    def confluent(self, user: str = DEFAULT_USERS[0]) -> dict[str, Any]:
        """Return settings of confluent-kafka, and of all other clients that use librdkafka. Raises as
        `kafka_python` does."""
        self._credentials.check(user)
        found: dict[str, Any] = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found["ssl.ca.location"] = self._credentials.file("authority.pem", self._credentials.authority_pem)
        if self.protocol == "SSL":
            found["ssl.certificate.location"] = found["ssl.key.location"] = self._credentials.key_file(user)
            return found
        return found | {
            "sasl.mechanism": self.mechanism,
            "sasl.username": user,
            "sasl.password": self.users[user],
        }

    def java(self, user: str = DEFAULT_USERS[0]) -> dict[str, str]:
        """Return properties of a Java client, of Spark (each with the prefix `kafka.`) and of Apache Kafka's tools.
        Raises as `kafka_python` does."""
        self._credentials.check(user)
        found = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found["ssl.truststore.type"] = "PEM"
            found["ssl.truststore.location"] = self._credentials.file("authority.pem", self._credentials.authority_pem)
        if self.protocol == "SSL":
            return found | {"ssl.keystore.type": "PEM", "ssl.keystore.location": self._credentials.key_file(user)}
        login = f"{_MODULES[self.mechanism]} required username={_quoted(user)} password={_quoted(self.users[user])};"
        return found | {"sasl.mechanism": self.mechanism, "sasl.jaas.config": login}

    def properties_file(self, user: str = DEFAULT_USERS[0]) -> str:
        """Return the path of a file with `java(user)`, for `--command-config`. It is removed with the broker or the
        cluster. Raises as `kafka_python` does."""
        text = "".join(f"{key}={_escaped(value)}\n" for key, value in self.java(user).items())
        return self._credentials.file(f"{self._credentials.number(user)}.properties", text.encode())


def _quoted(text: str) -> str:
    """Return a value for a JAAS line."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    """Return a value for a properties file."""
    return "".join(char if " " <= char <= "~" else f"\\u{ord(char):04x}" for char in text.replace("\\", "\\\\"))
