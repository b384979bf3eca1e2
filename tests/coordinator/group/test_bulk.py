"""Loading in bulk equals loading one by one: each log gives the same shard, and a damaged one the same error."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.coordinator.group import records
from pykbroker.coordinator.group.bulk import BulkLoad
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.shard import GroupShard
from pykbroker.coordinator.machine import CoordinatorRuntime
from pykbroker.coordinator.shard_loading import Bulk
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.control import end_txn_marker
from pykbroker_wire.stored.group.group_metadata import GroupMetadataKey, GroupMetadataValue
from pykbroker_wire.stored_framing import encode_key, encode_value
from tests.coordinator.fakes import TOPIC, Log, Replicas, World, as_replicas, as_runtime
from tests.coordinator.group.harness import classic_groups
from tests.simulation.rebuilt import contents_of_groups

Pair = tuple[bytes, bytes | None]
Headers = tuple[tuple[str, bytes | None], ...]


def load(log: Log, *, fast: bool) -> tuple[GroupShard | None, list[int]]:
    """Return the shard of a new leader, None if it cannot be loaded, and the number of records that were read and
    skipped."""
    world, replicas = World(), Replicas()
    replicas.stored[0] = log
    shards: list[GroupShard] = []

    def make(index: int) -> GroupShard:
        shards.append(GroupShard(index, GroupSettings()))
        return shards[-1]

    bulk: type[Bulk] | None = BulkLoad if fast else None
    runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
        TOPIC, as_runtime(world), as_replicas(replicas), make, records, commit_timeout_ms=1, bulk=bulk
    )
    replicas.lead()
    world.loop.settle()
    if not runtime.led():
        return None, []
    host = runtime._hosts[0]
    return shards[0], [host.load.loaded_records, host.load.skipped_records]


def commit(group: str, topic: str, partition: int, offset: int, metadata: str = "", expire_ms: int = -1) -> Pair:
    return records.encode(
        records.offset_record(
            group,
            topic,
            partition,
            offset=offset,
            leader_epoch=1,
            metadata=metadata,
            commit_ms=1,
            expire_ms=expire_ms,
        )
    )


def same(log: Log) -> GroupShard | None:
    slow, counted = load(log, fast=False)
    fast, counted_fast = load(log, fast=True)
    assert (slow is None) == (fast is None)
    if slow is not None and fast is not None:
        assert contents_of_groups(fast) == contents_of_groups(slow)
        assert list(classic_groups(fast)) == list(classic_groups(slow))
        assert counted_fast == counted
    return fast


NAMES = st.sampled_from(["g", "group-ä", "h" * 60, "x" * 300])
COMMITS = st.builds(
    commit,
    NAMES,
    NAMES,
    st.sampled_from([0, 1, 70_000, -1]),
    st.integers(-1, 1 << 62),
    st.sampled_from(["", "m", "m" * 100, "m" * 9_000]),
    st.sampled_from([-1, 5]),
)
TOMBSTONES = st.builds(
    lambda group, topic, partition: records.encode(records.offset_tombstone(group, topic, partition)),
    NAMES,
    NAMES,
    st.sampled_from([0, 1]),
)
GROUPS = st.builds(
    lambda group, there: (
        encode_key(GroupMetadataKey(group=group)),
        encode_value(GroupMetadataValue(protocol_type="", protocol=None, leader=None), 3) if there else None,
    ),
    NAMES,
    st.booleans(),
)
OTHERS = st.sampled_from([(b"\x00\x63unknown", b"v"), (b"\x00\x63unknown", None)])
HEADERS = st.sampled_from([(), (), (), (("name", b"value"),)])
RECORDS = st.tuples(st.one_of(COMMITS, COMMITS, COMMITS, TOMBSTONES, GROUPS, OTHERS), HEADERS, st.integers(-300, 300))
BATCHES = st.tuples(
    st.sampled_from(["plain", "plain", "gzip", "transaction", "commit", "abort"]), st.lists(RECORDS, min_size=1)
)


def build(kind: str, found: list[tuple[Pair, Headers, int]]) -> bytes:
    if kind in ("commit", "abort"):
        return end_txn_marker(
            commit=kind == "commit", producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1
        )
    rows = [(key, value, headers, 1_000 + time) for (key, value), headers, time in found]
    if kind == "transaction":
        return build_batch(rows, producer_id=7, producer_epoch=0, transactional=True)
    return build_batch(rows, codec=Codec.GZIP if kind == "gzip" else Codec.NONE)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(BATCHES))
def test_any_log_gives_the_same_shard(batches: list[tuple[str, list[tuple[Pair, Headers, int]]]]) -> None:
    log = Log()
    for kind, found in batches:
        log.append(build(kind, found))
    assert same(log) is not None


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 20), st.integers(0, 255))
def test_damage_is_noticed_or_means_the_same(place: int, byte: int) -> None:
    log = Log()
    found = [commit("g", "t", index, index) for index in range(40)]
    batch = bytearray(build_batch([(key, value, (), 1) for key, value in found]))
    batch[61 + place % (len(batch) - 61)] = byte
    log.append(bytes(batch))
    same(log)


def test_a_group_whose_offsets_are_all_deleted_is_there() -> None:
    log = Log()
    found = [commit("g", "t", 0, 5), commit("h", "t", 0, 5)]
    found += (records.encode(records.offset_tombstone(group, "t", 0)) for group in ("g", "h", "i"))
    found.append((encode_key(GroupMetadataKey(group="h")), None))
    log.append(build_batch([(key, value, (), 1) for key, value in found]))
    shard = same(log)
    assert shard is not None
    assert list(classic_groups(shard)) == ["g"]


def test_offsets_that_have_gaps_keep_their_places() -> None:
    """As after a cleaning: the deltas show where a record was."""
    log = Log()
    log.append(build_batch([(*commit("g", "t", 0, 5), (), 1)]))
    first = build_batch([(*commit("g", "t", index, index), (), 1) for index in range(100)])
    log.append(first)
    shard = same(log)
    assert shard is not None
    found = shard.offsets.get("g", "t", 99)
    assert found is not None
    assert found.at == 100


def test_what_was_removed_and_committed_again_is_there() -> None:
    log = Log()
    rows = [
        commit("g", "t", 0, 5),
        records.encode(records.offset_tombstone("g", "t", 0)),
        commit("g", "t", 0, 6),
        commit("g", "t", 1, 7),
    ]
    log.append(build_batch([(key, value, (), 1) for key, value in rows]))
    log.append(build_batch([(key, value, (), 1) for key, value in rows[1:2]], producer_id=7, transactional=True))
    log.append(build_batch([(key, value, (), 1) for key, value in rows[2:3]]))
    shard = same(log)
    assert shard is not None
    assert shard.offsets.count() == 2


def test_the_collector_hears_of_what_stays() -> None:
    world, replicas = World(), Replicas()
    log = replicas.stored[0] = Log()
    for _ in range(100):
        log.append(build_batch([(*commit("g", "t", index, index), (), 1) for index in range(100)]))
    runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
        TOPIC,
        as_runtime(world),
        as_replicas(replicas),
        lambda index: GroupShard(index, GroupSettings()),
        records,
        commit_timeout_ms=1,
        bulk=BulkLoad,
    )
    replicas.lead()
    world.loop.settle()
    assert runtime.led() == [0]
    assert world.kept > 5


def test_whoever_lost_the_lead_is_freed_without_a_collector() -> None:
    """A collector that ignores it would keep it without end."""
    world, replicas = World(), Replicas()
    replicas.stored[0] = Log()
    replicas.stored[0].append(build_batch([(*commit("g", "t", 0, 5), (), 1)]))
    freed: list[int] = []

    class Watched(GroupShard):
        def __del__(self) -> None:
            freed.append(self.index)

    CoordinatorRuntime(
        TOPIC,
        as_runtime(world),
        as_replicas(replicas),
        lambda index: Watched(index, GroupSettings()),
        records,
        commit_timeout_ms=1,
        bulk=BulkLoad,
    )
    gc.disable()
    try:
        replicas.lead()
        world.loop.settle()
        replicas.lose()
        world.loop.settle()
        world.loop._scheduled.clear()
        assert freed == [0]
    finally:
        gc.enable()
