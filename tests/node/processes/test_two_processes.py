"""process.roles=controller and process.roles=broker as two processes: a client's requests go over the wire between
them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pykbroker_wire.errors import ErrorCode
from testkit.acting import acts
from testkit.nodes.processes import Process, run_here, write_properties
from testkit.nodes.wire import Wire, batch
from testkit.ports import steady_port

pytestmark = pytest.mark.slow


class Pair:
    """A controller and a broker of one cluster."""

    def __init__(self, folder: Path, quorum: str) -> None:
        self.folder = folder
        self.controller_port = steady_port()
        common = {
            "controller.listener.names": "CONTROLLER",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 3,
            "group.initial.rebalance.delay.ms": 0,
        }
        # A static quorum names its voters; a dynamic one is found through any controller (KIP-853).
        if quorum == "static":
            common["controller.quorum.voters"] = f"1@127.0.0.1:{self.controller_port}"
        else:
            common["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{self.controller_port}"
        self.controller_file = write_properties(
            folder / "controller.properties",
            {
                **common,
                "process.roles": "controller",
                "node.id": 1,
                "listeners": f"CONTROLLER://127.0.0.1:{self.controller_port}",
                "log.dirs": folder / "controller",
            },
        )
        self.broker_file = write_properties(
            folder / "broker.properties",
            {
                **common,
                "process.roles": "broker",
                "node.id": 2,
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": folder / "broker",
            },
        )
        for file in (self.controller_file, self.broker_file):
            done = run_here("format", str(file), "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qk")
            assert done.returncode == 0, done.stderr

    def controller(self) -> Process:
        return Process(self.folder / "controller.log", str(self.controller_file))

    def broker(self) -> Process:
        return Process(self.folder / "broker.log", str(self.broker_file))


@acts(
    broker=(
        "process.roles",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
    ),
    run_shows=lambda run: [
        "process.roles",
        "controller.listener.names",
        "controller.quorum.voters" if run["quorum"] == "static" else "controller.quorum.bootstrap.servers",
    ],
)
@pytest.mark.parametrize("quorum", ["dynamic", "static"])
def test_client_smoke(tmp_path: Path, quorum: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic

    pair = Pair(tmp_path, quorum)
    with pair.controller() as controller, pair.broker() as broker:
        controller.ready()
        address = broker.ready().address
        admin = KafkaAdminClient(bootstrap_servers=address)
        admin.create_topics([NewTopic("smoke", num_partitions=3, replication_factor=1)])
        producer = KafkaProducer(bootstrap_servers=address, acks="all")
        for number in range(300):
            producer.send("smoke", b"%d" % number, partition=number % 3)
        producer.flush()
        producer.close()
        assert consume(KafkaConsumer, address, 300) == {b"%d" % number for number in range(300)}
        assert consume(KafkaConsumer, address, 0) == set()
        admin.delete_topics(["smoke"])
        admin.close()
        with Wire(address) as wire:
            # The controller has answered; this broker gets the change from the quorum.
            while "smoke" in {topic.name for topic in wire.metadata().topics}:
                pass
            assert [node.node_id for node in wire.metadata().brokers] == [2]
            # The broker is an observer of the quorum, the controller its only voter.
            described = wire.quorum().topics[0].partitions[0]
            assert described.leader_id == 1
            assert [voter.replica_id for voter in described.current_voters] == [1]
            assert [observer.replica_id for observer in described.observers] == [2]
        assert broker.interrupt() == 0
        assert controller.interrupt() == 0


def consume(consumer_class: type, address: str, count: int) -> set[bytes]:
    """Return the values that a member of the group reads from the committed position."""
    consumer = consumer_class(
        "smoke",
        bootstrap_servers=address,
        group_id="smokers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=60_000 if count else 500,
    )
    found: set[bytes] = set()
    for record in consumer:
        found.add(record.value)
        if len(found) == count:
            break
    consumer.commit()
    consumer.close()
    return found


def test_the_broker_may_come_first_and_outlives_its_controller(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "dynamic")
    with pair.broker() as broker:
        with pair.controller() as controller:
            controller.ready()
            with Wire(broker.ready().address) as wire:
                wire.create("kept", partitions=1)
                assert wire.produce("kept", batch(b"one")).error_code == ErrorCode.NONE
            controller.kill()
        # Without a controller existing topics are still served.
        with Wire(broker.address) as wire:
            assert wire.produce("kept", batch(b"two")).error_code == ErrorCode.NONE
        with pair.controller() as controller:
            controller.ready()
            with Wire(broker.address) as wire:
                wire.create("again", partitions=1)
                assert wire.produce("again", batch(b"three")).error_code == ErrorCode.NONE
                assert wire.values("kept") == [b"one", b"two"]
            # Both at once, as when a machine is shut down.
            waiting = threading.Thread(target=broker.interrupt)
            waiting.start()
            waiting.join(30)
            assert broker.wait(1) == 0
            assert controller.interrupt() == 0
