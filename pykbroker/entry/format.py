"""`pykbroker format`: format the log directories of a properties file, as `kafka-storage format` does, with fewer
options.

`pykbroker storage format` (tools/commands/storage.py) follows kafka-storage exactly. Here a cluster id is optional, and
`--standalone` is the default for a controller without `controller.quorum.voters`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pykbroker.config.kinds import ConfigError
from pykbroker.entry import failures
from pykbroker.entry.command_parser import CommandParser, add_properties
from pykbroker.entry.format_options import FormatOptions, add_format_options, format_options

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config


def parser() -> CommandParser:
    words = CommandParser(
        "format",
        """Format the log directories of a properties file.

        The cluster begins with the newest features, and a controller is the first voter of its quorum, unless an
        option says otherwise.""",
        example="pykbroker format server.properties",
    )
    add_properties(words)
    words.add_argument("-c", "--config", dest="config_file", metavar="FILE", help="The same as server.properties.")
    words.add_argument("-t", "--cluster-id", metavar="ID", help="The cluster id (default: a new one).")
    add_format_options(words)
    return words


def run(given: argparse.Namespace) -> int:
    """Format the directories; returns the exit status. Raises ConfigError, StorageFormatError, OSError."""
    from pykbroker.entry.data_dirs import default_data_dir
    from pykbroker.entry.options import read

    if given.config_file is not None and given.properties is not None:
        raise ConfigError("Name the configuration file once: with --config or without")
    config = read(given.config_file or given.properties, given.settings, default_data_dir(), None).config
    try:
        return _format(config, given.cluster_id, format_options(vars(given)))
    except ValueError as error:
        failures.say(str(error))
        return 1


def _format(config: Config, given_id: str | None, chosen: FormatOptions) -> int:
    import random
    import time

    from pykbroker.metadata.features import METADATA_VERSION, metadata_version_name
    from pykbroker.storage.format import format_directories
    from pykbroker_log.os_disk.disk import OsDisk
    from pykbroker_wire.primitives import random_uuid, uuid_from_str, uuid_to_str

    rng = random.SystemRandom()
    cluster_id = given_id or uuid_to_str(random_uuid(rng))
    uuid_from_str(cluster_id)
    chosen.check(config)
    levels = chosen.levels(config)
    formatted = format_directories(
        OsDisk(),
        config,
        cluster_id,
        rng,
        now_ms=time.time_ns() // 1_000_000,
        ignore_formatted=chosen.ignore_formatted,
        levels=levels,
        credentials=chosen.credentials(levels),
        standalone=not chosen.no_initial_controllers,
        initial_voters=chosen.voters(config),
    )
    if not formatted:
        failures.put_line("All of the log directories are already formatted.")
    for directory in formatted:
        level = metadata_version_name(levels[METADATA_VERSION])
        failures.put_line(f"Formatting {directory} with metadata.version {level}.")
    return 0
