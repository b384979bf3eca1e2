"""A node that may open few files, with more silent connections than it has descriptors for."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pykbroker.net.places import own_places
from pykbroker.runtime.descriptor_budget import divide
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from testkit.nodes.processes import Process, format_combined
from testkit.nodes.wire import Wire, batch

LIMIT = 512
HOST = "127.0.0.1"
#: More than the descriptors for files.
PARTITIONS = 200


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in held:
            sock.bind((HOST, 0))
        return [sock.getsockname()[1] for sock in held]


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@contextmanager
def silent(port: int, count: int, served: int) -> Iterator[None]:
    """Open `count` silent connections, of which the node keeps `served`, minus some that it makes to itself."""
    with ExitStack() as stack:
        ones = []
        for _ in range(count):
            ones.append(stack.enter_context(socket.create_connection((HOST, port), timeout=60)))
            ones[-1].setblocking(False)
        until(lambda: served - 6 <= count - sum(map(is_closed, ones)) <= served)
        yield


def create(wire: Wire, topic: str) -> None:
    new = CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1)
    answer = wire.call(CreateTopicsRequest(topics=[new], timeout_ms=30_000))
    assert [each.error_code for each in answer.topics] == [ErrorCode.NONE]


def work(wire: Wire, topic: str) -> None:
    for partition in range(PARTITIONS):
        assert wire.produce(topic, batch(b"value"), partition=partition).error_code == ErrorCode.NONE


@pytest.mark.slow
def test_silent_connections_take_no_descriptor_of_the_log_nor_of_other_nodes(tmp_path: Path) -> None:
    between, controller = free_ports(2)
    names = {"PLAINTEXT": 0, "BETWEEN": between, "CONTROLLER": controller}
    properties = format_combined(
        tmp_path,
        {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in names.items()),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "inter.broker.listener.name": "BETWEEN",
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
            "log.dirs": str(tmp_path / "logs"),
            "socket.listen.backlog.size": "1000",
        },
    )
    total = divide(LIMIT).connections
    # A quarter belongs to the controller half, whose only listener has all of them.
    of_controller = total // 4
    of_broker = total - of_controller
    own = own_places(of_broker, nodes=["BETWEEN"], clients=["PLAINTEXT"])
    few = ("sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh")
    with Process(tmp_path / "log", str(properties), prefix=few) as node, ExitStack() as stack:
        node.ready()
        port = node.host_and_port[1]
        wire = stack.enter_context(Wire(node.address, timeout=60))
        create(wire, "before")
        with silent(port, LIMIT + 100, of_broker - own["BETWEEN"] - 1):
            with Wire(f"{HOST}:{between}") as broker, Wire(f"{HOST}:{controller}") as other:
                assert broker.metadata().brokers
                assert other.call(DescribeClusterRequest(endpoint_type=2)).error_code == ErrorCode.NONE
            work(wire, "before")
            create(wire, "during")
            with silent(between, LIMIT, own["BETWEEN"]), silent(controller, LIMIT, of_controller):
                work(wire, "during")
                assert len(os.listdir(f"/proc/{node.pid}/fd")) < LIMIT - 16
        until(lambda: is_served(node.address))
        work(wire, "during")
        text = node.log.read_text()
        assert "Too many open files" not in text
        assert text.count("a new connection is closed, because") == 3
        assert node.interrupt() == 0


def is_served(address: str) -> bool:
    try:
        with Wire(address) as wire:
            return bool(wire.metadata().brokers)
    except OSError:
        return False
