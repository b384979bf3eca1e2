"""From configuration keys to the bounds of listeners and connections."""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.config.checks import parse_ip_overrides
from pykbroker.config.listeners import EndPoint
from pykbroker.config.typed_config import Config
from pykbroker.net.admission import AdmissionLimits
from pykbroker.net.client import ConnectionSetup
from pykbroker.net.connection_home import Limits
from pykbroker.runtime import addresses_of


def limits_of(config: Config) -> Limits:
    """Return the bounds of one connection."""
    idle_ms = config.int("connections.max.idle.ms")
    return Limits(
        frame_bytes=config.int("socket.request.max.bytes"),
        unanswered_requests=config.int("pykbroker.connection.max.unanswered.requests"),
        unsent_bytes=config.int("pykbroker.connection.max.unsent.bytes"),
        frame_seconds=config.int("pykbroker.connection.request.receive.timeout.ms") / 1000,
        idle_seconds=idle_ms / 1000 if idle_ms >= 0 else 0.0,
        send_buffer_bytes=config.int("socket.send.buffer.bytes"),
        receive_buffer_bytes=config.int("socket.receive.buffer.bytes"),
    )


def setup_timeout(config: Config) -> ConnectionSetup:
    """Return the timeouts of the connections that this node makes."""
    return ConnectionSetup(
        config.int("socket.connection.setup.timeout.ms"), config.int("socket.connection.setup.timeout.max.ms")
    )


def admission_limits(config: Config, points: Iterable[EndPoint]) -> AdmissionLimits:
    """Return the bounds that the listeners at `points` share, and each listener's own
    (`listener.name.<listener>.<key>`)."""
    names = [point.listener_name for point in points]
    between_brokers = config.listeners.inter_broker_name
    by_host = parse_ip_overrides(config.str("max.connections.per.ip.overrides"))
    overrides = {address: count for host, count in by_host.items() for address in addresses_of(host)}
    return AdmissionLimits(
        connections=config.int("max.connections"),
        listener_connections=_of_each(config, names, "max.connections"),
        per_address=config.int("max.connections.per.ip"),
        address_overrides=overrides,
        rate=config.int("max.connection.creation.rate"),
        listener_rates=_of_each(config, names, "max.connection.creation.rate"),
        # Kafka's Rate uses all windows except the one that is being filled.
        burst_seconds=float(max(1, config.int("quota.window.num") - 1) * config.int("quota.window.size.seconds")),
        waiting=max(1, config.int("socket.listen.backlog.size")),
        protected=between_brokers if between_brokers in names and len(names) > 1 else None,
    )


def _of_each(config: Config, listeners: Iterable[str], key: str) -> dict[str, int]:
    full_names = {listener: f"listener.name.{listener.lower()}.{key}" for listener in listeners}
    return {listener: config.int(name) for listener, name in full_names.items() if not config.is_default(name)}
