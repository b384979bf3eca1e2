"""Parses `listeners`, `advertised.listeners` and related keys to end points.

Responsible for Apache Kafka's rules about them (names, protocols, ports, and the controller's listeners). Not
responsible for sockets: an end point is a value. An empty host means all interfaces. In an advertised end point it
stands for the name of the machine, which the node resolves when it starts (node/advertised.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pykbroker.config.kinds import ConfigError, split_list

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAINTEXT: Final = "PLAINTEXT"
#: Protocols whose connections begin with a handshake of TLS.
TLS_PROTOCOLS: Final = ("SSL", "SASL_SSL")
#: The prefix of a key for one listener: listener.name.<listener>.<key>
LISTENER_PREFIX: Final = "listener.name."
_LISTENER: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")


@dataclass(slots=True, frozen=True)
class EndPoint:
    listener_name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        return f"{self.listener_name}://{host_and_port(self.host, self.port)}"


@dataclass(slots=True, frozen=True)
class ListenerConfig:
    """All end points of one node."""

    all: tuple[EndPoint, ...]
    broker: tuple[EndPoint, ...]
    """The end points of the broker half; empty on a pure controller."""
    controller: tuple[EndPoint, ...]
    """The end points of the controller half; empty on a pure broker."""
    advertised_broker: tuple[EndPoint, ...]
    advertised_controller: tuple[EndPoint, ...]
    """In `advertised_broker` and `advertised_controller`, an empty host means that the machine's name is advertised."""
    controller_names: tuple[str, ...]
    """`controller.listener.names` in capitals. A broker connects to the controllers at the first of these listeners."""
    inter_broker_name: str
    protocols: Mapping[str, str]
    """Listener name -> security protocol."""


def security_protocol_map(
    text: str, *, explicit: bool, controller_names: tuple[str, ...], listeners: tuple[str, ...]
) -> dict[str, str]:
    """Parse `listener.security.protocol.map`. If it is not set, controller listeners are PLAINTEXT unless TLS or SASL
    is in use."""
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for entry in split_list(text):
        name, colon, protocol = entry.rpartition(":")
        if not colon:
            raise ConfigError(f"Invalid value {text} for configuration {key}: each entry must be <listener>:<protocol>")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"Invalid value {text} for configuration {key}: {protocol} is not a security protocol; "
                f"it must be one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name] = protocol
    if not explicit:
        secured = {"SSL", "SASL_SSL", "SASL_PLAINTEXT"}
        used = {entry.partition(":")[0].upper() for entry in listeners}
        if not secured & (used | set(controller_names)):
            protocols.update(dict.fromkeys(controller_names, "PLAINTEXT"))
    return protocols


def parse_listeners(
    key: str, entries: tuple[str, ...], protocols: Mapping[str, str], *, distinct_ports: bool
) -> tuple[EndPoint, ...]:
    shown = ",".join(entries)
    points: list[EndPoint] = []
    for entry in entries:
        match = _LISTENER.fullmatch(entry)
        if match is None:
            raise _wrong(key, shown, f"{entry} is not of the form <listener>://<host>:<port>")
        name, host, port = match[1].upper(), match[2], int(match[3])
        if not -1 <= port <= 65535:
            raise _wrong(key, shown, f"port {port} is not between 0 and 65535")
        if name not in protocols:
            raise _wrong(
                key,
                shown,
                f"No security protocol defined for listener {name} in listener.security.protocol.map; "
                f"it has {', '.join(sorted(protocols))}",
            )
        points.append(EndPoint(name, host, port, protocols[name]))
    if len({point.listener_name for point in points}) != len(points):
        raise _wrong(key, shown, "Each listener must have a different name")
    if distinct_ports:
        _check_ports(key, shown, points)
    return tuple(points)


def is_wildcard(host: str) -> bool:
    """Return True for a host that stands for every address of the machine. A node can listen on it, but no client can
    connect to it."""
    return host in ("", "0.0.0.0") or (":" in host and not host.strip("0:"))  # noqa: S104  # compared, not bound


def local_host(host: str) -> str:
    """Return a host under which programs on this machine reach a listener at `host`."""
    return "localhost" if is_wildcard(host) else host


def host_and_port(host: str, port: int) -> str:
    """Return `host:port`, or `[host]:port` for an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check_ports(key: str, shown: str, points: list[EndPoint]) -> None:
    """Check that two listeners share a port only as one IPv4 and one IPv6 address (KIP-797)."""
    by_port: dict[int, list[EndPoint]] = {}
    for point in points:
        if point.port != 0:
            by_port.setdefault(point.port, []).append(point)
    for port, same in by_port.items():
        versions = sorted(_ip_version(point.host) for point in same)
        if len(same) > 1 and versions != [4, 6]:
            raise _wrong(
                key,
                shown,
                f"Each listener must have a different port unless exactly one listener has an IPv4 address and the "
                f"other an IPv6 address; port {port} is used by {', '.join(point.listener_name for point in same)}",
            )


def _ip_version(host: str) -> int:
    import ipaddress  # rarely needed, and not cheap to import

    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0


def _wrong(key: str, value: str, message: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {key}: {message}")
