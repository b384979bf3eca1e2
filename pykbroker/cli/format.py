"""`pykbroker format`: what `kafka-storage format` does to the log directories of a properties file, in few words.

`pykbroker storage format` (storage.py) takes kafka-storage's to the letter. Here a cluster id need not be given, and
`--standalone` is the default for a controller without `controller.quorum.voters`. Not here: `--add-scram`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from pykbroker.cli.feature_words import name_and_level
from pykbroker.cli.options import add_arguments, default_data_dir, read
from pykbroker.config.kinds import ConfigError
from pykbroker_wire.primitives import random_uuid, uuid_from_str, uuid_to_str


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    parser.add_argument("-c", "--config", metavar="FILE", help="the same as server.properties")
    parser.add_argument("-t", "--cluster-id", metavar="ID", help="the cluster id (default: a new one)")
    add_format_options(parser)


def add_format_options(parser: argparse.ArgumentParser) -> None:
    """The options that kafka-storage has too."""
    parser.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="leave directories that are formatted already as they are"
    )
    parser.add_argument(
        "-r",
        "--release-version",
        metavar="VERSION",
        help="the release whose features the cluster begins with",
    )
    parser.add_argument(
        "-f",
        "--feature",
        action="append",
        default=[],
        metavar="NAME=LEVEL",
        help="the level of one feature, for example transaction.version=1 (may be repeated)",
    )
    voters = parser.add_mutually_exclusive_group()
    voters.add_argument(
        "-s", "--standalone", action="store_true", help="this controller is the first voter of a new quorum"
    )
    voters.add_argument(
        "-N",
        "--no-initial-controllers",
        action="store_true",
        help="this node knows no voter until it finds a quorum",
    )
    voters.add_argument(
        "-I",
        "--initial-controllers",
        metavar="VOTERS",
        help="the first voters of a new quorum, each id@host:port:directory.id, separated by commas; "
        "the same for all nodes",
    )


def run(options: argparse.Namespace) -> int:
    from pykbroker.metadata.features import METADATA_VERSION, chosen_levels, metadata_version_name
    from pykbroker.storage.format import StorageFormatError, format_directories
    from pykbroker.storage.initial_voters import parse_voters
    from pykbroker_log.os_disk.disk import OsDisk

    rng = random.SystemRandom()
    try:
        if options.config is not None:
            if options.properties is not None:
                raise ConfigError("Name the configuration file once: with --config or without")
            options.properties = options.config
        config = read(options, default_data_dir(), None).config
        cluster_id = options.cluster_id or uuid_to_str(random_uuid(rng))
        uuid_from_str(cluster_id)
        if config.voters and (options.standalone or options.initial_controllers is not None):
            raise ConfigError(
                "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
                "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
                "controller.quorum.bootstrap.servers instead."
            )
        if options.standalone and not config.is_controller:
            raise ConfigError("You can only use --standalone on a controller.")
        levels = chosen_levels(
            options.release_version,
            dict(name_and_level(text) for text in options.feature),
            dynamic_quorum=not config.voters,
        )
        formatted = format_directories(
            OsDisk(),
            config,
            cluster_id,
            rng,
            now_ms=time.time_ns() // 1_000_000,
            ignore_formatted=options.ignore_formatted,
            levels=levels,
            standalone=not options.no_initial_controllers,
            initial_voters=(
                None if options.initial_controllers is None else parse_voters(options.initial_controllers, config)
            ),
        )
    except (ConfigError, StorageFormatError, OSError, ValueError) as error:
        print(f"pykbroker: {error}", file=sys.stderr)
        return 1
    if not formatted:
        print("All of the log directories are already formatted.")
    for directory in formatted:
        print(f"Formatting {directory} with metadata.version {metadata_version_name(levels[METADATA_VERSION])}.")
    return 0
