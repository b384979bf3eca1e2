"""Makes a configuration from command-line options: the properties file, --set, and the development profile without a
file."""

from __future__ import annotations

import logging
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import development_profile
from pykbroker.config.properties import parse
from pykbroker.config.start_up import start_config
from pykbroker.config.typed_config import Config

logger = logging.getLogger("pykbroker")
#: Keys whose values have the address of a controller.
_WHERE_CONTROLLERS_ARE: Final = {
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "listeners",
}


@dataclass(slots=True)
class Settings:
    config: Config
    #: True with a properties file. Without one, a node may format directories that are absent or empty.
    has_file: bool


def read(
    properties_file: str | None,
    settings: Iterable[str],
    data_dir: str,
    port: int | None,
    *,
    is_taken: Callable[[int], bool] = lambda port: False,
) -> Settings:
    """Read the configuration. Raises ConfigError or OSError with a message for the user.

    In the development profile the controller gets a free port if `is_taken` is True for its usual one, unless --set has
    a key with the address of a controller.
    """
    given = dict(assignments(settings))
    properties: dict[str, str] = {}
    if properties_file is not None:
        properties.update(pairs_of(properties_file))
        if port is not None:
            raise ConfigError("--port goes with the development profile; with a properties file set `listeners`")
    else:
        properties.update(_development_profile(data_dir, 9092 if port is None else port, given, is_taken))
    properties.update(given)
    return Settings(start_config(properties), properties_file is not None)


def pairs_of(path: str) -> dict[str, str]:
    """Return the pairs of a properties file, which is read as Latin-1, as in Java."""
    with open(path, "rb") as file:
        data = file.read()
    if data.startswith(BOM_UTF8):
        logger.warning(
            "%s begins with the byte order mark of UTF-8, as some editors write it. It is left out here; for Apache "
            "Kafka it is a part of the first key, which has no effect then",
            path,
        )
    return parse(data.removeprefix(BOM_UTF8).decode("latin-1"))


def _development_profile(
    data_dir: str, port: int, given: Mapping[str, str], is_taken: Callable[[int], bool]
) -> dict[str, str]:
    profile = development_profile(data_dir, port)
    controller_port = int(profile["controller.quorum.bootstrap.servers"].rpartition(":")[2])
    if given.keys() & _WHERE_CONTROLLERS_ARE or not controller_port or not is_taken(controller_port):
        return profile
    logger.info("Port %d is taken: the controller listens on a free port", controller_port)
    return development_profile(data_dir, port, controller_port=0)


def assignments(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of --set. Raises ConfigError."""
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set takes KEY=VALUE, not {text!r}")
        yield key.strip(), value.strip()
