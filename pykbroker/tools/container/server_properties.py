"""The properties file with which a container's node starts, from a mounted file, the variables, or the packaged
defaults.

As in Apache Kafka's image: variables are appended to a mounted file and override it; with variables and no mounted file
the packaged defaults are dropped entirely; without either the packaged defaults apply. Further keys that a node needs
are appended last (single_node.py), but only keys that are absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pykbroker.config.key_table import STATIC_KEYS
from pykbroker.config.kinds import ConfigError
from pykbroker.config.properties import format as write_properties
from pykbroker.config.properties import parse
from pykbroker.config.variables import variable_of
from pykbroker.runtime.kafka_opts import jaas_path
from pykbroker.tools.container.environment import protection_line, read_environment, unknown_line
from pykbroker.tools.container.jvm_options import agents_line
from pykbroker.tools.container.mounts import Mount, place_for_data
from pykbroker.tools.container.single_node import complete

_ENABLED: Final = "sasl.enabled.mechanisms"


@dataclass(slots=True, frozen=True)
class ServerProperties:
    """A properties file, and the warnings about it."""

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
    mounts: Iterable[Mount] = (),
    read_credentials: Callable[[str], str] = lambda path: "",
) -> ServerProperties:
    """Return the properties file. `mounted` and `defaults`: texts of property files. `hostname`: the name under which
    others reach this container. `mounts` choose the directory for data. `read_credentials` returns the content of a
    file; it raises OSError.

    Raises ConfigError, in one line, if the variables ask for a feature that this version lacks, or contradict each
    other.
    """
    found = read_environment(variables)
    if found.protection:
        raise ConfigError(protection_line(found.protection))
    lines = "".join(f"{key}={text}\n" for key, text in found.properties.items())
    lines += "".join(_password(key, path, read_credentials) for key, path in found.credentials.items())
    if mounted is not None:
        text = f"{mounted.rstrip()}\n{lines}"
    elif found.describes_a_node:
        text = lines
    else:
        text = f"{defaults.rstrip()}\n{lines}"
    properties = parse(text)
    completed = complete(
        properties,
        zookeeper=found.zookeeper,
        address=found.address,
        hostname=hostname,
        data_directory=place_for_data(mounts),
    )
    if jaas_path(variables) is None:
        completed.added.update(scram_lines({**properties, **completed.added}))
    unknown = found.unknown
    if properties.get("process.roles", "").strip() or properties.get("advertised.listeners", "").strip():
        # With roles or advertised.listeners, the parts of an address have no effect.
        unknown = tuple(sorted((*unknown, *map(variable_of, found.address))))
    warnings = [unknown_line(unknown, STATIC_KEYS)] if unknown else []
    agents = agents_line(variables)
    if agents is not None:
        warnings.append(agents)
    text += "".join(f"{key}={value}\n" for key, value in completed.added.items())
    return ServerProperties(text, parse(text), (*warnings, *completed.warnings), found.cluster_id)


def scram_lines(properties: Mapping[str, str]) -> dict[str, str]:
    """Return key -> JAAS line for each mechanism of SCRAM that has no JAAS line. For a broker such a line has only the
    name of the login module.

    Testcontainers' module for Node sets the line in a variable with a hyphen in its name, which a POSIX shell drops.
    """
    named = (entry.strip().partition(":") for entry in properties.get("listener.security.protocol.map", "").split(","))
    protocols = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in named}
    found = {}
    for entry in properties.get("listeners", "").split(","):
        name = entry.strip().partition("://")[0]
        prefix = f"listener.name.{name.lower()}."
        if not protocols.get(name.upper(), name.upper()).startswith("SASL_"):
            continue
        enabled = properties.get(f"{prefix}{_ENABLED}", properties.get(_ENABLED, ""))
        for mechanism in (text.strip() for text in enabled.split(",")):
            key = f"{prefix}{mechanism.lower()}.sasl.jaas.config"
            if mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512") and not properties.get(key, "").strip():
                found[key] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return found


def _password(key: str, path: str, read: Callable[[str], str]) -> str:
    """Return a line of a properties file with the password that the file at `path` contains. Line ends after the
    password are left out, as in the images' scripts."""
    try:
        text = read(path).rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"{path} with {key} cannot be read: {error.strerror or error}") from None
    if not text or "\n" in text or "\r" in text:
        raise ConfigError(f"{path} with {key} must have one line")
    return write_properties({key: text})
