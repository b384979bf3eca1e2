"""A node with two log directories in a cluster: one fails, and is replaced by an empty one, while clients write and
read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_log_dirs import DescribeLogDirsRequest
from testkit.nodes.load import Load
from testkit.nodes.nodes import PATIENCE_SECONDS, eventually
from testkit.nodes.processes import run_here
from testkit.nodes.trio import NUMBERS, REPLICATED, Trio
from testkit.nodes.wire import Wire
from tests.node.disks.test_real_disks import move
from tests.node.processes.test_replication import new_leader

pytestmark = pytest.mark.slow

#: The directory of node 2's replica, and the replicas: node 2 leads `stays` and `led`, and follows `followed`.
TOPICS = {"stays": ("kept", (2, 3, 1)), "led": ("lost", (2, 1, 3)), "followed": ("lost", (3, 1, 2))}


class TwoDisks(Trio):
    """Node 2 has a second directory."""

    def folder_of(self, number: int, topic: str, partition: int) -> Path:
        second = self.folder / "second2" / f"{topic}-{partition}"
        return second if number == 2 and second.is_dir() else super().folder_of(number, topic, partition)


class Disks:
    """The trio, and the two directories of node 2: its metadata log is in the first."""

    def __init__(self, folder: Path) -> None:
        self.paths = {"kept": folder / "data2", "lost": folder / "second2"}
        own = {2: {"log.dirs": ",".join(map(str, self.paths.values()))}}
        settings = {
            **REPLICATED,
            "replica.high.watermark.checkpoint.interval.ms": 200,
            # A leader waits for a replica that was caught up until then, although its directory has failed.
            "replica.lag.time.max.ms": 8_000,
        }
        self.trio = TwoDisks(folder, "dynamic", settings, own)

    def fill(self) -> None:
        with Wire(self.trio.address(2)) as wire:
            for topic, (disk, replicas) in TOPICS.items():
                assert move(wire, topic, self.paths[disk]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                self.trio.create(topic, replicas)
                assert (self.paths[disk] / f"{topic}-0").is_dir()

    def errors(self) -> dict[str, int]:
        with Wire(self.trio.address(2)) as wire:
            results = wire.call(DescribeLogDirsRequest(topics=None)).results
        return {
            disk: each.error_code for disk, path in self.paths.items() for each in results if each.log_dir == str(path)
        }

    def has_failed(self, disk: str) -> None:
        expected = {name: ErrorCode.KAFKA_STORAGE_ERROR if name == disk else ErrorCode.NONE for name in self.paths}
        eventually(f"the directory {disk} is offline", lambda: self.errors() == expected)

    def replace(self, disk: str) -> None:
        """Replace it by an empty disk, formatted as Apache Kafka's tool does it."""
        self.paths[disk].mkdir()
        lines = (self.paths["kept"] / "meta.properties").read_text().splitlines()
        (cluster_id,) = [line.removeprefix("cluster.id=") for line in lines if line.startswith("cluster.id=")]
        properties = str(self.trio.files[2])
        arguments = ["--cluster-id", cluster_id, "--ignore-formatted", "--no-initial-controllers"]
        done = run_here("format", properties, *arguments)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    made = Disks(tmp_path)
    with made.trio as trio:
        trio.serving(*NUMBERS)
        made.fill()
        yield made


def test_a_directory_that_fails_costs_its_replicas_and_an_empty_one_is_filled(disks: Disks) -> None:
    trio = disks.trio
    with Load(trio, list(TOPICS)) as load:
        load.goes_on()
        disks.paths["lost"].rename(disks.paths["lost"].with_name("taken"))
        disks.has_failed("lost")
        assert new_leader(trio, "led", but=2) in (1, 3)
        for topic in ("led", "followed"):
            eventually(f"node 2 leaves the ISR of {topic}", lambda t=topic: 2 not in trio.partitions(t)[0].isr_nodes)  # type: ignore[misc]
        load.goes_on()
        eventually("stays is whole", lambda: set(trio.partitions("stays")[0].isr_nodes) == {1, 2, 3})
        assert trio.leaders("stays") == {0: 2}
        # The node still serves, and its other replicas with it.
        trio.serving(*NUMBERS)
        assert trio.stop(2) == 0
        load.goes_on()
        disks.replace("lost")
        trio.start(2).ready(PATIENCE_SECONDS)
        trio.in_sync(*TOPICS)
        load.goes_on()
    load.judge()
    for topic in TOPICS:
        trio.same_logs(topic)
    assert disks.errors() == {"kept": ErrorCode.NONE, "lost": ErrorCode.NONE}


def test_a_replica_moves_to_the_other_directory_while_it_follows_and_while_it_leads(disks: Disks) -> None:
    trio = disks.trio
    with Load(trio, list(TOPICS)) as load, Wire(trio.address(2)) as wire:
        load.goes_on()
        for topic, (disk, _) in TOPICS.items():
            target = next(path for name, path in disks.paths.items() if name != disk)
            assert move(wire, topic, target) == ErrorCode.NONE
            eventually(f"{topic} is there", lambda t=target, name=topic: (t / f"{name}-0").is_dir())  # type: ignore[misc]
            load.goes_on()
        trio.in_sync(*TOPICS)
        # Only the replica that has moved there fails with this directory; the others have left it.
        disks.paths["lost"].rename(disks.paths["lost"].with_name("taken"))
        disks.has_failed("lost")
        assert new_leader(trio, "stays", but=2) in (1, 3)
        load.goes_on()
        assert trio.leaders("led") == {0: 2}
    load.judge()
    for topic in ("led", "followed"):
        trio.same_logs(topic)
