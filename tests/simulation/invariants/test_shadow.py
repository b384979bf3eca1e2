"""A log's shadow follows appends, truncations, rolls and restarts; durable batches are read from synced data."""

from __future__ import annotations

from pykbroker_log.log_config import LogConfig
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_raft import batches
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.metadata_storage import MetadataStorage, StorageConfig
from pykbroker_raft.voters import ReplicaKey
from tests.replica.world import NOW_MS, batch
from tests.simulation.invariants.durable import DurableQuorum
from tests.simulation.invariants.shadow import Shadow


def opened(disk: MemoryDisk) -> PartitionLog:
    config = LogConfig()
    return PartitionLog.open(disk, "/t-0", topic="t", partition=0, topic_id=bytes(16), config=config, now_ms=NOW_MS)


def append(log: PartitionLog, *values: bytes, epoch: int = 0) -> None:
    log.append_as_leader(batch(*values), leader_epoch=epoch, now_ms=NOW_MS)


def test_it_follows_appends_and_rolls() -> None:
    log, shadow = opened(MemoryDisk()), Shadow()
    append(log, b"a", b"b")
    assert [found.next for found in shadow.follow(log).added] == [2]
    log.roll(NOW_MS)
    append(log, b"c")
    log.roll(NOW_MS)
    append(log, b"d", epoch=1)
    assert [(found.base, found.epoch) for found in shadow.follow(log).added] == [(2, 0), (3, 1)]
    assert (len(shadow.batches), shadow.end, shadow.index_of(2), shadow.index_of(1)) == (3, 4, 1, 1)
    assert shadow.follow(log) == ([], [])


def test_it_sees_a_truncation_even_if_as_much_was_appended_since() -> None:
    log, shadow = opened(MemoryDisk()), Shadow()
    for value in (b"a", b"b", b"c"):
        append(log, value)
    shadow.follow(log)
    log.truncate_to(1)
    append(log, b"B", epoch=1)
    append(log, b"C", epoch=1)
    changes = shadow.follow(log)
    assert [found.base for found in changes.gone] == [1, 2]
    assert [(found.base, found.epoch) for found in changes.added] == [(1, 1), (2, 1)]


def test_it_goes_on_over_a_restart() -> None:
    disk = MemoryDisk()
    log, shadow = opened(disk), Shadow()
    append(log, b"a")
    shadow.follow(log)
    append(log, b"b")
    changes = shadow.follow(opened(disk.power_loss(Survive.EVERYTHING)))
    assert ([found.base for found in changes.gone], [found.base for found in changes.added]) == ([], [1])


def test_it_sees_that_a_log_has_started_over() -> None:
    log, shadow = opened(MemoryDisk()), Shadow()
    append(log, b"a")
    shadow.follow(log)
    log.truncate_fully_and_start_at(40)
    append(log, b"b")
    shadow.follow(log)
    assert [found.base for found in shadow.batches] == [40]


def test_what_is_durable_is_what_was_synced() -> None:
    disk = MemoryDisk()
    disk.make_dirs("/data")
    storage = MetadataStorage.open(disk, "/data", StorageConfig(), NOW_MS)
    durable = DurableQuorum()
    durable.on(disk)
    assert (durable.end(), durable.election()) == (0, None)
    storage.append(batches.data_batch([b"a"], 0, 1, 0), 1, NOW_MS)
    assert durable.end() == 0
    storage.flush()
    storage.append(batches.data_batch([b"b", b"c"], 1, 1, 0), 1, NOW_MS)
    assert durable.end() == 1
    storage.flush()
    assert durable.end() == 3
    storage.truncate(1)
    storage.append(batches.data_batch([b"B", b"C"], 1, 2, 0), 2, NOW_MS)
    assert durable.end() == 1
    storage.flush()
    assert durable.end() == 3
    storage.write_election_state(ElectionState(4, None, ReplicaKey(2)))
    state = durable.election()
    assert state is not None
    assert (state.epoch, state.voted) == (4, ReplicaKey(2))
