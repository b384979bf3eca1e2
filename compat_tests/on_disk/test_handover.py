"""One directory, two brokers: Apache Kafka continues after pykbroker was stopped or killed, and the other way round.

At each handover everything that a client can read is compared with its state before: records one by one, offsets by
time, group offsets, producer state, transactions, topics and their configs, leader epochs.
"""

from __future__ import annotations

import pytest

from compat_tests.on_disk.dumps import ASKED, differences, verified
from compat_tests.on_disk.estate import Asker, Inventory, codecs, unlike
from compat_tests.on_disk.home import Home, Owner
from compat_tests.on_disk.life import Life, commit_for, with_asker
from compat_tests.topics import Topics
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykbroker_wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from testkit import needs
from testkit.oracle.kafka import kafka_libs

CONFIG = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    # A snapshot of the metadata every few records, and a log that begins there.
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "metadata.max.retention.bytes": "200000",
    # The start of a log survives a SIGKILL once it is in the checkpoint, on both sides.
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
}
OTHER: dict[Owner, Owner] = {"kafka": "pykbroker", "pykbroker": "kafka"}


@pytest.fixture(autouse=True)
def _judge() -> None:
    needs.java()
    kafka_libs()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "ends"),
    [
        ("kafka", ("kill", "stop", "stop")),
        pytest.param("kafka", ("stop", "kill", "kill"), marks=pytest.mark.long(amount="three handovers")),
        pytest.param("pykbroker", ("kill", "stop", "stop"), marks=pytest.mark.long(amount="three handovers")),
        pytest.param("pykbroker", ("stop", "kill", "kill"), marks=pytest.mark.long(amount="three handovers")),
    ],
)
def test_a_directory_goes_back_and_forth(first: Owner, ends: tuple[str, ...]) -> None:
    with Home(CONFIG, log_dirs=("one", "two", "three")) as home:
        home.format(first)
        home.start(first)
        life = Life(home)
        life.settle()
        owner = first
        for how in ends:
            before = life.inventory()
            _is_worth_comparing(before)
            getattr(home, how)()
            if (owner, how) == ("kafka", "kill"):
                indexes = [path for folder in home.log_dirs for path in folder.rglob("*.index")]
                assert any(path.stat().st_size == 10 << 20 for path in indexes), (
                    "nobody has trimmed what it preallocated"
                )
            owner = OTHER[owner]
            home.start(owner)
            after = life.inventory()
            assert not unlike(before, after, compacted=life.compacted()), f"{owner} after {how}:\n{home.tail(20)}"
            life.go_on()
        home.stop()
        assert verified(home.log_dirs) == ""
        assert differences(home.log_dirs) == []


def _is_worth_comparing(found: Inventory) -> None:
    assert set().union(*(codecs(part.records) for part in found.partitions.values())) == {0, 1, 2, 3, 4}
    assert any(part.aborted for part in found.partitions.values())
    assert any(part.stable < part.end for part in found.partitions.values())
    assert found.partitions["trimmed", 0].start > 0
    assert {kind for kind, _ in found.groups.values()} == {"classic", "consumer"}
    assert all(committed for _, committed in found.groups.values())


@pytest.mark.slow
def test_groups_of_kinds_that_pykbroker_does_not_serve_wait_for_apache_kafka() -> None:
    """Records of share groups and streams groups are among those of the others. pykbroker serves share groups, keeps
    streams groups for Apache Kafka, and loses no record."""
    with Home({"offsets.topic.num.partitions": "1", "group.share.session.timeout.ms": "45000"}) as home:
        home.format("kafka")
        home.start("kafka")
        Topics(home.bootstrap).create(name="t", partitions=2)
        commit_for("classic", home.bootstrap, 1, topic="t")
        with_asker(home, _join_share_group)
        with_asker(home, _join_streams_group)
        commit_for("classic", home.bootstrap, 2, topic="t")
        home.stop()

        home.start("pykbroker")
        found = with_asker(home, lambda asker: asker.groups(["classic"]))
        assert found["classic"][1]["t", 1][0] == 2
        commit_for("classic", home.bootstrap, 3, topic="t")
        home.stop()
        assert "Traceback" not in home.said("pykbroker")

        home.start("kafka")
        found = with_asker(home, lambda asker: asker.groups(["classic", "sharing", "streaming"]))
        assert found["classic"][1]["t", 1][0] == 3
        assert {group: kind for group, (kind, _) in found.items()} == {
            "classic": "classic",
            "sharing": "share",
            "streaming": "streams",
        }
        home.stop()
        kinds = [asked for asked in ASKED if "share" in asked[0] or "offsets" in asked[0]]
        assert differences(home.log_dirs, kinds) == []


def _join_share_group(asker: Asker) -> None:
    asker.coordinated(0, ["sharing"])
    request = ShareGroupHeartbeatRequest(
        group_id="sharing", member_id="AAAAAAAAAAAAAAAAAAAAAg", member_epoch=0, subscribed_topic_names=["t"]
    )
    asker.until(lambda: asker.ask(request).error_code == 0, "the member of a share group has joined")


def _join_streams_group(asker: Asker) -> None:
    request = StreamsGroupHeartbeatRequest(
        group_id="streaming",
        member_id="AAAAAAAAAAAAAAAAAAAAAw",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        topology=Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=["t"])]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="process",
    )
    asker.until(
        lambda: asker.ask(request, request.MIN_VERSION).error_code == 0, "the member of a streams group has joined"
    )
