"""Nodes whose clients must authenticate, as one cluster: `with SecureCluster() as cluster: cluster.confluent("alice")`.

Responsible for joining the users (secured_clients.py) with the nodes (cluster.py).

Invariant: `bootstrap_servers` are the protected listeners. The nodes reach each other over plain listeners on
127.0.0.1, which are not advertised to clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from pykbroker.testing.cluster import Cluster
from pykbroker.testing.secured_clients import DEFAULT_USERS, SecuredClients, SecuredUsers


class SecureCluster(Cluster, SecuredClients):
    """A cluster whose first listeners are SSL, SASL_PLAINTEXT or SASL_SSL.

    `users`, `protocol`, `mechanism` and `acls` are as for SecureBroker; `nodes`, `config`, `node_config`,
    `record` and `release` are as for Cluster. Raises ConfigError for an unknown protocol or mechanism.
    """

    def __init__(
        self,
        users: Mapping[str, str] | Iterable[str] = DEFAULT_USERS,
        *,
        protocol: str = "SASL_SSL",
        mechanism: str = "SCRAM-SHA-512",
        acls: bool = False,
        nodes: int = 3,
        config: Mapping[str, object] | None = None,
        node_config: Mapping[int, Mapping[str, object]] | None = None,
        record: bool = False,
        release: str | None = None,
    ) -> None:
        self._credentials = SecuredUsers(users, protocol, mechanism)
        self._secured = self._credentials.keys_of_node("PLAINTEXT", acls=acls)
        self._has_passwords = False
        super().__init__(nodes, config, node_config, record=record, release=release)

    def start(self, *nodes: int, timeout_seconds: float = 60.0) -> Self:
        """Start these nodes, or all, as Cluster does, and at the first start wait until every user can log in."""
        self._credentials.open()
        try:
            super().start(*nodes, timeout_seconds=timeout_seconds)
            if not self._has_passwords:
                self._credentials.set_passwords(self._change, lambda: list(self._running.images().values()))
                self._has_passwords = True
        except TimeoutError:
            raise
        except BaseException:
            self.stop()
            raise
        return self

    def _end_block(self) -> None:
        super()._end_block()
        self._credentials.close()
        self._has_passwords = False
