"""`pykbroker random-uuid`: what `kafka-storage random-uuid` prints."""

from __future__ import annotations

import click

from pykbroker.tools.commands.command_group import Command


@click.command("random-uuid", cls=Command, example="pykbroker random-uuid")
def command() -> None:
    """Print a new cluster id or directory id."""
    print_uuid()


def print_uuid() -> None:
    """As kafka-storage does."""
    import random

    from pykbroker_wire.primitives import random_uuid, uuid_to_str

    click.echo(uuid_to_str(random_uuid(random.SystemRandom())))
