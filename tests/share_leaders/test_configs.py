"""The configuration of a group acts on the leaders of its share partitions, within the broker's bounds and defaults."""

from __future__ import annotations

from pykbroker.share_partitions.delivery_states import ARCHIVED
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import build_batch
from testkit.acting import acts
from tests.replica.world import NOW_MS
from tests.share_leaders.rig import RELEASE, RENEW, Rig


@acts(group=("share.auto.offset.reset",))
def test_where_a_group_starts() -> None:
    rig = Rig(auto_offset_reset="earliest")
    rig.append(3)
    assert rig.fetch().got == [(0, 2, 1)]
    assert rig.fetch(group="h").got == []


def releases(rig: Rig) -> int:
    """Release a record again and again. Return how often it was delivered."""
    rig.leader()
    rig.append(1)
    count = 0
    while rig.fetch().got:
        count += 1
        assert rig.acknowledge(0, 0, RELEASE).value is ErrorCode.NONE
    assert rig.keeper.ended == {0}
    assert rig.keeper.writes[-1][1] == [(0, 0, ARCHIVED, count)]
    return count


@acts(broker=("group.share.delivery.count.limit",), group=("share.delivery.count.limit",))
def test_how_often_a_record_is_delivered() -> None:
    broker = {"group.share.delivery.count.limit": "3"}
    assert releases(Rig()) == 5
    assert releases(Rig(broker)) == 3
    assert releases(Rig(broker, delivery_count_limit="4")) == 4


def locked(rig: Rig) -> int:
    """Return how many of 1,000 records, each in a batch of its own, a group may lock."""
    rig.leader()
    for _ in range(1_000):
        rig.append(1)
    return sum(last - first + 1 for first, last, _ in rig.fetch(most=5_000).got)


@acts(broker=("group.share.partition.max.record.locks",), group=("share.partition.max.record.locks",))
def test_how_many_records_are_locked() -> None:
    broker = {"group.share.partition.max.record.locks": "150"}
    assert locked(Rig()) == 1_000
    assert locked(Rig(broker)) == 150
    assert locked(Rig(broker, partition_max_record_locks="200")) == 200


def seconds_of_a_lock(rig: Rig) -> int:
    rig.leader()
    rig.append(1)
    assert rig.fetch().got
    began = rig.loop.time()
    while list(rig.leader().machine.locks()):
        rig.loop.advance(1)
    return round(rig.loop.time() - began)


@acts(broker=("group.share.record.lock.duration.ms",), group=("share.record.lock.duration.ms",))
def test_how_long_a_record_is_locked() -> None:
    broker = {"group.share.record.lock.duration.ms": "20000"}
    assert seconds_of_a_lock(Rig()) == 30
    assert seconds_of_a_lock(Rig(broker)) == 20
    assert seconds_of_a_lock(Rig(broker, record_lock_duration_ms="25000")) == 25


@acts(group=("share.renew.acknowledge.enable",))
def test_whether_a_lock_is_renewed() -> None:
    rig = Rig(renew_acknowledge_enable="false")
    for group, error in (("g", ErrorCode.INVALID_RECORD_STATE), ("h", ErrorCode.NONE)):
        rig.leader(group)
        rig.append(1)
        (got,) = rig.fetch(group=group).got
        assert rig.acknowledge(got.first, got.last, RENEW, is_renewal=True, group=group).value is error


@acts(group=("share.isolation.level",))
def test_whether_a_group_gets_records_of_open_transactions() -> None:
    rig = Rig(isolation_level="read_committed")
    for group in ("g", "h"):
        rig.leader(group)
    guard = rig.partition.start_verification(7, 0, 0, supports_epoch_bump=False)
    batch = build_batch(
        [(None, b"x", (), NOW_MS)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    rig.partition.append(bytearray(batch), required_acks=-1, now_ms=NOW_MS, verification=guard)
    assert rig.fetch().got == []
    assert rig.fetch(group="h").got == [(0, 0, 1)]
