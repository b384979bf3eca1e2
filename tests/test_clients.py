"""The repository has three Kafka clients of its own. A fourth one would have to make the header of a request.

Clients of other people, such as kafka-python, are not counted. A test that needs the bytes of a request takes
`frame_of` of testkit/nodes/wire.py, and gives them to an object in memory or to a connection of that client.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.parsed import parsed

ROOT: Final = Path(__file__).parents[1]
#: The protocol itself, with its tests.
APART: Final = ("wire", "tests/wire")
#: The module of each client that makes the headers of its requests.
CLIENTS: Final = {
    "pykbroker/net/in_flight_requests.py": "nodes ask each other on an event loop (pykbroker/net/client.py)",
    "pykbroker/tools/cluster/node_connection.py": "a tool asks a cluster and waits (asked_node.py beside it)",
    "testkit/nodes/wire.py": "a test or a measurement asks a node and waits, or sends exact bytes",
}
#: A request that was received is encoded again, and no connection is made for it.
PASSED_ON: Final = {
    "pykbroker/dispatch/forwarding.py": "a broker sends the request of a client to the controller in an Envelope",
    "pykbroker/testing/watched_dispatcher.py": "a fault rule has changed the request before the node sees it",
}
#: struct formats of a request header, with or without the size of the frame
_HEADER_FORMAT: Final = re.compile(r">i?hhih?")
_MAKERS: Final = {"encode_request", "RequestHeader"}
#: a module that has none of these makes no header and takes no frame
_WORDS: Final = (*_MAKERS, "frame_of", "hhi")
#: methods and functions that make a connection
_CONNECTING: Final = {".connect", ".create_connection", ".open_connection", ".sock_connect", "create_connection"}


def calls(tree: ast.AST) -> Iterator[str]:
    """The names of the functions, methods and classes that are called; with a dot if they are of an object or module,
    and without it too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.func.id
            elif isinstance(node.func, ast.Attribute):
                yield from (node.func.attr, f".{node.func.attr}")


def makes_headers(tree: ast.AST) -> bool:
    """Return True if a module makes the header of a request, by the protocol's functions or by a format of its own."""
    formats = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return not _MAKERS.isdisjoint(calls(tree)) or any(map(_HEADER_FORMAT.fullmatch, formats))


def sends_frames_itself(tree: ast.AST) -> bool:
    """Return True if a module takes the bytes of requests, and makes connections without the client that has them."""
    called = set(calls(tree))
    return "frame_of" in called and not _CONNECTING.isdisjoint(called)


def modules() -> dict[str, Path]:
    """Every Python file of the repository that is not one of `APART`, by its path from the root."""
    folders = (path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = {path.relative_to(ROOT).as_posix(): path for folder in folders for path in folder.rglob("*.py")}
    return {name: path for name, path in found.items() if not name.startswith(tuple(f"{each}/" for each in APART))}


@pytest.mark.slow
def test_there_are_three_clients() -> None:
    texts = {name: path.read_text(encoding="utf-8") for name, path in modules().items()}
    found = {name: parsed(ROOT / name) for name, text in texts.items() if any(word in text for word in _WORDS)}
    assert {name for name, tree in found.items() if makes_headers(tree)} == CLIENTS.keys() | PASSED_ON.keys()
    assert {name for name, tree in found.items() if sends_frames_itself(tree)} == {"testkit/nodes/wire.py"}


@pytest.mark.parametrize(
    "source",
    [
        "sock.sendall(b''.join(encode_request(3, 12, 1, 'c', request)))",
        "data = headers.encode_request(3, 12, 1, 'c', request)",
        "header = RequestHeader(request_api_key=3, request_api_version=12)",
        "data = struct.pack('>hhih', 3, 12, 1, -1)",
        "HEADER = Struct('>ihhih')",
    ],
)
def test_each_way_to_make_a_header_is_found(source: str) -> None:
    assert makes_headers(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "answer = wire.call(request)",
        "header, position = RequestHeader.decode(frame)",
        "data = encode_response(1, 3, 12, body)",
        "a, b = struct.unpack('>hi', data)",
    ],
)
def test_reading_one_makes_none(source: str) -> None:
    assert not makes_headers(ast.parse(source))


def test_a_connection_of_its_own_for_frames_is_found() -> None:
    connects = "sock = socket.create_connection(address)\n"
    assert sends_frames_itself(ast.parse(f"{connects}sock.sendall(frame_of(request))"))
    assert not sends_frames_itself(ast.parse("dispatcher(peer, frame_of(request)[4:])"))
    assert not sends_frames_itself(ast.parse(f"{connects}sock.sendall(b'GET / HTTP/1.0')"))
