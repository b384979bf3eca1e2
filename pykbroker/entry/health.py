"""`pykbroker health`: ask a node on this machine over its health socket; exit status 0 if it serves.

It imports as little as possible, because a container engine runs it every few seconds. Responsible for the client's
side; node/node_health.py is the node's side.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
from collections.abc import Iterable

from pykbroker.entry.command_parser import CommandParser, one_of

#: The image's node uses the first of these in a directory that it may write to: with a read-only root the second.
USUAL_SOCKETS = ("/run/pykbroker/health.sock", f"/dev/shm/pykbroker-{os.getuid()}/health.sock")  # noqa: S108  # a directory that its user alone has made
_PATIENCE_SECONDS = 2.0


def parser() -> CommandParser:
    words = CommandParser(
        "health",
        """Ask a running node whether it serves.

        The exit status is 0 when it does.""",
        example="pykbroker health",
    )
    words.add_argument(
        "--socket",
        dest="path",
        metavar="PATH",
        help="The node's pykbroker.health.socket (default: those of the container image).",
    )
    words.add_argument("-o", "--output", type=one_of(["json"]), metavar="json", help="Print what the node answered.")
    words.add_argument(
        "--alive",
        action="store_true",
        help="Exit status 0 when the node answers, whatever it says: no new start helps a node without a quorum.",
    )
    return words


def run(given: argparse.Namespace) -> int:
    """Print the node's answer; returns the exit status. Raises OSError if no node answers."""
    paths = USUAL_SOCKETS if given.path is None else (given.path,)
    try:
        line = ask(paths)
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"no node answers at {' or '.join(paths)}: {reason}") from error
    answer = json.loads(line)
    if given.output == "json":
        print(line.decode().strip())
    elif answer["healthy"]:
        print(f"node {answer['node_id']} serves")
    else:
        print(f"node {answer['node_id']} does not serve: {'; '.join(answer['problems'])}")
    return 0 if answer["healthy"] or given.alive else 1


def ask(paths: Iterable[str]) -> bytes:
    """Return the answer of the first node that accepts a connection. If no node does, raises the OSError of the last
    path."""
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
