"""`pykbroker storage`: Apache Kafka's `kafka-storage`, with its options, its text and its exit codes.

What it says goes to standard output, and the reason of a failure to standard error, as there. Not here: `--add-scram`,
which is refused. Words that no command knows are refused by argparse, in its own text.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from pykbroker.cli import random_uuid
from pykbroker.cli.feature_words import name_and_level
from pykbroker.cli.format import add_format_options
from pykbroker.cli.options import read
from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import Config


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    info = commands.add_parser("info", help="what the log directories of this node are formatted for")
    _add_config(info)
    info.set_defaults(act=_info)
    _add_format(commands.add_parser("format", help="format the log directories of this node"))
    mapping = commands.add_parser("version-mapping", help="the features with which a cluster of a release begins")
    mapping.add_argument("-r", "--release-version", metavar="VERSION", help="the release (default: the newest)")
    mapping.set_defaults(act=_version_mapping)
    dependencies = commands.add_parser("feature-dependencies", help="what levels of features need")
    dependencies.add_argument(
        "-f", "--feature", action="append", required=True, metavar="NAME=LEVEL", help="may be repeated"
    )
    dependencies.set_defaults(act=_feature_dependencies)
    commands.add_parser("random-uuid", help="print a new id").set_defaults(act=random_uuid.run)


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", required=True, metavar="FILE", help="server.properties")


def _add_format(parser: argparse.ArgumentParser) -> None:
    _add_config(parser)
    parser.add_argument("-t", "--cluster-id", required=True, metavar="ID", help="the cluster id")
    parser.add_argument("-S", "--add-scram", action="append", metavar="CREDENTIAL", help="refused in this version")
    add_format_options(parser)
    parser.set_defaults(act=_format)


def run(options: argparse.Namespace) -> int:
    from pykbroker.storage.format import StorageFormatError

    try:
        status: int = options.act(options)
    except FileNotFoundError as error:
        print(error.filename or error, file=sys.stderr)
        return 1
    except (ConfigError, StorageFormatError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return status


def _config(options: argparse.Namespace) -> Config:
    options.properties, options.set = options.config, []
    return read(options, "", None).config


# -- info -------------------------------------------------------------------------------------------------------------


def _info(options: argparse.Namespace) -> int:
    from pykbroker.storage.format import directories_of
    from pykbroker.storage.meta_properties import look_into
    from pykbroker_log.os_disk.disk import OsDisk

    found = look_into(OsDisk(), directories_of(_config(options)))
    _block("Found log director", "y:", "ies:", found.directories)
    if found.metadata is not None:
        properties = ", ".join(f"{name}={value}" for name, value in found.metadata.to_properties().items())
        print(f"Found metadata: {{{properties}}}\n")
    _block("Found problem", ":", "s:", found.problems)
    return 1 if found.problems else 0


def _block(title: str, one: str, several: str, lines: list[str]) -> None:
    if lines:
        print(title + (one if len(lines) == 1 else several))
        for line in lines:
            print(f"  {line}")
        print()


# -- format -----------------------------------------------------------------------------------------------------------


def _format(options: argparse.Namespace) -> int:
    from pykbroker.metadata.features import METADATA_VERSION, chosen_levels, metadata_version_name
    from pykbroker.storage.format import format_directories
    from pykbroker.storage.initial_voters import parse_voters
    from pykbroker_log.os_disk.disk import OsDisk

    if options.add_scram:
        raise ConfigError("--add-scram: this version serves no SCRAM, and does not format a cluster that relies on it")
    config = _config(options)
    _check_voters(options, config)
    voters = None if options.initial_controllers is None else parse_voters(options.initial_controllers, config)
    levels = chosen_levels(
        options.release_version, dict(map(name_and_level, options.feature)), dynamic_quorum=not config.voters
    )
    formatted = format_directories(
        OsDisk(),
        config,
        options.cluster_id,
        random.SystemRandom(),
        now_ms=time.time_ns() // 1_000_000,
        ignore_formatted=options.ignore_formatted,
        levels=levels,
        standalone=options.standalone,
        initial_voters=voters,
        unreadable=lambda path: print(f"I/O error trying to read log directory {path}. Ignoring..."),
    )
    print(_bootstrap(levels) if formatted else "All of the log directories are already formatted.")
    release = metadata_version_name(levels[METADATA_VERSION])
    for path in formatted:
        kind = "data"
        if path == config.metadata_log_dir:
            kind = "metadata"
            if voters is not None or options.standalone:
                kind = "dynamic metadata"
            if options.standalone or (voters is not None and voters.get(config.node_id) is not None):
                kind = "dynamic metadata voter"
        print(f"Formatting {kind} directory {path} with {METADATA_VERSION} {release}.")
    return 0


def _check_voters(options: argparse.Namespace, config: Config) -> None:
    """Raises ConfigError."""
    if config.voters and (options.standalone or options.initial_controllers is not None):
        raise ConfigError(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
            "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
            "controller.quorum.bootstrap.servers instead."
        )
    if options.standalone and not config.is_controller:
        raise ConfigError("You can only use --standalone on a controller.")
    chosen = options.standalone or options.no_initial_controllers or options.initial_controllers is not None
    if config.is_controller and not config.voters and not chosen:
        raise ConfigError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )


def _bootstrap(levels: dict[str, int]) -> str:
    """What the first controller will write, in the words of Apache Kafka."""
    records = ", ".join(
        f"ApiMessageAndVersion(FeatureLevelRecord(name='{name}', featureLevel={level}) at version 0)"
        for name, level in levels.items()
    )
    first = next(iter(levels.values()))
    return (
        f"Bootstrap metadata: BootstrapMetadata(records=[{records}], metadataVersionLevel={first}, "
        "source=format command)"
    )


# -- features ---------------------------------------------------------------------------------------------------------


def _version_mapping(options: argparse.Namespace) -> int:
    from pykbroker.metadata.features import METADATA_VERSION, version_mapping

    name, levels = version_mapping(options.release_version)
    for feature, level in levels.items():
        print(f"{feature}={level}" + (f" ({name})" if feature == METADATA_VERSION else ""))
    return 0


def _feature_dependencies(options: argparse.Namespace) -> int:
    from pykbroker.metadata.features import dependency_lines

    for text in options.feature:
        name, equals, given = (part.strip() for part in text.partition("="))
        if not equals:
            raise ValueError(
                f"Invalid feature format: {text}. Expected format: 'feature=version' (e.g. 'group.version=1')"
            )
        try:
            _, level = name_and_level(text)
        except ValueError as error:
            raise ValueError(f"Invalid version format: {given} for feature {name}") from error
        print(*dependency_lines(name, level), sep="\n")
    return 0
