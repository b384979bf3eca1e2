"""Fetch by consumers from followers, and the replica that a leader sends them to (KIP-392)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykbroker import Broker
from pykbroker.api import fetch
from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import load
from pykbroker.replica.follower import PartitionFollower
from pykbroker.replica.partition import Partition
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.stored.metadata import RegisterBrokerRecord
from pykbroker_wire.stored.metadata.register_broker_record import BrokerEndpoint
from testkit.acting import acts
from tests.api.broker_half import Half
from tests.api.test_fetch import asks, by_follower, came, codes, request, sizes, waits, write
from tests.replica.world import NOW_MS, World, batch, topic_id

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
T = topic_id("t")


def in_racks(half: Half, **racks: str) -> None:
    """Add brokers by number, `b2="west"`; they are alive on the listener of the clients."""
    for name, rack in racks.items():
        number = int(name[1:])
        half.world.publish(
            RegisterBrokerRecord(
                broker_id=number,
                broker_epoch=7,
                incarnation_id=bytes(16),
                fenced=False,
                rack=rack,
                end_points=[BrokerEndpoint(name="PLAINTEXT", host=f"host{number}", port=9092)],
            )
        )


def led(half: Half, records: int = 3) -> Partition:
    """Return a partition that this node leads, and broker 2 follows."""
    in_racks(half, b1="east", b2="west")
    partition = half.world.create("t", replicas=(1, 2))
    write(partition, records)
    half.ask(fetch, by_follower((T, [asks(offset=records)])))
    assert partition.high_watermark == records
    return partition


def following(half: Half, records: int = 3, high_watermark: int = 2) -> tuple[Partition, PartitionFollower]:
    """Return a partition that broker 2 leads, and this node follows."""
    in_racks(half, b1="east", b2="west")
    partition = half.world.create("t", replicas=(1, 2))
    half.world.change(partition, leader=2)
    follower = partition.follower
    assert follower is not None
    for offset in range(records):
        append(follower, offset)
    follower.agree(high_watermark, 0)
    return partition, follower


def append(follower: PartitionFollower, offset: int) -> None:
    sent = batch(b"x" * 100)
    sent[0:8] = offset.to_bytes(8, "big")
    sent[12:16] = follower.leader_epoch.to_bytes(4, "big")
    follower.append(sent, now_ms=NOW_MS)


def told(answer: Any) -> Any:
    ((found,),) = [topic.partitions for topic in answer.responses]
    return found


@acts(broker=("replica.selector.class",))
def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    half = Half(World(config={"replica.selector.class": SELECTOR}))
    led(half)
    found = told(half.ask(fetch, request((T, [asks()]), rack_id="west")))
    assert (found.preferred_read_replica, bytes(found.records), found.error_code) == (2, b"", ErrorCode.NONE)
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (3, 3, 0)
    for rack in ("east", "south", ""):
        found = told(half.ask(fetch, request((T, [asks()]), rack_id=rack)))
        assert (found.preferred_read_replica, len(found.records) > 0) == (-1, True)


def test_without_a_selector_the_leader_reads() -> None:
    half = Half()
    led(half)
    found = told(half.ask(fetch, request((T, [asks()]), rack_id="west")))
    assert (found.preferred_read_replica, len(found.records) > 0) == (-1, True)


@pytest.fixture
def half() -> Half:
    return Half(World(config={"replica.selector.class": SELECTOR}))


def test_a_consumer_that_is_sent_elsewhere_does_not_wait(half: Half) -> None:
    led(half)
    answer = half.ask(fetch, request((T, [asks(offset=3)]), rack_id="west", max_wait_ms=1_000))
    assert told(answer).preferred_read_replica == 2


def test_followers_are_sent_nowhere(half: Half) -> None:
    led(half)
    found = told(half.ask(fetch, by_follower((T, [asks(offset=1)]), rack_id="west")))
    assert (found.preferred_read_replica, len(found.records) > 0) == (-1, True)


def test_a_session_mentions_a_partition_that_is_to_be_read_elsewhere(half: Half) -> None:
    led(half)
    first = half.ask(fetch, request((T, [asks(offset=3)]), session_epoch=0))
    again = request((T, [asks(offset=3)]), session_id=first.session_id, session_epoch=1, rack_id="west")
    assert told(half.ask(fetch, again)).preferred_read_replica == 2


def test_a_consumer_with_another_leader_epoch_is_told_of_that_first(half: Half) -> None:
    partition = led(half)
    asked = request((T, [asks(current_leader_epoch=partition.leader_epoch + 1)]), rack_id="west")
    assert codes(half.ask(fetch, asked)) == [ErrorCode.UNKNOWN_LEADER_EPOCH]


# -- responses of a follower ------------------------------------------------------------------------------------------


def test_a_follower_serves_consumers_up_to_the_high_watermark_that_it_knows(half: Half) -> None:
    following(half, records=3, high_watermark=2)
    found = told(half.ask(fetch, request((T, [asks()]))))
    size = len(batch(b"x" * 100))
    assert (len(found.records), found.high_watermark, found.preferred_read_replica) == (2 * size, 2, -1)
    assert [sizes(half.ask(fetch, request((T, [asks(offset=offset)])))) for offset in (2, 3)] == [{0: 0}, {0: 0}]


@pytest.mark.parametrize("offset", [-1, 4])
def test_what_a_follower_does_not_have_is_out_of_range(half: Half, offset: int) -> None:
    following(half)
    assert codes(half.ask(fetch, request((T, [asks(offset=offset)])))) == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_a_follower_serves_only_consumers_that_may_have_been_sent_to_it(half: Half) -> None:
    """Older consumers know only the leader, and followers fetch from no follower."""
    following(half)
    in_old_version = request((T, [asks()]))
    in_old_version.topics[0].topic = "t"
    refused = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert codes(half.ask(fetch, in_old_version, 10)) == refused
    assert codes(half.ask(fetch, in_old_version, 11)) == [ErrorCode.NONE]
    assert codes(half.ask(fetch, by_follower((T, [asks()])))) == refused
    in_old_version.replica_id = -2
    assert codes(half.ask(fetch, in_old_version, 10)) == [ErrorCode.NONE]


def test_a_follower_checks_the_leader_epoch(half: Half) -> None:
    partition, _ = following(half)
    epoch = partition.leader_epoch
    expected = {
        epoch - 1: ErrorCode.FENCED_LEADER_EPOCH,
        epoch: ErrorCode.NONE,
        epoch + 1: ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
    for asked, code in expected.items():
        assert codes(half.ask(fetch, request((T, [asks(current_leader_epoch=asked)])))) == [code]


def parked(half: Half, **fields: Any) -> asyncio.Future[Any]:
    return waits(half, request((T, [asks(offset=3, **fields)]), max_wait_ms=1_000))


def test_a_fetch_parked_at_a_follower_is_woken_by_its_high_watermark(half: Half) -> None:
    _, follower = following(half, high_watermark=3)
    answer = parked(half)
    append(follower, 3)
    half.loop.settle()
    assert not answer.done()
    follower.agree(4, 0)
    half.loop.settle()
    assert told(came(answer)).high_watermark == 4


@pytest.mark.parametrize("leader", [1, 2])
def test_a_fetch_parked_at_a_follower_is_told_of_a_new_epoch(half: Half, leader: int) -> None:
    partition, _ = following(half, high_watermark=3)
    answer = parked(half, current_leader_epoch=partition.leader_epoch)
    half.world.change(partition, leader=leader)
    half.loop.settle()
    assert codes(came(answer)) == [ErrorCode.FENCED_LEADER_EPOCH]


def test_a_fetch_parked_at_a_follower_is_told_of_a_truncation_below_it(half: Half) -> None:
    _, follower = following(half, high_watermark=3)
    answer = parked(half)
    follower.truncate_to(1, lambda code: None)
    half.loop.settle()
    assert codes(came(answer)) == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_a_consumer_whose_records_diverge_is_told_by_a_follower_too(half: Half) -> None:
    partition, _ = following(half)
    found = told(half.ask(fetch, request((T, [asks(offset=4, last_fetched_epoch=partition.leader_epoch)]))))
    assert found.diverging_epoch.end_offset == 3


# -- the setting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", ["org.example.Mine", "org.apache.kafka.common.replica.LeaderSelector"])
def test_a_selector_that_is_not_there_stops_the_start(selector: str) -> None:
    """Apache Kafka's description of KIP-392 names LeaderSelector; Apache Kafka 4.3.1 has no such class."""
    with pytest.raises(ConfigError, match=r"replica\.selector\.class"):
        Broker({"replica.selector.class": selector}).start()


def test_a_controller_takes_any_selector() -> None:
    """It never uses one, and Apache Kafka's controller does not look for it either."""
    load(
        {
            "process.roles": "controller",
            "node.id": "1",
            "listeners": "CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
            "replica.selector.class": "org.example.Mine",
        }
    )
