"""`pykbroker version`."""

from __future__ import annotations

import click

from pykbroker import __version__
from pykbroker.tools.commands.command_group import Command


@click.command("version", cls=Command, example="pykbroker version")
def command() -> None:
    """Print the version."""
    click.echo(__version__)
