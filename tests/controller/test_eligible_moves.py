"""Eligible leader replicas and the last known leader of a partition whose replicas move.

Both name replicas of the partition alone. Apache Kafka also keeps brokers that the partition has left.
"""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.partition_change import PartitionChange
from pykbroker.metadata.image import NO_LEADER, RECOVERED, RECOVERING, PartitionImage
from pykbroker_wire.stored.metadata import ConfigRecord, PartitionChangeRecord
from tests.controller.test_brokers import beat, make, partition
from tests.controller.test_eligible import UNCLEAN, elr_on, in_sync_and_eligible, lose, restart
from tests.controller.test_reassignment import in_sync, moving, reassign
from tests.controller.world import Pure, directory_of


def planted(pure: Pure, **fields: Any) -> None:
    """Change the partition as an earlier version of pykbroker, or Apache Kafka, may have done."""
    topic_id = pure.state.image.topics.by_name["t"].id
    pure.replay([PartitionChangeRecord(topic_id=topic_id, partition_id=0, **fields)])


def allow_unclean(pure: Pure) -> None:
    key = "unclean.leader.election.enable"
    pure.replay([ConfigRecord(resource_type=2, resource_name="t", name=key, value="true")])


def leads(pure: Pure, leader: int, recovery_state: int) -> None:
    found = partition(pure)
    assert (found.leader, found.isr, found.leader_recovery_state) == (leader, (leader,), recovery_state)
    assert (found.elr, found.last_known_elr) == ((), ())


def test_the_only_replica_leads_again_after_a_move_and_an_unclean_stop() -> None:
    """With broker 0 in the ELR the partition had no leader for good."""
    pure = elr_on()
    make(pure, [0])
    reassign(pure, [1])
    in_sync(pure, 0, 1)
    assert moving(pure) == ((1,), (), ())
    assert in_sync_and_eligible(partition(pure)) == ((1,), ())
    restart(pure, 1, clean=UNCLEAN)
    assert in_sync_and_eligible(partition(pure)) == ((), ())
    assert (partition(pure).leader, partition(pure).last_known_elr) == (NO_LEADER, (1,))
    beat(pure, 1)
    leads(pure, 1, RECOVERING)


def test_an_eligible_replica_that_a_move_removes_is_no_longer_eligible() -> None:
    pure = elr_on(brokers=4, minimum="3")
    make(pure, [0, 1, 2])
    lose(pure, 1, 2)
    assert in_sync_and_eligible(partition(pure)) == ((0,), (1, 2))
    reassign(pure, [0, 1, 3])
    assert in_sync_and_eligible(partition(pure)) == ((0,), (1, 2))
    in_sync(pure, 0, 3)
    assert moving(pure) == ((0, 1, 3), (), ())
    assert in_sync_and_eligible(partition(pure)) == ((0, 3), (1,))


def test_an_eligible_replica_that_a_cancelled_move_had_added_is_no_longer_eligible() -> None:
    pure = elr_on(brokers=4, minimum="3")
    make(pure, [0, 1])
    reassign(pure, [2, 3])
    in_sync(pure, 0, 1, 2)
    lose(pure, 2)
    assert in_sync_and_eligible(partition(pure)) == ((0, 1), (2,))
    reassign(pure, None)
    assert moving(pure) == ((0, 1), (), ())
    assert in_sync_and_eligible(partition(pure)) == ((0, 1), ())


def test_a_partition_without_a_leader_recovers_from_a_stale_elr() -> None:
    pure = elr_on()
    make(pure, [1])
    lose(pure, 1)
    planted(pure, eligible_leader_replicas=[0], last_known_elr=[1])
    assert (partition(pure).leader, partition(pure).elr) == (NO_LEADER, (0,))
    beat(pure, 1)
    leads(pure, 1, RECOVERING)


def test_the_next_change_removes_a_stale_member_alone() -> None:
    pure = elr_on()
    make(pure, [1, 2])
    lose(pure, 2)
    planted(pure, eligible_leader_replicas=[0, 2])
    lose(pure, 1)
    assert in_sync_and_eligible(partition(pure)) == ((), (1, 2))
    beat(pure, 2)
    assert (partition(pure).leader, partition(pure).elr) == (2, (1,))


def test_a_move_back_does_not_make_a_stale_member_eligible() -> None:
    """Broker 0 becomes a replica again and has no records. If it were eligible, it could lead with none."""
    pure = elr_on()
    make(pure, [1, 2])
    lose(pure, 2)
    planted(pure, eligible_leader_replicas=[0, 2])
    reassign(pure, [0, 1])
    assert moving(pure) == ((0, 1, 2), (0,), (2,))
    assert in_sync_and_eligible(partition(pure)) == ((1,), (2,))
    lose(pure, 1)
    assert (partition(pure).leader, partition(pure).elr) == (NO_LEADER, (1, 2))


def test_a_last_known_leader_that_is_no_replica_does_not_lead() -> None:
    pure = elr_on()
    make(pure, [1])
    lose(pure, 0, 1)
    planted(pure, eligible_leader_replicas=[], last_known_elr=[0])
    beat(pure, 0)
    found = partition(pure)
    assert (found.leader, found.last_known_elr) == (NO_LEADER, ())
    allow_unclean(pure)
    beat(pure, 1)
    leads(pure, 1, RECOVERING)


def test_a_move_back_does_not_let_a_stale_last_known_leader_lead() -> None:
    pure = elr_on()
    make(pure, [1, 2])
    lose(pure, 1, 2)
    planted(pure, eligible_leader_replicas=[], last_known_elr=[0])
    reassign(pure, [0, 1])
    assert moving(pure) == ((0, 1, 2), (0,), (2,))
    found = partition(pure)
    assert (found.leader, found.isr, found.last_known_elr) == (NO_LEADER, (), ())


def test_a_cancelled_move_forgets_a_last_known_leader_that_it_had_added() -> None:
    pure = elr_on(brokers=4)
    make(pure, [0, 1])
    reassign(pure, [2, 3])
    in_sync(pure, 0, 2)
    lose(pure, 0, 1, 3, 2)
    assert (partition(pure).leader, partition(pure).last_known_elr) == (NO_LEADER, (2,))
    allow_unclean(pure)
    reassign(pure, None)
    assert moving(pure) == ((0, 1), (), ())
    found = partition(pure)
    assert (found.leader, found.elr, found.last_known_elr) == (NO_LEADER, (), ())


@pytest.mark.parametrize(("removing", "last_known"), [([0], None), ([2], [0])])
def test_a_leader_is_recorded_as_the_last_known_one_only_if_it_stays_a_replica(
    removing: list[int], last_known: list[int] | None
) -> None:
    replicas = (0, 1, 2)
    change = PartitionChange(
        partition=PartitionImage(
            replicas, tuple(map(directory_of, replicas)), (0, 1), (), (), tuple(removing), (), 0, RECOVERED, 0, 0
        ),
        topic_id=b"a topic's own id",
        index=0,
        acceptable=lambda replica: False,
        metadata_version=30,
        min_isr=2,
        default_directory=directory_of,
        elr_enabled=True,
        isr=[0, 1],
        replicas=[replica for replica in replicas if replica not in removing],
        removing=[],
    )
    record = change.build()
    assert record is not None
    assert (record.leader, record.last_known_elr) == (NO_LEADER, last_known)
