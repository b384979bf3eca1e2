"""Garbage on the controller listener: each connection ends with one line or gets Kafka's error, and the metadata log
keeps every byte.

The node is the only voter of its quorum. tests/quorum/test_hostile_peers.py has messages that are well formed and
untrue, and replicas that follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.dispatch.rows import On
from pykbroker_raft import rpc
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from testkit.nodes.nodes import eventually
from testkit.nodes.processes import Process, format_combined
from testkit.nodes.wire import CLOSED, Wire, any_header, batch, framed
from testkit.ports import steady_port
from tests.badinput import mutations
from tests.badinput.asking import Asker
from tests.badinput.test_frames import ADDRESSES, REFUSED
from tests.badinput.test_hostile import attack

pytestmark = pytest.mark.slow

SEED, EACH = 13, 60
#: cases that a broker's listener refuses, and a controller's serves
OWN = ("key of a controller",)


class Controller:
    """A combined node, its process, and its metadata log."""

    def __init__(self, folder: Path, port: int, process: Process) -> None:
        self.folder = folder
        self.port = port
        self.process = process

    def cluster_id(self) -> str:
        lines = (self.folder / "data" / "meta.properties").read_text().splitlines()
        return next(line.removeprefix("cluster.id=") for line in lines if line.startswith("cluster.id="))

    def metadata(self) -> bytes:
        """Return all bytes of the log; a segment may be longer than its records."""
        segments = sorted((self.folder / "data" / "__cluster_metadata-0").glob("*.log"))
        return b"".join(segment.read_bytes() for segment in segments).rstrip(b"\0")

    def complaints(self) -> list[str]:
        words = (" ERROR ", " CRITICAL ", "Traceback")
        return [line for line in self.process.tail(100_000).splitlines() if any(word in line for word in words)]

    def leads(self) -> bool:
        with Wire(self.process.address) as wire:
            answer = wire.quorum()
        return not answer.error_code and answer.topics[0].partitions[0].leader_id == 1

    def has_its_broker(self) -> bool:
        """Return True if the broker is registered and not fenced."""
        with Wire(self.process.address) as wire:
            return [broker.broker_id for broker in wire.call(DescribeClusterRequest(endpoint_type=1)).brokers] == [1]

    def serves(self, topic: str) -> None:
        """Check that metadata is written and read: a topic is created, and takes a record."""
        with Wire(self.process.address) as wire:
            wire.create(topic)
            assert wire.produce(topic, batch(b"kept")).error_code == ErrorCode.NONE


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    folder, port = tmp_path_factory.mktemp("controller"), steady_port()
    properties = format_combined(
        folder,
        {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{port + 1}",
            "log.dirs": folder / "data",
            "offsets.topic.replication.factor": 1,
            "metadata.max.idle.interval.ms": 0,
            "pykbroker.connection.request.receive.timeout.ms": 1_500,
        },
    )
    with Process(folder / "log", str(properties)).ready() as process:
        found = Controller(folder, port + 1, process)
        found.serves("before")
        yield found
        assert not found.complaints()
        assert process.interrupt() == 0
    # The garbage does not prevent the next start.
    kept = found.metadata()
    with Process(folder / "log", str(properties)).ready() as process, Wire(process.address) as wire:
        assert wire.values("before") == [b"kept"]
        assert found.metadata().startswith(kept)


@pytest.mark.parametrize("name", [name for name in REFUSED if name not in OWN])
def test_closes_the_connection_and_says_so_once(name: str, controller: Controller) -> None:
    before = controller.metadata()
    with Asker(controller.port, ADDRESSES[name]) as client:
        assert client.exchange(REFUSED[name]) is CLOSED
        lines = client.said_in(controller.process.log)
        assert len(lines) == 1, lines
        assert " INFO " in lines[0]
    assert controller.metadata() == before


@pytest.mark.parametrize(("key", "version"), mutations.served(On.CONTROLLER))
def test_a_valid_header_with_a_garbage_body(key: int, version: int, controller: Controller) -> None:
    """It covers every API of the listener. A body that cannot be decoded ends the connection."""
    before = controller.metadata()
    for body in (b"\xff" * 64, b"\x02" + b"\x7f" * 200):
        with Asker(controller.port) as client:
            answer = client.exchange(framed(any_header(key, version, flexible=True) + body))
            assert answer is CLOSED or isinstance(answer, bytes)
            if answer is CLOSED:
                assert len(client.said_in(controller.process.log)) == 1
    assert controller.metadata() == before


def test_mutated_requests_of_every_api(controller: Controller, capsys: pytest.CaptureFixture[str]) -> None:
    """They have the right cluster id, the metadata topic and epochs near those of the node. Some are good enough to be
    served, and one that unregisters the broker lets it register again. In any case the bytes of the log stay, and the
    node leads and serves."""
    before = controller.metadata()
    known = mutations.Known(rpc.TOPIC, rpc.TOPIC_ID, controller.cluster_id())
    verdicts = attack(controller.port, mutations.requests(SEED, EACH, 0, known, On.CONTROLLER))
    with capsys.disabled():
        print(f"\n  seed {SEED}: {dict(verdicts)}")
    assert sum(verdicts.values()) == EACH * len(mutations.served(On.CONTROLLER))
    assert verdicts["answered"] > 200
    assert verdicts["closed"] > 200
    try:
        eventually("the node leads its quorum again", controller.leads)
        eventually("the broker is a member again", controller.has_its_broker)
    except AssertionError as error:
        error.add_note(controller.process.tail(60))
        raise
    controller.serves("after")
    assert controller.metadata().startswith(before)
