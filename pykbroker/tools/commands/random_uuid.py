"""`pykbroker random-uuid`: print a new id, as `kafka-storage random-uuid` does."""

from __future__ import annotations

import click

from pykbroker.tools.commands.command_group import Command


@click.command("random-uuid", cls=Command, example="pykbroker random-uuid")
def command() -> None:
    """Print a new cluster id or directory id."""
    print_uuid()


def print_uuid() -> None:
    """Print an id as kafka-storage does."""
    import random

    from pykbroker_wire.primitives import random_uuid, uuid_to_str

    click.echo(uuid_to_str(random_uuid(random.SystemRandom())))
