"""`pykbroker health`: ask a node on this machine over its health socket; exit status 0 when it serves.

It imports as little as possible: a container engine runs it every few seconds. Responsible for the client's side; what
is answered is node/node_health.py's.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Iterable

#: of the container image: the first that has a directory which the node may write to (a read-only root has only the
#: second)
USUAL_SOCKETS = ("/run/pykbroker/health.sock", f"/dev/shm/pykbroker-{os.getuid()}/health.sock")
_PATIENCE_SECONDS = 2.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--socket", metavar="PATH", help="the node's pykbroker.health.socket (default: those of the container image)"
    )
    parser.add_argument("-o", "--output", choices=("json",), help="print what the node answered")
    parser.add_argument(
        "--alive",
        action="store_true",
        help="exit status 0 when the node answers, whatever it says: no new start helps a node without a quorum",
    )


def run(options: argparse.Namespace) -> int:
    paths = USUAL_SOCKETS if options.socket is None else (options.socket,)
    try:
        line = ask(paths)
    except OSError as error:
        print(f"pykbroker: no node answers at {' or '.join(paths)}: {error.strerror or error}", file=sys.stderr)
        return 1
    answer = json.loads(line)
    if options.output == "json":
        print(line.decode().strip())
    elif answer["healthy"]:
        print(f"node {answer['node_id']} serves")
    else:
        print(f"node {answer['node_id']} does not serve: {'; '.join(answer['problems'])}")
    return 0 if answer["healthy"] or options.alive else 1


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
