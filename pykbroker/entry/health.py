"""`pykbroker health`: ask the nodes of this machine over their health sockets; exit status 0 if they serve.

It imports as little as possible, because a container engine runs it every few seconds. Responsible for the client's
side and for the places where a socket is looked for; node/node_health.py is the node's side.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
from collections.abc import Sequence
from typing import Final

from pykbroker.entry.command_parser import CommandParser, one_of
from pykbroker.entry.data_dirs import CLUSTER, default_data_dir, ephemeral_dirs
from pykbroker.entry.failures import put_line, say
from pykbroker.socket_paths import short_path

#: A node of the image uses the first of these sockets whose directory it may write to. If the root file system is
#: read-only, this is the second socket.
USUAL_SOCKETS = ("/run/pykbroker/health.sock", f"/dev/shm/pykbroker-{os.getuid()}/health.sock")  # noqa: S108  # a node uses it only if other users cannot write there
#: The name of a node's socket in its data directory. In a cluster the data directory of each node is `node-N`.
SOCKET_NAME: Final = "health.sock"
_PATIENCE_SECONDS = 2.0


def parser() -> CommandParser:
    words = CommandParser(
        "health",
        """Ask the running nodes of this machine whether they serve.

        It finds every node that `pykbroker start` runs without a properties file as the same user, and the node of a
        container. The exit status is 0 when each of them serves.""",
        example="pykbroker health\npykbroker health --data-dir /tmp/kafka",
    )
    words.add_argument("--data-dir", metavar="DIR", help="Ask the node, or the cluster, with this --data-dir.")
    words.add_argument("--socket", dest="path", metavar="PATH", help="Ask the node with this pykbroker.health.socket.")
    words.add_argument("-o", "--output", type=one_of(["json"]), metavar="json", help="Print what each node answered.")
    words.add_argument(
        "--alive",
        action="store_true",
        help="Exit status 0 when the node answers, whatever it says: no new start helps a node without a quorum.",
    )
    words.exclude("--data-dir", "--socket")
    return words


def run(given: argparse.Namespace) -> int:
    """Print the answer of each node; returns the exit status. Raises OSError if no node answers."""
    is_named = given.path is not None or given.data_dir is not None
    places = _places(given)
    answers: list[bytes] = []
    silent: dict[str, OSError] = {}
    missing: dict[str, OSError] = {}
    for place in places:
        answered, failed = _ask_all(place)
        answers += answered
        # A killed node leaves its socket. So a socket that refuses is reported only if another node of the same cluster
        # answers. A socket that does not answer in time is always reported.
        for path, error in failed.items():
            (silent if answered or isinstance(error, TimeoutError) else missing)[path] = error
    if not answers:
        raise _no_answer(silent or missing, is_named=is_named)
    for path, error in silent.items():
        say(f"no node answers at {path}: {_reason(error)}")
    replies = [json.loads(answer) for answer in answers]
    for answer, reply in zip(answers, replies, strict=True):
        if given.output == "json":
            put_line(answer.decode().strip())
        elif reply["healthy"]:
            put_line(f"node {reply['node_id']} serves")
        else:
            put_line(f"node {reply['node_id']} does not serve: {'; '.join(reply['problems'])}")
    all_well = given.alive or all(reply["healthy"] for reply in replies)
    return 0 if all_well and not silent else 1


def _places(given: argparse.Namespace) -> list[list[str]]:
    """Return the paths of the sockets to ask, those of one cluster together."""
    if given.path is not None:
        return [[given.path]]
    if given.data_dir is not None:
        return [_sockets_of(given.data_dir)]
    directories = [default_data_dir(), default_data_dir(CLUSTER), *ephemeral_dirs()]
    return [[path] for path in USUAL_SOCKETS] + [_sockets_of(directory) for directory in directories]


def _sockets_of(directory: str) -> list[str]:
    """Return the paths of the sockets of a cluster's nodes, or of the one node with this data directory."""
    try:
        names = [name for name in os.listdir(directory) if name.startswith("node-") and name[5:].isdecimal()]
    except OSError:
        names = []
    nodes = sorted(names, key=lambda name: int(name[5:]))
    return [os.path.join(directory, name, SOCKET_NAME) for name in nodes] or [os.path.join(directory, SOCKET_NAME)]


def _ask_all(paths: Sequence[str]) -> tuple[list[bytes], dict[str, OSError]]:
    """Return the answers, and the error for each socket where no node answers."""
    answers: list[bytes] = []
    failed: dict[str, OSError] = {}
    for path in paths:
        try:
            answers.append(_ask(path))
        except OSError as error:
            failed[path] = error
    return answers, failed


def _ask(path: str) -> bytes:
    with short_path(path) as usable, socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE_SECONDS)
        connection.connect(usable)
        answer = b""
        while part := connection.recv(4096):
            answer += part
    if not answer.endswith(b"\n"):
        raise OSError("the node closed the connection")
    return answer


def _no_answer(failed: dict[str, OSError], *, is_named: bool) -> OSError:
    there = {path: error for path, error in failed.items() if is_named or not isinstance(error, FileNotFoundError)}
    if there:
        *_, error = there.values()
        return OSError(f"no node answers at {' or '.join(there)}: {_reason(error)}")
    return OSError(
        "no node of this user answers on this machine: --data-dir DIR asks the node that was started with it, --socket "
        "PATH one whose properties have pykbroker.health.socket"
    )


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "the node that made this socket no longer runs"
    return error.strerror or str(error)
