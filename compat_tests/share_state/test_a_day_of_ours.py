"""Apache Kafka reads what pruning has left of a day of our share coordinator.

The day is played on a simulated node (testkit/nodes/state_day.py). Its directory is written to the disk as it is, and a
fresh node of Apache Kafka 4.3.1 starts on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from compat_tests.share_state.persisters import play, state
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.coordinator.share.share_state import ShareState
from pykbroker.metadata.topic_names import SHARE_STATE_TOPIC
from pykbroker.share_persister.persister import SharePersister
from pykbroker_log.disk import read_file
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.errors import ErrorCode
from testkit import needs
from testkit.nodes.sim import Sim
from testkit.nodes.state_day import CONFIG, StateDay
from testkit.oracle.kafka import ApacheKafka, kafka_libs
from testkit.ports import steady_port
from testkit.promises import results
from testkit.share_metadata import ShareMetadata

pytestmark = pytest.mark.slow

States = dict[SharePartitionKey, ShareState]


@pytest.mark.parametrize(
    "prunes",
    [3, *(pytest.param(count, marks=pytest.mark.long(amount="a fresh node")) for count in (1, 2, 5, 10, 20, 90))],
)
def test_a_fresh_coordinator_reads_the_same_state(prunes: int, tmp_path: Path) -> None:
    needs.java()
    kafka_libs()
    port = steady_port()
    states = write_day(tmp_path / "data", port, prunes)
    with ApacheKafka(KAFKA, data_dir=tmp_path / "data", port=port):

        async def reads(persister: SharePersister, metadata: ShareMetadata) -> None:
            metadata.lead(1)
            keys = sorted(states)
            summaries = await results([persister.summarize(key) for key in keys], 90)
            for key, found in zip(keys, summaries, strict=True):
                wanted = states[key]
                assert found.error is ErrorCode.NONE, (key, found)
                shown = found.state_epoch, found.leader_epoch, found.start_offset, found.delivery_complete_count
                assert shown == wanted[1:5], key
            # A read fences leaders, so it comes last.
            answers = await results([persister.read(key, states[key].leader_epoch) for key in keys], 90)
            for key, found in zip(keys, answers, strict=True):
                wanted = states[key]
                state_epoch, start, batches = state(found)
                assert (state_epoch, start) == (wanted.state_epoch, wanted.start_offset), key
                assert joined(batches) == joined(wanted.batches), key

        play(port, reads)


def joined(batches: Iterable[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Return the batches (first and last offset, state, count) with neighbours that are equal made one. Apache Kafka's
    coordinator does not join all of them when it replays a snapshot and the updates after it."""
    found: list[tuple[int, int, int, int]] = []
    for first, last, delivery_state, count in batches:
        if found and (found[-1][1] + 1, *found[-1][2:]) == (first, delivery_state, count):
            found[-1] = (found[-1][0], last, delivery_state, count)
        else:
            found.append((first, last, delivery_state, count))
    return found


def test_neighbours_that_are_equal_are_one() -> None:
    assert joined([(0, 1, 0, 4), (2, 5, 0, 4), (6, 6, 2, 4), (8, 9, 2, 4)]) == [
        (0, 5, 0, 4),
        (6, 6, 2, 4),
        (8, 9, 2, 4),
    ]


#: The properties of Apache Kafka's node, besides those of a single node.
KAFKA = {name: value for name, value in CONFIG.items() if name.startswith("share.coordinator.state.topic.")}


def write_day(folder: Path, port: int, prunes: int) -> States:
    """Play until the topic was pruned so often, stop, and write the node's directory. Return the state at the end.
    `port` is that of the node of Apache Kafka to come, whose controller is the voter of the quorum."""
    controller = f"localhost:{port + 1}"
    # The port of clients is the simulated one; a broker registers its own when it starts.
    listeners = f"PLAINTEXT://localhost:9092,CONTROLLER://{controller}"
    properties = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": controller,
    }
    sim = Sim(CONFIG | properties)

    async def load(sim: Sim) -> States:
        day = StateDay(sim)
        await day.begin()
        while day.prunes < prunes:
            await day.minute()
        states = day.state()
        assert sim.log(SHARE_STATE_TOPIC).log_start_offset > 0
        await sim.sim_node.stop()
        return states

    try:
        states = sim.run(load)
        _export(sim.disk, "/data", folder)
        return states
    finally:
        sim.close()


def _export(disk: MemoryDisk, path: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in disk.list(path):
        inner = f"{path}/{name}"
        if disk.is_dir(inner):
            _export(disk, inner, folder / name)
        else:
            (folder / name).write_bytes(read_file(disk, inner))
