"""`pykbroker format`: what `kafka-storage format` does to the log directories of a properties file, in few words.

`pykbroker storage format` (storage.py) takes kafka-storage's to the letter. Here a cluster id need not be given, and
`--standalone` is the default for a controller without `controller.quorum.voters`.
"""

from __future__ import annotations

import random
import time

import click

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import Config
from pykbroker.tools.commands.command_group import Command
from pykbroker.tools.commands.format_options import FormatOptions, format_options
from pykbroker.tools.commands.options import default_data_dir, properties_argument, read
from pykbroker_wire.primitives import random_uuid, uuid_from_str, uuid_to_str


@click.command("format", cls=Command, example="pykbroker format server.properties")
@properties_argument
@click.option("-c", "--config", "config_file", metavar="FILE", help="The same as server.properties.")
@click.option("-t", "--cluster-id", metavar="ID", help="The cluster id (default: a new one).")
@format_options
def command(
    properties: str | None,
    settings: tuple[str, ...],
    config_file: str | None,
    cluster_id: str | None,
    chosen: FormatOptions,
) -> int:
    """Format the log directories of a properties file.

    The cluster begins with the newest features, and a controller is the first voter of its quorum, unless an option
    says otherwise.
    """
    if config_file is not None and properties is not None:
        raise ConfigError("Name the configuration file once: with --config or without")
    try:
        return _format(read(config_file or properties, settings, default_data_dir(), None).config, cluster_id, chosen)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _format(config: Config, given_id: str | None, chosen: FormatOptions) -> int:
    from pykbroker.metadata.features import METADATA_VERSION, metadata_version_name
    from pykbroker.storage.format import format_directories
    from pykbroker_log.os_disk.disk import OsDisk

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
        click.echo("All of the log directories are already formatted.")
    for directory in formatted:
        click.echo(f"Formatting {directory} with metadata.version {metadata_version_name(levels[METADATA_VERSION])}.")
    return 0
