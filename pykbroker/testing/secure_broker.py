"""A node whose clients must authenticate: `with SecureBroker() as broker: broker.kafka_python("alice")`.

Responsible for its listeners. Not responsible for users and the settings of clients (secured_clients.py), nor for the
node itself (embedded.py).

Invariant: `bootstrap_servers` is the protected listener. The broker's own plain listener is on 127.0.0.1 alone, on a
port that is not advertised to clients.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Self

from pykbroker.testing.embedded import Broker
from pykbroker.testing.secured_clients import DEFAULT_USERS, SecuredClients, SecuredUsers


class SecureBroker(Broker, SecuredClients):
    """A single combined node, whose first listener is SSL, SASL_PLAINTEXT or SASL_SSL.

    `users`: names with their passwords, or names alone, whose passwords are then `<name>-secret`; `admin` is always a
    user. With SSL a user is the name in a client's certificate, and passwords are not used. `acls`: users may do
    only what ACLs allow them; `admin` may do everything. `config`, `data_dir`, `port`, `record`, `release` and
    `state` are as for Broker. Raises ConfigError for an unknown protocol or mechanism.
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
        release: str | None = None,
        state: str | os.PathLike[str] | None = None,
    ) -> None:
        self._credentials = SecuredUsers(users, protocol, mechanism)
        listeners = f"SECURE://localhost:{port},OWN://127.0.0.1:0,CONTROLLER://localhost:0"
        keys = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "inter.broker.listener.name": "OWN",
            "controller.quorum.bootstrap.servers": "localhost:0",
            **self._credentials.keys_of_node("OWN", acls=acls),
        }
        super().__init__({**keys, **(config or {})}, data_dir, port, record=record, release=release, state=state)

    def start(self) -> Self:
        """Start and wait until every user can log in. Raises the exception that kept the node from starting."""
        self._credentials.open()
        try:
            super().start()
            self._set_passwords()
        except BaseException:
            self.stop()
            raise
        return self

    def reset(self) -> None:
        super().reset()
        self._set_passwords()

    def _set_passwords(self) -> None:
        self._credentials.set_passwords(self._change, lambda: [self._image()])

    def stop(self) -> None:
        super().stop()
        self._credentials.close()
