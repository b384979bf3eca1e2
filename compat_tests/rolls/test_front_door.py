"""The address that stays while brokers go."""

from __future__ import annotations

import socket
from contextlib import closing

from compat_tests.rolls.front_door import FrontDoor


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def test_a_connection_is_carried_to_a_broker_that_runs_and_ends_with_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        first = f"localhost:{gone.getsockname()[1]}"
    with socket.create_server(("127.0.0.1", 0)) as broker:
        brokers = [first, f"localhost:{broker.getsockname()[1]}"]
        with closing(FrontDoor(lambda: brokers)) as door:
            with socket.create_connection(host_and_port(door.address), timeout=60) as client:
                served, _ = broker.accept()
                with served:
                    client.sendall(b"asked")
                    assert served.recv(100) == b"asked"
                    served.sendall(b"answered")
                    assert client.recv(100) == b"answered"
                assert client.recv(100) == b""
            brokers.clear()
            with socket.create_connection(host_and_port(door.address), timeout=60) as client:
                assert client.recv(100) == b""
