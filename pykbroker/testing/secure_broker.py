"""A node whose clients must authenticate: `with SecureBroker() as broker: broker.kafka_python("alice")`.

Responsible for certificates, users and the listener that authenticates them, and for the settings that clients connect
with. Not responsible for the node itself (embedded.py).

Invariant: `bootstrap_servers` is the protected listener. The broker's own plain listener is on 127.0.0.1 alone, on a
port that is not advertised to clients.
"""

from __future__ import annotations

import datetime
import os
import secrets
import socket
import ssl
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

from pykbroker.config.kinds import ConfigError
from pykbroker.sasl.scram import MECHANISMS, salted_password
from pykbroker.testing.embedded import Broker
from pykbroker.tls.authority import Authority, Issued

if TYPE_CHECKING:
    from pykbroker_wire.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
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
#: More than the time before its end at which a node warns of a certificate.
_DAYS: Final = 60
_OWN: Final = "OWN"
_PATIENCE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.005


class SecureBroker(Broker):
    """A single combined node, whose first listener is SSL, SASL_PLAINTEXT or SASL_SSL.

    `users`: names with their passwords, or names alone, whose passwords are then `<name>-secret`; `admin` is always a
    user. With SSL a user is the name in a client's certificate, and passwords are not used. `acls`: users may do
    only what ACLs allow them; `admin` may do everything. `config`, `data_dir`, `port` and `record` are as for Broker.
    Raises ConfigError for an unknown protocol or mechanism.
    """

    def __init__(
        self,
        users: Mapping[str, str] | Iterable[str] = DEFAULT_USERS,
        *,
        protocol: str = "SASL_SSL",
        mechanism: str = "SCRAM-SHA-512",
        acls: bool = False,
        config: Mapping[str, object] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        record: bool = False,
    ) -> None:
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
        settings = {**self._listeners(port), **(self._rules() if acls else {}), **(config or {})}
        super().__init__(settings, data_dir, port, record=record)

    # -- the node -----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start and wait until every user can log in. Raises the exception that kept the node from starting."""
        self._folder = tempfile.TemporaryDirectory(prefix="pykbroker-clients-")
        try:
            super().start()
            if self.protocol != "SSL" and self.mechanism in MECHANISMS:
                self._set_passwords()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        super().stop()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()

    def _listeners(self, port: int) -> dict[str, str]:
        listeners = f"SECURE://localhost:{port},OWN://127.0.0.1:0,CONTROLLER://localhost:0"
        found = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": f"SECURE:{self.protocol},OWN:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "OWN",
            "controller.quorum.bootstrap.servers": "localhost:0",
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

    @staticmethod
    def _rules() -> dict[str, str]:
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # Requests in memory have no user (inspection.py).
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
        }

    def _set_passwords(self) -> None:
        from pykbroker_wire.errors import ErrorCode
        from pykbroker_wire.messages.alter_user_scram_credentials import (
            AlterUserScramCredentialsRequest,
            ScramCredentialUpsertion,
        )

        mechanism = MECHANISMS[self.mechanism]
        upsertions = []
        for name, password in self.users.items():
            salt = secrets.token_bytes(16)
            salted = salted_password(mechanism, password, salt, _ITERATIONS)
            upsertions.append(
                ScramCredentialUpsertion(
                    name=name, mechanism=mechanism.number, iterations=_ITERATIONS, salt=salt, salted_password=salted
                )
            )
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for row in self._asked_over_own_listener(AlterUserScramCredentialsRequest(upsertions=upsertions)).results:
            if row.error_code:
                raise ConfigError(f"user {row.user}: {row.error_message or ErrorCode.received(row.error_code).name}")
        while any((mechanism.number, name) not in self._image().scram for name in self.users):
            if time.monotonic() > deadline:
                raise TimeoutError("the users are not known to the broker")
            time.sleep(_POLL_SECONDS)

    def _asked_over_own_listener(self, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
        """Send the request to the broker's plain listener, and return the answer. The broker forwards it from there to
        the controller; it does not forward a request in memory."""
        from pykbroker_wire.headers import decode_response, encode_request

        node = self._node
        (own,) = (point for point in node.config.listeners.broker if point.listener_name == _OWN)
        version = request.MAX_VERSION
        frame = b"".join(encode_request(request.API_KEY, version, 0, "pykbroker-testing", request))
        with socket.create_connection((own.host, node.port_of(own)), _PATIENCE_SECONDS) as connection:
            connection.sendall(frame)
            with connection.makefile("rb") as stream:
                size = int.from_bytes(stream.read(4))
                _, answer = decode_response(request.API_KEY, version, stream.read(size))
        return cast("AlterUserScramCredentialsResponse", answer)

    # -- its clients --------------------------------------------------------------------------------------------------

    def kafka_python(self, user: str = DEFAULT_USERS[0]) -> dict[str, Any]:
        """Return settings of kafka-python, with `bootstrap_servers`."""
        self._check(user)
        found: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers, "security_protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found["ssl_cafile"] = self._file("authority.pem", self._authority.certificate_pem)
        if self.protocol == "SSL":
            found["ssl_certfile"] = found["ssl_keyfile"] = self._key_file(user)
            return found
        return found | {
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": self.users[user],
        }

    def aiokafka(self, user: str = DEFAULT_USERS[0]) -> dict[str, Any]:
        """Return settings of aiokafka: those of kafka-python, with a context for TLS."""
        found = {key: value for key, value in self.kafka_python(user).items() if not key.startswith("ssl_")}
        if self.protocol.endswith("SSL"):
            context = ssl.create_default_context(cadata=self._authority.certificate_pem.decode())
            if self.protocol == "SSL":
                context.load_cert_chain(self._key_file(user))
            found["ssl_context"] = context
        return found

    def confluent(self, user: str = DEFAULT_USERS[0]) -> dict[str, Any]:
        """Return settings of confluent-kafka, and of all other clients that use librdkafka."""
        self._check(user)
        found: dict[str, Any] = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found["ssl.ca.location"] = self._file("authority.pem", self._authority.certificate_pem)
        if self.protocol == "SSL":
            found["ssl.certificate.location"] = found["ssl.key.location"] = self._key_file(user)
            return found
        return found | {
            "sasl.mechanism": self.mechanism,
            "sasl.username": user,
            "sasl.password": self.users[user],
        }

    def java(self, user: str = DEFAULT_USERS[0]) -> dict[str, str]:
        """Return properties of a Java client, of Spark (each with the prefix `kafka.`) and of Apache Kafka's tools."""
        self._check(user)
        found = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found["ssl.truststore.type"] = "PEM"
            found["ssl.truststore.location"] = self._file("authority.pem", self._authority.certificate_pem)
        if self.protocol == "SSL":
            return found | {"ssl.keystore.type": "PEM", "ssl.keystore.location": self._key_file(user)}
        login = f"{_MODULES[self.mechanism]} required username={_quoted(user)} password={_quoted(self.users[user])};"
        return found | {"sasl.mechanism": self.mechanism, "sasl.jaas.config": login}

    def properties_file(self, user: str = DEFAULT_USERS[0]) -> str:
        """Return the path of a file with `java(user)`, for `--command-config`. It is removed when the broker stops."""
        text = "".join(f"{key}={_escaped(value)}\n" for key, value in self.java(user).items())
        return self._file(f"{self._number(user)}.properties", text.encode())

    def _check(self, user: str) -> None:
        if user not in self.users:
            raise ValueError(f"there is no user {user!r}; there are {', '.join(self.users)}")

    def _number(self, user: str) -> int:
        """Return a number for names of files, because the name of a user may contain any character."""
        return [*self.users].index(user)

    def _key_file(self, user: str) -> str:
        if user not in self._issued:
            self._issued[user] = self._authority.issue(user, now=self._now, days=_DAYS)
        issued = self._issued[user]
        return self._file(f"{self._number(user)}.pem", issued.key_pem + issued.chain_pem)

    def _file(self, name: str, data: bytes) -> str:
        if self._folder is None:
            raise RuntimeError("the broker is not running")
        path = Path(self._folder.name) / name
        if not path.exists():
            path.write_bytes(data)
        return str(path)


def _quoted(text: str) -> str:
    """Return a value for a JAAS line."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    """Return a value for a properties file."""
    return "".join(char if " " <= char <= "~" else f"\\u{ord(char):04x}" for char in text.replace("\\", "\\\\"))
