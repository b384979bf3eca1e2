"""The listeners that a node advertises: every one has a host that clients and other nodes can connect to.

Responsible for the listeners that get the name of this machine, also if it has no name. Not responsible for finding the
name (`Runtime.own_name`), nor for the ports (ports.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from pykbroker.config.listeners import EndPoint, ListenerConfig

#: The host that clients get for a machine without a name.
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
    """Return the advertised end points. `own_name` is asked once, and only if needed. Raises NoNameError."""
    if not _without_host(listeners.advertised_broker) and not _without_host(listeners.advertised_controller):
        return Advertised(listeners.advertised_broker, listeners.advertised_controller)
    try:
        name = await own_name()
    except OSError as error:
        return without_name(listeners, str(error))
    return with_name(listeners, name)


def with_name(listeners: ListenerConfig, name: str) -> Advertised:
    """The end points where the name of this machine is known."""
    unnamed = (*_without_host(listeners.advertised_broker), *_without_host(listeners.advertised_controller))
    return Advertised(
        _at(name, listeners.advertised_broker),
        _at(name, listeners.advertised_controller),
        tuple(f"{point.listener_name}: resolved wildcard host to {name}" for point in unnamed),
    )


def without_name(listeners: ListenerConfig, reason: str) -> Advertised:
    """The end points where it is not.

    A client on this machine can use localhost. A controller cannot, because in the voter set localhost would be every
    other controller's own machine; Apache Kafka's start ends here, too. Raises NoNameError.
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
            f"({reason}): clients are told to connect to {_FALLBACK}, which only those on this machine can. "
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
