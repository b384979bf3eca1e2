"""The properties file that a container's node starts with: a mounted file, the variables, or the packaged defaults.

As in Apache Kafka's image: variables are appended to a mounted file and win; with variables and no mounted file the
packaged defaults are dropped entirely; without either the packaged defaults hold. What a node needs beyond that is
appended last (single_node.py), each time because the key is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pykbroker.config.key_table import STATIC_KEYS
from pykbroker.config.kinds import ConfigError
from pykbroker.config.properties import parse
from pykbroker.container.environment import protection_line, read_environment, unknown_line
from pykbroker.container.single_node import complete


@dataclass(slots=True, frozen=True)
class ServerProperties:
    """A properties file, and what has to be said about it."""

    text: str
    properties: Mapping[str, str]
    warnings: tuple[str, ...]
    cluster_id: str | None


def server_properties(
    variables: Mapping[str, str],
    *,
    mounted: str | None,
    defaults: str,
    hostname: str = "localhost",
    is_directory: Callable[[str], bool] = lambda path: False,
) -> ServerProperties:
    """`mounted` and `defaults`: texts of property files. `hostname`: what other containers call this one.
    `is_directory` says which places for data are mounted.

    ConfigError, one line, when the variables ask for what this version does not give, or contradict each other.
    """
    found = read_environment(variables)
    if found.protection:
        raise ConfigError(protection_line(found.protection))
    lines = "".join(f"{key}={text}\n" for key, text in found.properties.items())
    if mounted is not None:
        text = f"{mounted.rstrip()}\n{lines}"
    elif found.describes_a_node:
        text = lines
    else:
        text = f"{defaults.rstrip()}\n{lines}"
    completed = complete(parse(text), zookeeper=found.zookeeper, hostname=hostname, is_directory=is_directory)
    warnings = [unknown_line(found.unknown, STATIC_KEYS)] if found.unknown else []
    text += "".join(f"{key}={value}\n" for key, value in completed.added.items())
    return ServerProperties(text, parse(text), (*warnings, *completed.warnings), found.cluster_id)
