"""`pykbroker health`: ask a node on this machine over its health socket; exit status 0 when it serves.

It imports as little as possible: a container engine runs it every few seconds. Responsible for the client's side; what
is answered is node/node_health.py's.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable

import click

from pykbroker.tools.commands.command_group import Command

#: of the container image: the first that has a directory which the node may write to (a read-only root has only the
#: second)
USUAL_SOCKETS = ("/run/pykbroker/health.sock", f"/dev/shm/pykbroker-{os.getuid()}/health.sock")  # noqa: S108  # a directory that its user alone has made
_PATIENCE_SECONDS = 2.0


@click.command("health", cls=Command, example="pykbroker health")
@click.option(
    "--socket",
    "path",
    metavar="PATH",
    help="The node's pykbroker.health.socket (default: those of the container image).",
)
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print what the node answered.")
@click.option(
    "--alive",
    is_flag=True,
    help="Exit status 0 when the node answers, whatever it says: no new start helps a node without a quorum.",
)
def command(path: str | None, output: str | None, alive: bool) -> int:
    """Ask a running node whether it serves.

    The exit status is 0 when it does.
    """
    paths = USUAL_SOCKETS if path is None else (path,)
    try:
        line = ask(paths)
    except OSError as error:
        reason = error.strerror or error
        raise click.ClickException(f"no node answers at {' or '.join(paths)}: {reason}") from error
    answer = json.loads(line)
    if output == "json":
        click.echo(line.decode().strip())
    elif answer["healthy"]:
        click.echo(f"node {answer['node_id']} serves")
    else:
        click.echo(f"node {answer['node_id']} does not serve: {'; '.join(answer['problems'])}")
    return 0 if answer["healthy"] or alive else 1


def ask(paths: Iterable[str]) -> bytes:
    """The answer of the first node that takes a connection. Raises the OSError of the last path that has none."""
    failure = OSError("no path was given")
    for path in paths:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE_SECONDS)
            try:
                connection.connect(path)
            except OSError as error:
                failure = error
                continue
            answer = b""
            while part := connection.recv(4096):
                answer += part
            if not answer.endswith(b"\n"):
                raise OSError("the node closed the connection")
            return answer
    raise failure
