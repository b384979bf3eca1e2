"""The security of the connections that this node makes to other nodes, which depends on the listener to which it
connects.

Responsible only for wiring, by Apache Kafka's rules. The security protocol is that of the listener between brokers, or
of the first controller listener. This node's keys, stores and JAAS line are those with the prefix of that listener. The
modules of TLS and SASL are imported only if they are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pykbroker.config.kinds import ConfigError
from pykbroker.config.listeners import TLS_PROTOCOLS
from pykbroker.config.typed_config import Config
from pykbroker.net.client import ConnectionSetup
from pykbroker.net.from_config import setup_timeout
from pykbroker.runtime import Runtime
from pykbroker.tls.handshakes import Handshakes

if TYPE_CHECKING:
    from pykbroker.tls.tls_client import TlsClient

_TO_CONTROLLERS: Final = "sasl.mechanism.controller.protocol"


@dataclass(slots=True, frozen=True)
class Way:
    """The setup of the connections to one listener of other nodes, and its TLS, whose stores can be replaced."""

    setup: ConnectionSetup
    #: None without TLS
    tls: TlsClient | None = None


@dataclass(slots=True, frozen=True)
class WaysToNodes:
    """The ways of one half of a node."""

    to_controllers: Way
    #: None if this half makes no connections to brokers
    to_brokers: Way | None = None


def way_to_brokers(config: Config, runtime: Runtime, handshakes: Handshakes) -> Way:
    """Return the way to brokers. Raises ConfigError for unusable settings. The text of the error is one line without
    secrets."""
    if not config.is_broker:
        return Way(setup_timeout(config))
    listener = config.listeners.inter_broker_name
    return _way(config, runtime, handshakes, listener, "sasl.mechanism.inter.broker.protocol")


def way_to_controllers(config: Config, runtime: Runtime, handshakes: Handshakes) -> Way:
    """Return the way to controllers, also between voters. Raises ConfigError."""
    refuse_scram_of_voters(config, len(config.voters))
    listener = config.listeners.controller_names[0]
    return _way(config, runtime, handshakes, listener, _TO_CONTROLLERS)


def refuse_scram_of_voters(config: Config, voters: int) -> None:
    """Raise ConfigError for a controller that would log in to other voters by SCRAM."""
    reason = why_one_voter(config)
    if config.is_controller and voters > 1 and reason is not None:
        raise ConfigError(
            f"Invalid value {config.str(_TO_CONTROLLERS)} for configuration {_TO_CONTROLLERS}: with {voters} voters, "
            f"{reason}"
        )


def why_one_voter(config: Config) -> str | None:
    """Return the reason why there can be only one voter, if controllers log in by SCRAM. Return None if there can be
    more. SCRAM users are in the metadata log. Voters cannot read it before they have elected a leader, and they cannot
    elect a leader before they have logged in to each other."""
    protocol = _protocol(config, config.listeners.controller_names[0])
    mechanism = config.str(_TO_CONTROLLERS)
    if not (protocol.startswith("SASL_") and mechanism.startswith("SCRAM-")):
        return None
    return (
        f"controllers log in to each other by {mechanism} ({_TO_CONTROLLERS}), and users of SCRAM are in the metadata "
        "log, which no voter can read before it has logged in to the others. PLAIN, or SSL with certificates, works "
        "between controllers"
    )


def _way(config: Config, runtime: Runtime, handshakes: Handshakes, listener: str, mechanism_key: str) -> Way:
    setup, tls = setup_timeout(config), None
    protocol = _protocol(config, listener)
    if protocol in TLS_PROTOCOLS:
        # The module needs cryptography.
        from pykbroker.tls.tls_client import TlsClient

        tls = TlsClient(runtime, config, listener, handshakes)
        setup = replace(setup, tls=tls)
    if protocol.startswith("SASL_"):
        from pykbroker.sasl.outgoing_login import OutgoingLogin
        from pykbroker.sasl.sasl_settings import login_of

        setup = replace(setup, login=OutgoingLogin(runtime, login_of(config, listener, mechanism_key)))
    return Way(setup, tls)


def _protocol(config: Config, listener: str) -> str:
    """Return the security protocol of a listener. Raises ConfigError for an unknown listener, because any default could
    be without protection."""
    protocol = config.listeners.protocols.get(listener)
    if protocol is None:
        raise ConfigError(f"listener {listener} has no security protocol in listener.security.protocol.map")
    return protocol
