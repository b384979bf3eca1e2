"""From command-line options to a configuration: the properties file, --set, and the development profile without a
file."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import Config, development_profile, load
from pykbroker.config.properties import parse
from pykbroker.config.protection import refuse


@dataclass(slots=True)
class Settings:
    config: Config
    #: a node without a properties file may format directories that are absent or empty
    has_file: bool


def default_data_dir(name: str = "pykbroker") -> str:
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, name)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("properties", nargs="?", metavar="server.properties", help="Apache Kafka's configuration file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set one configuration key (may be repeated)"
    )


def read(options: argparse.Namespace, data_dir: str, port: int | None) -> Settings:
    """Raises ConfigError or OSError with a message for the user."""
    properties: dict[str, str] = {}
    has_file = options.properties is not None
    if has_file:
        with open(options.properties, encoding="latin-1") as file:
            properties.update(parse(file.read()))
        if port is not None:
            raise ConfigError("--port goes with the development profile; with a properties file set `listeners`")
    else:
        properties.update(development_profile(data_dir, 9092 if port is None else port))
    properties.update(assignments(options.set))
    refuse(properties)
    return Settings(load(properties), has_file)


def assignments(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The keys and values of --set. Raises ConfigError."""
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set takes KEY=VALUE, not {text!r}")
        yield key.strip(), value.strip()
