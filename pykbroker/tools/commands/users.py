"""`pykbroker users`: the users of SCRAM in the metadata of any Kafka cluster."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

import click

from pykbroker.tools.commands.client_options import ClientOptions, client_options, controller_options
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.output import Output, output_option

_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")


@dataclass(frozen=True, slots=True)
class CredentialRow:
    """One credential of a user. It has no password, because a cluster does not store it."""

    user: str
    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class RemovedUser:
    """The credentials that `users remove` has removed."""

    user: str
    mechanisms: list[str]


@click.group("users", cls=CommandGroup)
def command() -> None:
    """List the users of SCRAM, set their passwords, remove them."""


@command.command("list", example="pykbroker users list")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output_option
@client_options
def listing(client: ClientOptions, out: Output, names: tuple[str, ...]) -> None:
    """List users and their mechanisms: all, or those of these names."""
    from pykbroker.tools.cluster import quotas

    with client.cluster() as cluster:
        found = quotas.scram_of(cluster, None)
    for name in names:
        if name not in found:
            from pykbroker.tools.commands.unknown_names import unknown

            raise unknown("user of SCRAM", name, found, "users list")
    rows = [
        CredentialRow(user, mechanism, iterations)
        for user in sorted(names or found)
        for mechanism, iterations in sorted(found[user])
    ]
    out.rows(CredentialRow, rows)


@command.command(
    "set",
    example="pykbroker users set alice\npykbroker users set alice --mechanism SCRAM-SHA-256 < alice.password",
)
@click.argument("name", metavar="NAME")
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(_MECHANISMS),
    help="What the password is for (may be repeated; default: SCRAM-SHA-512).",
)
@click.option(
    "--iterations",
    default=4096,
    show_default=True,
    type=click.IntRange(4096, 16384),
    help="How often the password is hashed.",
)
@output_option
@controller_options
def setting(client: ClientOptions, out: Output, name: str, mechanisms: tuple[str, ...], iterations: int) -> None:
    """Set the password of a user, who is added if need be.

    The password is asked for on a terminal; elsewhere it is the first line of standard input. No option takes it: other
    users of a machine see the options of its programs. Clients authenticate with the new one from now on; connections
    stay until they authenticate again.
    """
    from pykbroker.tools.cluster import quotas

    chosen = tuple(dict.fromkeys(mechanisms)) or _MECHANISMS[:1]
    with client.cluster() as cluster:
        # Before asking for the password, check that the cluster can be reached and allows the request.
        quotas.scram_of(cluster, name)
        password = _password(name)
        for mechanism in chosen:
            quotas.alter_scram(cluster, name, {mechanism: (iterations, password)}, ())
    rows = [CredentialRow(name, mechanism, iterations) for mechanism in chosen]
    out.done(f"Set the password of {name} for {' and '.join(chosen)}.", rows)


@command.command("remove", example="pykbroker users remove alice")
@click.argument("name", metavar="NAME")
@click.option(
    "--mechanism", "mechanisms", multiple=True, type=click.Choice(_MECHANISMS), help="Only this (may be repeated)."
)
@output_option
@controller_options
def remove(client: ClientOptions, out: Output, name: str, mechanisms: tuple[str, ...]) -> None:
    """Remove a user, or one mechanism of a user. Connections stay until they authenticate again."""
    from pykbroker.tools.cluster import quotas

    with client.cluster() as cluster:
        there = quotas.scram_of(cluster, None)
        if name not in there:
            from pykbroker.tools.commands.unknown_names import unknown

            raise unknown("user of SCRAM", name, there, "users list")
        known = [mechanism for mechanism, _ in there[name]]
        if missing := [one for one in mechanisms if one not in known]:
            raise click.ClickException(f"{name} has no {', '.join(missing)}, only {', '.join(known)}")
        ended = [one for one in known if one in (mechanisms or known)]
        for mechanism in ended:
            quotas.alter_scram(cluster, name, {}, [mechanism])
    out.done(f"Removed {' and '.join(ended)} of {name}.", RemovedUser(name, ended))


def _password(name: str) -> str:
    if sys.stdin.isatty():
        found: str = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
        return found
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise click.ClickException("The password is the first line of standard input, which is empty")
    return line
