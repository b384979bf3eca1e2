"""The listeners that a node advertises, each with a host to which clients and other nodes can connect.

Responsible for giving a listener without a host the name of this machine, and for the case that the machine has no
name. Not responsible for finding the name (`Runtime.own_name`), nor for the ports (ports.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from pykbroker.config.listeners import EndPoint, ListenerConfig

#: The host that clients get if this machine has no name.
_FALLBACK: Final = "localhost"


@dataclass(frozen=True, slots=True)
class Advertised:
    """The end points of both halves, with hosts. `notes` and `warning` are for the log."""

    broker: tuple[EndPoint, ...]
    controller: tuple[EndPoint, ...]
    notes: tuple[str, ...] = ()
    warning: str | None = None


class NoNameError(Exception):
    """A controller's listener has no host, and this machine has no name."""


async def advertise(listeners: ListenerConfig, own_name: Callable[[], Awaitable[str]]) -> Advertised:
    """Return the advertised end points. `own_name` is called at most once, only if a listener has no host. Raises
    NoNameError."""
    if not _without_host(listeners.advertised_broker) and not _without_host(listeners.advertised_controller):
        return Advertised(listeners.advertised_broker, listeners.advertised_controller)
    try:
        name = await own_name()
    except OSError as error:
        return without_name(listeners, str(error))
    return with_name(listeners, name)


def with_name(listeners: ListenerConfig, name: str) -> Advertised:
    """Return the end points if the name of this machine is known."""
    unnamed = (*_without_host(listeners.advertised_broker), *_without_host(listeners.advertised_controller))
    return Advertised(
        _at(name, listeners.advertised_broker),
        _at(name, listeners.advertised_controller),
        tuple(f"{point.listener_name}: resolved wildcard host to {name}" for point in unnamed),
    )


def without_name(listeners: ListenerConfig, reason: str) -> Advertised:
    """Return the end points if this machine has no name that can be found.

    For broker listeners localhost is used, to which clients on this machine can connect. For a controller it cannot be
    used: in the voter set, each controller would take localhost for its own machine. Apache Kafka's start fails in this
    case too. Raises NoNameError.
    """
    if unnamed := _without_host(listeners.advertised_controller):
        raise NoNameError(
            f"The {_listed(unnamed)} of this controller {_has(unnamed)} no host that other nodes can connect to, and "
            f"the name of this machine cannot be resolved ({reason}). Write a host into `listeners` or "
            "`advertised.listeners`, or give the machine a name that it can resolve"
        )
    unnamed = _without_host(listeners.advertised_broker)
    return Advertised(
        _at(_FALLBACK, listeners.advertised_broker),
        listeners.advertised_controller,
        warning=(
            f"The {_listed(unnamed)} {_has(unnamed)} no host, and the name of this machine cannot be resolved "
            f"({reason}). Clients get the address {_FALLBACK}, which only clients on this machine can use. "
            "Set advertised.listeners"
        ),
    )


def _without_host(points: tuple[EndPoint, ...]) -> tuple[EndPoint, ...]:
    return tuple(point for point in points if not point.host)


def _at(host: str, points: tuple[EndPoint, ...]) -> tuple[EndPoint, ...]:
    return tuple(point if point.host else replace(point, host=host) for point in points)


def _listed(points: tuple[EndPoint, ...]) -> str:
    names = " and ".join(point.listener_name for point in points)
    return f"listener {names}" if len(points) == 1 else f"listeners {names}"


def _has(points: tuple[EndPoint, ...]) -> str:
    return "has" if len(points) == 1 else "have"
