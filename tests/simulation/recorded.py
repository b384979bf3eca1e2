"""The data directory of a node, and what the node had acknowledged: for tests that damage the directory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from pykbroker_log.disk import read_file
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker_wire.records.batch import CorruptBatch, iter_batches, verify_crc
from pykbroker_wire.records.record import iter_records
from testkit.nodes.sim import TOPIC, Sim

METADATA = "/data/__cluster_metadata-0"


@dataclass
class Facts:
    """The responses that clients got, earlier or now."""

    topics: dict[str, bytes]
    configs: dict[str, str]
    records: dict[str, dict[int, bytes]]
    #: the partitions whose damage a client has found
    told: set[str]

    def lacks(self, other: Facts) -> list[str]:
        """Return what the other has and this one does not."""
        missing = [f"topic {name}" for name, topic_id in other.topics.items() if self.topics.get(name) != topic_id]
        missing += [f"configuration {key}" for key, value in other.configs.items() if self.configs.get(key) != value]
        for name, records in other.records.items():
            here = self.records.get(name, {})
            missing += [f"{name} {offset}" for offset, value in records.items() if here.get(offset) != value]
        return missing


@dataclass
class Recorded:
    disk: MemoryDisk
    facts: Facts

    def copy(self) -> MemoryDisk:
        return self.disk.power_loss(Survive.EVERYTHING)

    def files(self, root: str = "/data") -> list[str]:
        """Return every file, by path."""
        found: list[str] = []
        for name in sorted(self.disk.list(root)):
            path = f"{root}/{name}"
            found += self.files(path) if self.disk.is_dir(path) else [path]
        return found


async def facts_of(sim: Sim) -> Facts:
    """Query everything from the node, as clients would."""
    sim.topic_ids.clear()
    topics = await sim.topics()
    asked = [DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in topics]
    described = await sim.call(DescribeConfigsRequest(resources=asked))
    configs = {
        f"{result.resource_name} {config.name}": config.value
        for result in described.results
        for config in result.configs
    }
    facts = Facts(dict(topics), configs, {}, set())
    for name in topics:
        facts.records[name] = await _records(sim, name, facts)
    return facts


async def _records(sim: Sim, topic: str, facts: Facts) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = 0
    while True:
        answer = (await sim.fetch(topic, offset)).responses[0].partitions[0]
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and offset < sim.log(topic).log_start_offset:
            offset = sim.log(topic).log_start_offset
            continue
        if answer.error_code:
            facts.told.add(topic)
            return found
        data = answer.records or b""
        before = offset
        try:
            headers = list(iter_batches(data))
        except CorruptBatch:
            facts.told.add(topic)
            return found
        for position, header in headers:
            if not verify_crc(data, position, header):
                # The client finds the damage.
                facts.told.add(topic)
                return found
            for record in iter_records(data, position, header):
                found[record.offset] = bytes(record.value or b"")
            offset = header.next_offset
        if offset == before:
            return found


def record(play: Callable[[Sim], Awaitable[None]], config: Mapping[str, str] | None = None, *, clean: bool) -> Recorded:
    """Run `play` on a node, stop or kill it, and return what it leaves."""
    sim = Sim(config)
    try:

        async def scenario(sim: Sim) -> Facts:
            await play(sim)
            facts = await facts_of(sim)
            assert not facts.told
            # The checkpoints are written at intervals.
            await asyncio.sleep(10)
            if clean:
                await sim.sim_node.stop()
            else:
                sim.sim_node.kill(Survive.EVERYTHING)
            return facts

        return Recorded(sim.disk, sim.run(scenario))
    finally:
        sim.close()


class Lines(logging.Handler):
    """Collects everything that is logged at WARNING or above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        assert record.exc_info is None, f"a traceback: {record.getMessage()}"


@dataclass
class Outcome:
    """`facts` is None if the start was refused; then `refusal` is the reason."""

    facts: Facts | None
    refusal: str
    lines: list[str]
    disk: MemoryDisk


async def nothing(sim: Sim) -> None:
    pass


def restarted(
    disk: MemoryDisk, config: Mapping[str, str] | None = None, then: Callable[[Sim], Awaitable[None]] = nothing
) -> Outcome:
    """Start a node on this disk, run `play`, and query everything from it. Only a refusal is no bug."""
    from pykbroker.node.shared import StartError

    sim = Sim(config)
    sim.sim_node.disk = disk
    sim.sim_node.starts = 1
    handler = Lines()
    root = logging.getLogger()
    root.addHandler(handler)
    try:

        async def scenario(sim: Sim) -> Facts:
            await sim.sim_node.start()
            await then(sim)
            return await facts_of(sim)

        try:
            return Outcome(sim.run(scenario, 10_000), "", handler.lines, sim.disk)
        except StartError as error:
            return Outcome(None, str(error), handler.lines, sim.disk)
    finally:
        root.removeHandler(handler)
        sim.close()


def flip(disk: MemoryDisk, path: str, position: int, bit: int) -> None:
    file = disk.open(path)
    file.pwritev([bytes([file.pread(1, position)[0] ^ 1 << bit])], position)


def contents(disk: MemoryDisk, path: str) -> bytes:
    return read_file(disk, path)
