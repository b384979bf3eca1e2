"""kafka-python's clients for tools that take a Java client's properties."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

C = TypeVar("C")


def settings_of(
    properties: Mapping[str, str], client: Any, kind: str, bootstrap: str, *, without_a_word: Collection[str] = ()
) -> dict[str, Any]:
    """The settings of `client`, a class of kafka-python, that these properties stand for. A key that it has no setting
    for is told on standard error, unless it is in `without_a_word`. Raises ConfigError.

    `kind`: producer or consumer; `bootstrap`: HOST:PORT,... of the brokers.
    """
    from pykbroker.tools.cluster.client_properties import python_settings

    settings, unknown = python_settings(properties, client.DEFAULT_CONFIG)
    for key in unknown:
        if key not in without_a_word:
            print(f"WARN {key} is no setting of the Python {kind} and has no effect", file=sys.stderr)
    settings["bootstrap_servers"] = bootstrap.split(",")
    return settings


def made(client: Callable[..., C], settings: Mapping[str, Any]) -> C:
    """The client. ValueError for settings that it refuses, and where it reaches no broker."""
    from kafka.errors import KafkaError as PythonClientError

    try:
        return client(**settings)
    except (PythonClientError, AssertionError) as error:
        raise ValueError(str(error)) from None


def file_of(command_config: str | None, old: str | None, old_option: str) -> str | None:
    """The properties file that was named, by --command-config or by the option that it has replaced."""
    if old:
        print(
            f"Option --{old_option} has been deprecated and will be removed in a future version. "
            "Use --command-config instead."
        )
    return command_config or old
