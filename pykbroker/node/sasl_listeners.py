"""The authentication of this node's SASL listeners, from the node's configuration and metadata.

Responsible only for wiring: sasl/sasl_settings.py reads the configuration, and sasl/sasl_connection.py runs an
exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pykbroker.config.typed_config import Config
from pykbroker.node.ports import AnswerVersions
from pykbroker.sasl.plain_server import PlainServer
from pykbroker.sasl.sasl_connection import ListenerAuthentication
from pykbroker.sasl.sasl_server import SaslServer
from pykbroker.sasl.sasl_settings import MechanismSettings, sasl_listeners
from pykbroker.sasl.scram import MECHANISMS
from pykbroker.sasl.scram_server import Decoys, ScramServer
from pykbroker.sasl.server_authenticator import ListenerRules, Mechanism
from pykbroker.security.stored_keys import StoredKeys

Credentials = Mapping[tuple[int, str], StoredKeys]


class SaslListeners:
    """The authentication of all SASL listeners. Raises ConfigError for a listener that cannot authenticate its
    clients."""

    def __init__(self, config: Config, cluster_id: Callable[[], str], credentials: Callable[[], Credentials]) -> None:
        """`cluster_id` is called when a listener starts. `credentials` is called at each login, and returns those of
        the newest image."""
        self._settings = sasl_listeners(config)
        self._cluster_id = cluster_id
        self._credentials = credentials
        self._failure_seconds = config.int("connection.failed.authentication.delay.ms") / 1000
        # The time limit of a whole exchange is the limit for the arrival of one request.
        self._deadline_seconds = config.int("pykbroker.connection.request.receive.timeout.ms") / 1000

    def of(self, listener: str, versions: AnswerVersions) -> ListenerAuthentication | None:
        """Return the authentication of a listener, or None without SASL."""
        settings = self._settings.get(listener)
        if settings is None:
            return None
        decoys = Decoys(self._cluster_id())
        mechanisms = {name: self._mechanism(name, each, decoys) for name, each in settings.mechanisms.items()}
        return ListenerAuthentication(
            ListenerRules(mechanisms, versions), settings.receive_bytes, self._failure_seconds, self._deadline_seconds
        )

    def _mechanism(self, name: str, settings: MechanismSettings, decoys: Decoys) -> Mechanism:
        users = settings.users

        def begin() -> SaslServer:
            if users is not None:
                return PlainServer(users)
            return ScramServer(MECHANISMS[name], self._find, decoys)

        return Mechanism(begin, settings.max_reauth_ms)

    def _find(self, mechanism: int, user: str) -> StoredKeys | None:
        return self._credentials().get((mechanism, user))
