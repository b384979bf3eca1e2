"""What `pykbroker format` and `pykbroker storage format` are both told: features, users, the first voters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from pykbroker.config.kinds import ConfigError
from pykbroker.tools.commands.command_group import excluding

if TYPE_CHECKING:
    from pykbroker.config.load import Config
    from pykbroker_raft.voters import VoterSet
    from pykbroker_wire.stored.metadata import UserScramCredentialRecord


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """The words of the command line."""

    ignore_formatted: bool
    release_version: str | None
    feature: tuple[str, ...]
    standalone: bool
    no_initial_controllers: bool
    initial_controllers: str | None
    add_scram: tuple[str, ...]

    def check(self, config: Config) -> None:
        """Raises ConfigError with Apache Kafka's text."""
        if config.voters and (self.standalone or self.initial_controllers is not None):
            raise ConfigError(
                "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
                "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
                "controller.quorum.bootstrap.servers instead."
            )
        if self.standalone and not config.is_controller:
            raise ConfigError("You can only use --standalone on a controller.")

    def voters(self, config: Config) -> VoterSet | None:
        """Those of --initial-controllers. Raises ConfigError, ValueError."""
        from pykbroker.storage.initial_voters import parse_voters

        return None if self.initial_controllers is None else parse_voters(self.initial_controllers, config)

    def levels(self, config: Config) -> dict[str, int]:
        """The level of each feature that the cluster begins with. Raises ValueError."""
        from pykbroker.metadata.features import chosen_levels

        return chosen_levels(
            self.release_version, dict(map(name_and_level, self.feature)), dynamic_quorum=not config.voters
        )

    def credentials(self, levels: dict[str, int]) -> list[UserScramCredentialRecord]:
        """Those of --add-scram. Raises ValueError."""
        from pykbroker.storage.scram_arguments import scram_records

        return scram_records(self.add_scram, levels)


_OPTIONS = (
    click.option(
        "-g", "--ignore-formatted", is_flag=True, help="Leave directories that are formatted already as they are."
    ),
    click.option(
        "-r", "--release-version", metavar="VERSION", help="The release whose features the cluster begins with."
    ),
    click.option(
        "-f",
        "--feature",
        multiple=True,
        metavar="NAME=LEVEL",
        help="The level of one feature, for example transaction.version=1 (may be repeated).",
    ),
    click.option("-s", "--standalone", is_flag=True, help="This controller is the first voter of a new quorum."),
    click.option(
        "-N", "--no-initial-controllers", is_flag=True, help="This node knows no voter until it finds a quorum."
    ),
    click.option(
        "-I",
        "--initial-controllers",
        metavar="VOTERS",
        help="The first voters of a new quorum, each id@host:port:directory.id, separated by commas; the same for "
        "all nodes.",
    ),
    click.option(
        "-S",
        "--add-scram",
        multiple=True,
        metavar="CREDENTIAL",
        help="A user that the cluster begins with, for example 'SCRAM-SHA-256=[name=alice,password=alice-secret]' or "
        '\'SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]\' (may be repeated).',
    ),
)


def format_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options; the function gets them as `chosen`, a FormatOptions."""

    @click.pass_context
    @wraps(function)
    def with_options(ctx: click.Context, /, **words: Any) -> int:
        excluding(ctx, "standalone", "no_initial_controllers", "initial_controllers")
        own = {name: words.pop(name) for name in FormatOptions.__dataclass_fields__}
        return function(chosen=FormatOptions(**own), **words)

    decorated: Callable[..., int] = with_options
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def name_and_level(text: str) -> tuple[str, int]:
    """`--feature NAME=LEVEL`, as kafka-storage reads it. Raises ValueError with Apache Kafka's text."""
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
