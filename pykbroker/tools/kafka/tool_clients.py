"""kafka-python's clients for tools that take a Java client's properties."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from pykbroker.config.kinds import ConfigError
from pykbroker.tools.cluster.bootstrap_list import bootstrap_addresses

C = TypeVar("C")


def settings_of(
    properties: Mapping[str, str], client: Any, kind: str, bootstrap: str, *, without_a_word: Collection[str] = ()
) -> dict[str, Any]:
    """Convert properties to settings of `client`, a class of kafka-python. A key for which kafka-python has no setting
    is reported on standard error, unless it is in `without_a_word`. Raises ConfigError.

    `kind`: producer or consumer; `bootstrap`: HOST:PORT,... of the brokers.
    """
    from pykbroker.tools.cluster.client_properties import python_settings

    settings, unknown = python_settings(properties, client.DEFAULT_CONFIG)
    for key in unknown:
        if key not in without_a_word:
            print(f"WARN {key} is no setting of the Python {kind} and has no effect", file=sys.stderr)
    settings["bootstrap_servers"] = [str(address) for address in bootstrap_addresses(bootstrap)]
    return settings


def bootstrap_of(properties: Mapping[str, str], kind: str) -> str:
    """Return the bootstrap addresses. Raises ValueError, as the Java client does, if there are none or one is not
    valid."""
    if "bootstrap.servers" not in properties:
        raise ValueError('Missing required configuration "bootstrap.servers" which has no default value.')
    addresses = properties["bootstrap.servers"]
    if not addresses:
        raise ValueError(
            "Configuration 'bootstrap.servers' must not be empty. Valid values include: any non-empty value"
        )
    try:
        bootstrap_addresses(addresses)
    except ConfigError as error:
        raise ValueError(f"Failed to construct kafka {kind}: {error}") from None
    return addresses


def made(client: Callable[..., C], settings: Mapping[str, Any]) -> C:
    """Return the client. Raises ValueError if it refuses the settings, or if it reaches no broker."""
    from kafka.errors import KafkaError as PythonClientError

    try:
        return client(**settings)
    except (PythonClientError, AssertionError) as error:
        raise ValueError(str(error)) from None


@contextmanager
def told_as_value_error() -> Iterator[None]:
    """Raise a ValueError of one line in place of kafka-python's exceptions."""
    from kafka.errors import KafkaError as PythonClientError

    try:
        yield
    except (PythonClientError, AssertionError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def say_deprecated(old: str, new: str) -> None:
    """Print Apache Kafka's line for a renamed option."""
    print(f"Option --{old} has been deprecated and will be removed in a future version. Use --{new} instead.")


def file_of(command_config: str | None, old: str | None, old_option: str) -> str | None:
    """Return the properties file that --command-config names, or the older option that it replaced."""
    if old:
        say_deprecated(old_option, "command-config")
    return command_config or old
