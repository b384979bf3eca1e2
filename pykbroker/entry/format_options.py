"""The options that `pykbroker format` and `pykbroker storage format` share: features, users, the first voters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pykbroker.config.kinds import ConfigError
from pykbroker.entry.command_parser import CommandParser

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config
    from pykbroker_raft.voters import VoterSet
    from pykbroker_wire.stored.metadata import UserScramCredentialRecord


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """The options of the command line."""

    ignore_formatted: bool
    release_version: str | None
    feature: Sequence[str]
    standalone: bool
    no_initial_controllers: bool
    initial_controllers: str | None
    add_scram: Sequence[str]

    def check(self, config: Config) -> None:
        """Raise ConfigError with Apache Kafka's text if the options do not fit the node."""
        if config.voters and (self.standalone or self.initial_controllers is not None):
            raise ConfigError(
                "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
                "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
                "controller.quorum.bootstrap.servers instead."
            )
        if self.standalone and not config.is_controller:
            raise ConfigError("You can only use --standalone on a controller.")

    def voters(self, config: Config) -> VoterSet | None:
        """Return the voters of --initial-controllers. Raises ConfigError, ValueError."""
        from pykbroker.storage.initial_voters import parse_voters

        return None if self.initial_controllers is None else parse_voters(self.initial_controllers, config)

    def levels(self, config: Config) -> dict[str, int]:
        """Return feature -> the level with which the cluster begins. Raises ValueError."""
        from pykbroker.metadata.features import chosen_levels

        return chosen_levels(
            self.release_version, dict(map(name_and_level, self.feature)), dynamic_quorum=not config.voters
        )

    def credentials(self, levels: dict[str, int]) -> list[UserScramCredentialRecord]:
        """Return the credentials of --add-scram. Raises ValueError."""
        from pykbroker.storage.scram_arguments import scram_records

        return scram_records(self.add_scram, levels)


def add_format_options(parser: CommandParser) -> None:
    """Add the options; `format_options` reads their values."""
    parser.add_argument(
        "-g",
        "--ignore-formatted",
        action="store_true",
        help="Leave directories that are formatted already as they are.",
    )
    parser.add_argument(
        "-r", "--release-version", metavar="VERSION", help="The release whose features the cluster begins with."
    )
    parser.add_argument(
        "-f",
        "--feature",
        action="append",
        default=[],
        metavar="NAME=LEVEL",
        help="The level of one feature, for example transaction.version=1 (may be repeated).",
    )
    parser.add_argument(
        "-s", "--standalone", action="store_true", help="This controller is the first voter of a new quorum."
    )
    parser.add_argument(
        "-N",
        "--no-initial-controllers",
        action="store_true",
        help="This node knows no voter until it finds a quorum.",
    )
    parser.add_argument(
        "-I",
        "--initial-controllers",
        metavar="VOTERS",
        help="The first voters of a new quorum, each id@host:port:directory.id, separated by commas; the same for "
        "all nodes.",
    )
    parser.add_argument(
        "-S",
        "--add-scram",
        action="append",
        default=[],
        metavar="CREDENTIAL",
        help="A user that the cluster begins with, for example 'SCRAM-SHA-256=[name=alice,password=alice-secret]' or "
        '\'SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]\' (may be repeated).',
    )
    parser.exclude("--standalone", "--no-initial-controllers", "--initial-controllers")


def format_options(words: Mapping[str, Any]) -> FormatOptions:
    """Return the options. `words` has a value for the name of each field of FormatOptions, and may have others."""
    return FormatOptions(**{name: words[name] for name in FormatOptions.__dataclass_fields__})


def name_and_level(text: str) -> tuple[str, int]:
    """Parse `--feature NAME=LEVEL`, as kafka-storage does. Raises ValueError with Apache Kafka's text."""
    name, equals, level = text.partition("=")
    if not equals:
        raise ValueError(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        number = int(level)
    except ValueError:
        number = 1 << 15
    if not -(1 << 15) <= number < 1 << 15:
        raise ValueError(f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short.")
    return name.strip(), number
