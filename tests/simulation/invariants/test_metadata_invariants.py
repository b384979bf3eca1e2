"""Each invariant of the metadata is broken once, by hand-made records and images, and found."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.liveness.broker_deaths import GRACE_MS
from pykbroker.metadata.image import MetadataImage
from pykbroker.metadata.records import encode_record
from pykbroker_raft import batches
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import (
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.simulation.invariants.broken import InvariantBroken
from tests.simulation.invariants.metadata import Key, MetadataInvariants
from tests.simulation.invariants.shadow import parse

TOPIC = bytes(15) + b"\x09"
NEWEST = 30


class Committed:
    """A metadata log whose records are all committed."""

    def __init__(self) -> None:
        self.invariants = MetadataInvariants()
        self.end = 0
        self.add(
            *(
                RegisterBrokerRecord(broker_id=number, broker_epoch=number, incarnation_id=bytes(16), fenced=False)
                for number in (1, 2, 3)
            ),
            TopicRecord(name="t", topic_id=TOPIC),
            PartitionRecord(
                partition_id=0,
                topic_id=TOPIC,
                replicas=[1, 2, 3],
                isr=[1, 2, 3],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes(16)] * 3,
            ),
        )

    def add(self, *records: TopLevel, epoch: int = 1) -> set[Key]:
        data = batches.data_batch([encode_record(record, NEWEST) for record in records], self.end, epoch, 0)
        self.end += len(records)
        batch = parse(data, 0, len(data))
        assert batch is not None
        return self.invariants.committed([batch])

    def change(self, **fields: Any) -> set[Key]:
        return self.add(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, **fields))

    @property
    def image(self) -> MetadataImage:
        return self.invariants.image


def broken(rule: str) -> pytest.RaisesExc[InvariantBroken]:
    return pytest.RaisesExc(InvariantBroken, check=lambda error: error.rule == rule)


def controller(epoch: int, committed_offset: int) -> Any:
    return SimpleNamespace(epoch=epoch, committed_offset=committed_offset)


def test_changes_and_nodes_that_follow_them_break_nothing() -> None:
    log = Committed()
    early = log.image
    log.invariants.shows(1, early)
    assert log.change(isr=[1, 2]) == {(TOPIC, 0)}
    log.invariants.shows(2, early)
    log.invariants.shows(1, log.image)
    log.change(leader=2, isr=[2])
    log.invariants.shows(2, log.image)
    log.invariants.acts(1, controller(5, log.end - 1), {5: 1})
    assert not log.invariants.unclean


def test_r14_a_node_shows_what_is_not_committed() -> None:
    log = Committed()
    with broken("R14"):
        log.invariants.shows(1, replace(log.image, offset=log.end))


def test_r14_a_node_shows_another_image() -> None:
    log = Committed()
    brokers = {number: log.image.brokers[number] for number in (1, 2)}
    with broken("R14"):
        log.invariants.shows(1, replace(log.image, brokers=brokers))


def test_r14_a_node_shows_half_a_transaction() -> None:
    log = Committed()
    log.add(BeginTransactionRecord(name="x"), PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1, 2]))
    with broken("R14"):
        log.invariants.shows(1, replace(log.image, offset=log.end - 1))
    log.add(EndTransactionRecord())
    log.invariants.shows(2, log.image)


def test_c1_two_controllers_act_in_one_epoch() -> None:
    log = Committed()
    log.invariants.acts(1, controller(5, log.end), {5: 1})
    with broken("C1"):
        log.invariants.acts(2, controller(5, log.end), {5: 2})


def test_c1_a_controller_acts_whose_node_does_not_lead() -> None:
    log = Committed()
    with broken("C1"):
        log.invariants.acts(2, controller(5, log.end), {5: 1})


def test_c2_a_controller_acts_before_it_has_seen_all() -> None:
    log = Committed()
    with broken("C2"):
        log.invariants.acts(1, controller(5, log.end - 2), {5: 1})


def test_c2_a_paused_leader_acts_and_has_not_seen_what_its_successor_committed() -> None:
    log = Committed()
    log.add(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1, 2]), epoch=4)
    before = log.end
    log.add(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1]), epoch=6)
    log.invariants.acts(1, controller(5, before - 1), {5: 1, 6: 2})
    with broken("C2"):
        log.invariants.acts(2, controller(6, before - 1), {5: 1, 6: 2})


@pytest.mark.parametrize("epoch", [4, 5])
def test_c2_a_paused_leader_acts_and_has_not_seen_what_was_committed_up_to_its_epoch(epoch: int) -> None:
    log = Committed()
    before = log.end
    log.add(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1, 2]), epoch=epoch)
    log.add(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1]), epoch=6)
    with broken("C2"):
        log.invariants.acts(1, controller(5, before - 1), {5: 1, 6: 2})


def test_p2_a_leader_changes_without_a_leader_epoch() -> None:
    log = Committed()
    before = log.image
    log.change(leader=2)
    after = log.image
    topic = after.topics.by_id[TOPIC]
    doctored = replace(topic, partitions={0: topic.partitions[0]._replace(leader_epoch=0)})
    topics = replace(after.topics, by_id={TOPIC: doctored})
    with broken("P2"):
        log.invariants._judge((TOPIC, 0), before, replace(after, topics=topics), 1)


def test_p2_a_leader_epoch_goes_back() -> None:
    log = Committed()
    before = log.image
    log.change(leader=2)
    with broken("P2"):
        log.invariants._judge((TOPIC, 0), log.image, before, 0)


def test_p3_a_partition_epoch_leaves_one_out() -> None:
    log = Committed()
    before = log.image
    log.change(isr=[1, 2])
    log.change(isr=[1])
    with broken("P3"):
        log.invariants._judge((TOPIC, 0), before, log.image, 1)


def test_p3_a_member_of_the_isr_is_no_replica() -> None:
    log = Committed()
    with broken("P3"):
        log.change(isr=[1, 4])


def test_p3_the_leader_is_not_in_the_isr() -> None:
    log = Committed()
    with broken("P3"):
        log.change(isr=[2, 3])


def test_p3_isr_and_elr_share_a_replica() -> None:
    log = Committed()
    with broken("P3"):
        log.change(isr=[1, 2], eligible_leader_replicas=[2])


def test_p3_a_member_of_the_elr_is_no_replica() -> None:
    """The partition leaves broker 3, which stays in the ELR."""
    log = Committed()
    log.change(isr=[1], eligible_leader_replicas=[2, 3])
    with broken("P3"):
        log.change(replicas=[1, 2], directories=[bytes(16)] * 2)


def test_p3_the_last_known_leader_is_no_replica() -> None:
    log = Committed()
    log.change(isr=[], leader=-1, last_known_elr=[1])
    with broken("P3"):
        log.change(replicas=[2, 3], directories=[bytes(16)] * 2)


def test_p3_a_fenced_broker_stays_in_the_isr() -> None:
    log = Committed()
    with broken("P3"):
        log.add(BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=3, fenced=1))


def test_p3_an_election_from_outside_isr_and_elr_is_not_told() -> None:
    log = Committed()
    log.change(isr=[1, 2])
    with broken("P3"):
        log.change(leader=3, isr=[3])


def test_the_leader_takes_one_into_the_isr_that_leads_from_then_on() -> None:
    log = Committed()
    log.change(isr=[1, 2])
    log.change(leader=3, isr=[1, 2, 3])
    log.change(replicas=[1, 3, 2, 4], adding_replicas=[4], removing_replicas=[3])
    log.change(leader=4, isr=[1, 2, 4], replicas=[4, 1, 2], adding_replicas=[], removing_replicas=[])
    assert not log.invariants.unclean


def test_p3_an_unclean_election_that_the_topic_does_not_allow() -> None:
    log = Committed()
    log.change(isr=[1, 2])
    with broken("P3"):
        log.change(leader=3, isr=[3], leader_recovery_state=1)


def test_the_last_known_leader_may_lead_again() -> None:
    log = Committed()
    log.change(isr=[], leader=-1, last_known_elr=[1])
    log.change(leader=1, isr=[1], leader_recovery_state=1, last_known_elr=[])
    assert log.invariants.unclean == {(TOPIC, 0): [2]}


def test_c3_a_broker_is_fenced_early_that_refuses_nothing() -> None:
    log = Committed()
    log.invariants.fences_early(1, 2, [True, True])
    with broken("C3"):
        log.invariants.fences_early(1, 2, [True, False])
    log.invariants.fences_early(1, 2, [], GRACE_MS)
    with broken("C3"):
        log.invariants.fences_early(1, 2, [], GRACE_MS - 1)


def test_an_unclean_election_is_remembered() -> None:
    log = Committed()
    log.add(
        ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true"),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1, 2]),
    )
    log.change(leader=3, isr=[3], leader_recovery_state=1)
    assert log.invariants.unclean == {(TOPIC, 0): [1]}
