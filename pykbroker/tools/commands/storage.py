"""`pykbroker storage`: Apache Kafka's `kafka-storage`, with its options, its text and its exit codes.

As in kafka-storage, output goes to standard output, and the reason of a failure to standard error. For unknown words
the text is click's, and the exit status is kafka-storage's.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from pykbroker.config.kinds import ConfigError
from pykbroker.config.typed_config import Config
from pykbroker.entry import failures
from pykbroker.entry.command_parser import CommandParser
from pykbroker.entry.format_options import FormatOptions, add_format_options, format_options, name_and_level
from pykbroker.entry.options import read
from pykbroker.tools.commands.command_group import Command, CommandGroup, excluding
from pykbroker.tools.commands.passed_on import click_parameters
from pykbroker.tools.commands.random_uuid import print_uuid

if TYPE_CHECKING:
    from pykbroker_wire.stored.metadata import UserScramCredentialRecord


class StorageCommand(Command):
    """A command that accepts the beginning of an option's name, and whose failures are printed without a prefix."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = [name for parameter in self.get_params(ctx) for name in parameter.opts if name.startswith("--")]
        return super().parse_args(ctx, [_whole(word, known) for word in args])

    def invoke(self, ctx: click.Context) -> Any:
        from pykbroker.storage.format import StorageFormatError

        try:
            return super().invoke(ctx)
        except (ConfigError, StorageFormatError, OSError, ValueError) as error:
            print(failures.said_of(error) or error, file=sys.stderr)
        return 1


def _whole(word: str, known: list[str]) -> str:
    name, equals, value = word.partition("=")
    begun = [one for one in known if one.startswith(name)] if name.startswith("--") and len(name) > 2 else []
    return begun[0] + equals + value if len(begun) == 1 else word


class StorageCommands(CommandGroup):
    """A group that fails without a verb, as kafka-storage does."""

    command_class = StorageCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            raise click.UsageError(f"A command is missing: {', '.join(self.commands)}.", ctx)
        return super().parse_args(ctx, args)


@click.group("storage", cls=StorageCommands)
def command() -> None:
    """Do what Apache Kafka's kafka-storage does, with its options."""


_config_option: Callable[[Callable[..., int]], Callable[..., int]] = click.option(
    "-c", "--config", "config_file", required=True, metavar="FILE", help="server.properties"
)


def _config(path: str) -> Config:
    return read(path, (), "", None).config


# -- info -------------------------------------------------------------------------------------------------------------


@command.command("info", example="pykbroker storage info -c server.properties")
@_config_option
def info(config_file: str) -> int:
    """Say what the log directories of this node are formatted for."""
    from pykbroker.storage.format import directories_of
    from pykbroker.storage.meta_properties import look_into
    from pykbroker_log.os_disk.disk import OsDisk

    found = look_into(OsDisk(), directories_of(_config(config_file)))
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


@command.command(
    "format", example="pykbroker storage format -c server.properties -t MkU3OEVBNTcwNTJENDM2Qk --standalone"
)
@_config_option
@click.option("-t", "--cluster-id", required=True, metavar="ID", help="The cluster id.")
@click.pass_context
def format_(ctx: click.Context, /, config_file: str, cluster_id: str, **words: Any) -> int:
    """Format the log directories of this node."""
    excluding(ctx, "standalone", "no_initial_controllers", "initial_controllers")
    from pykbroker.metadata.features import METADATA_VERSION, metadata_version_name
    from pykbroker.storage.format import format_directories
    from pykbroker_log.os_disk.disk import OsDisk

    chosen, config = format_options(words), _config(config_file)
    _check_voters(chosen, config)
    voters = chosen.voters(config)
    levels = chosen.levels(config)
    credentials = chosen.credentials(levels)
    formatted = format_directories(
        OsDisk(),
        config,
        cluster_id,
        random.SystemRandom(),
        now_ms=time.time_ns() // 1_000_000,
        ignore_formatted=chosen.ignore_formatted,
        levels=levels,
        credentials=credentials,
        standalone=chosen.standalone,
        initial_voters=voters,
        unreadable=lambda path: print(f"I/O error trying to read log directory {path}. Ignoring..."),
    )
    print(_bootstrap(levels, credentials) if formatted else "All of the log directories are already formatted.")
    release = metadata_version_name(levels[METADATA_VERSION])
    for path in formatted:
        kind = "data"
        if path == config.metadata_log_dir:
            kind = "metadata"
            if voters is not None or chosen.standalone:
                kind = "dynamic metadata"
            if chosen.standalone or (voters is not None and voters.get(config.node_id) is not None):
                kind = "dynamic metadata voter"
        print(f"Formatting {kind} directory {path} with {METADATA_VERSION} {release}.")
    return 0


def _add_format_options() -> None:
    """Add the options of `pykbroker format`."""
    parser = CommandParser("storage format", "", example="")
    add_format_options(parser)
    format_.params += click_parameters(parser)


_add_format_options()


def _check_voters(chosen: FormatOptions, config: Config) -> None:
    """Raise ConfigError if the options do not fit the node."""
    chosen.check(config)
    named = chosen.standalone or chosen.no_initial_controllers or chosen.initial_controllers is not None
    if config.is_controller and not config.voters and not named:
        raise ConfigError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )


def _bootstrap(levels: dict[str, int], credentials: list[UserScramCredentialRecord]) -> str:
    """Return Apache Kafka's text for the records that the first controller will write. Apache Kafka also prints the
    salts and keys of users, which this text hides."""
    written = [f"FeatureLevelRecord(name='{name}', featureLevel={level})" for name, level in levels.items()]
    written += [
        f"UserScramCredentialRecord(name='{one.name}', mechanism={one.mechanism}, salt=[hidden], storedKey=[hidden], "
        f"serverKey=[hidden], iterations={one.iterations})"
        for one in credentials
    ]
    records = ", ".join(f"ApiMessageAndVersion({record} at version 0)" for record in written)
    first = next(iter(levels.values()))
    return (
        f"Bootstrap metadata: BootstrapMetadata(records=[{records}], metadataVersionLevel={first}, "
        "source=format command)"
    )


# -- features ---------------------------------------------------------------------------------------------------------


@command.command("version-mapping", example="pykbroker storage version-mapping -r 4.0")
@click.option("-r", "--release-version", metavar="VERSION", help="The release (default: the newest).")
def version_mapping_(release_version: str | None) -> int:
    """Print the features with which a cluster of a release begins."""
    from pykbroker.metadata.features import METADATA_VERSION, version_mapping

    name, levels = version_mapping(release_version)
    for feature, level in levels.items():
        print(f"{feature}={level}" + (f" ({name})" if feature == METADATA_VERSION else ""))
    return 0


@command.command("feature-dependencies", example="pykbroker storage feature-dependencies -f group.version=1")
@click.option("-f", "--feature", multiple=True, required=True, metavar="NAME=LEVEL", help="May be repeated.")
def feature_dependencies(feature: tuple[str, ...]) -> int:
    """Print what levels of features need."""
    from pykbroker.metadata.features import dependency_lines

    for text in feature:
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


@command.command("random-uuid", example="pykbroker storage random-uuid")
def random_uuid() -> None:
    """Print a new cluster id or directory id."""
    print_uuid()
