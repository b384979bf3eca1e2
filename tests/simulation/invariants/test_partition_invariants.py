"""Each invariant of partitions is broken once, on two replicas of one partition, and found."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from pykbroker.replica.partition import Partition
from pykbroker_wire.stored.metadata import PartitionChangeRecord, PartitionRecord
from tests.replica.world import NODE, NOW_MS, World, batch, topic
from tests.simulation.invariants.broken import InvariantBroken
from tests.simulation.invariants.metadata import MetadataInvariants
from tests.simulation.invariants.partitions import PartitionInvariants, Replica

KEY = (b"t".ljust(15, b".") + bytes(1), 0)


class Two:
    """Node 1 leads in leader epoch 0, node 2 follows. Each world sees itself as node 1, so the numbers are exchanged in
    the follower's world."""

    def __init__(self, min_isr: int = 2) -> None:
        self.one, self.other = World(), World()
        self.lead = self.one.create("t", replicas=(1, 2), min_insync_replicas=str(min_isr))
        records = topic("t", 1, (1, 2), min_insync_replicas=str(min_isr))
        for record in records:
            if isinstance(record, PartitionRecord):
                record.leader = 2
        self.other.publish(*records)
        self.follow = self.other.replicas.get("t", 0)
        assert self.follow.log.log_end_offset == 0
        self.metadata = MetadataInvariants()
        self.metadata.image = self.one.image
        self.invariants = PartitionInvariants(self.metadata)
        self.first = self.invariants.replica(1, self.lead)
        self.second = self.invariants.replica(2, self.follow)
        self.look()

    @property
    def replicas(self) -> list[Replica]:
        return [self.first, self.second]

    def look(self) -> None:
        changed = [replica for replica in self.replicas if not replica.is_as_before()]
        if changed:
            self.invariants.look(changed)

    def append(self, *values: bytes, **fields: int) -> None:
        self.lead.append(batch(*values, **fields), required_acks=-1, now_ms=NOW_MS)
        self.look()

    def copy(self) -> None:
        """Let the follower fetch everything, and fetch again."""
        self.copy_to(self.follow)
        self.lead.note_fetched(2, self.follow.log.log_end_offset)
        self.look()
        assert self.follow.follower is not None
        self.follow.follower.agree(self.lead.high_watermark, 0)
        self.look()

    def copy_to(self, follow: Partition) -> None:
        end = follow.log.log_end_offset
        data = self.lead.log.read(end, 1 << 20, self.lead.log.log_end_offset).joined()
        assert follow.follower is not None
        if data:
            follow.follower.append(data, now_ms=NOW_MS)

    def shrink_isr(self) -> None:
        """Leave the leader alone in the ISR, and notify it."""
        self.one.change(self.lead, isr=[1])
        self.metadata_says(isr=[1])

    def metadata_says(self, **fields: Any) -> None:
        """Change the metadata of the quorum; the nodes do not have the change yet."""
        world = World()
        world.image = self.metadata.image
        world.publish(PartitionChangeRecord(partition_id=0, topic_id=KEY[0], **fields))
        self.metadata.image = world.image

    def second_leads(self) -> None:
        """Let node 2 lead in leader epoch 1."""
        self.metadata_says(leader=2)
        self.other.change(self.follow, leader=NODE)


def broken(rule: str) -> pytest.RaisesExc[InvariantBroken]:
    return pytest.RaisesExc(InvariantBroken, check=lambda error: error.rule == rule)


def with_one_committed(min_isr: int = 2) -> Two:
    two = Two(min_isr)
    two.append(b"a")
    two.copy()
    assert two.invariants.ledgers[KEY].end == 1
    return two


def test_what_is_copied_and_committed_breaks_nothing() -> None:
    two = with_one_committed()
    two.append(b"b", b"c")
    two.copy()
    two.invariants.metadata_changed({KEY}, {1: True, 2: True})
    two.invariants.at_rest()
    assert two.invariants.ledgers[KEY].end == 3
    assert two.second.agrees_to == 3


def test_p2_two_lead_in_one_epoch() -> None:
    two = with_one_committed()
    two.one.change(two.lead, leader=NODE)
    two.look()
    two.other.change(two.follow, leader=NODE)
    with broken("P2"):
        two.look()


def test_p2_a_leader_epoch_goes_back() -> None:
    two = with_one_committed()
    two.one.change(two.lead, leader=NODE)
    two.look()
    two.lead.leader_epoch = 0
    with broken("P2"):
        two.invariants.look([two.first])


def test_p2_a_batch_is_of_an_epoch_that_its_replica_does_not_know() -> None:
    two = Two()
    assert two.follow.follower is not None
    two.follow.follower.append(batch(b"x", base_offset=0, leader_epoch=3), now_ms=NOW_MS)
    with broken("P2"):
        two.look()


def test_p4_the_isr_does_not_hold_what_is_committed() -> None:
    two = Two()
    two.append(b"a")
    two.lead.note_fetched(2, 1)
    with broken("P4"):
        two.look()


def test_p4_one_offset_of_one_epoch_is_two_batches() -> None:
    two = Two()
    two.append(b"a")
    assert two.follow.follower is not None
    two.follow.follower.append(batch(b"z", base_offset=0, leader_epoch=0), now_ms=NOW_MS)
    with broken("P4"):
        two.look()


def test_p4_a_follower_takes_another_batch_for_committed() -> None:
    two = with_one_committed()
    two.append(b"b")
    two.copy()
    ledger = two.invariants.ledgers[KEY]
    ledger.batches[1] = ledger.batches[1]._replace(crc=1)
    two.second.agrees_to = two.second.high_watermark = 1
    with broken("P4"):
        two.invariants.look([two.second])


def test_a_batch_before_the_start_of_the_log_is_not_compared() -> None:
    """Seed 48 of the run with share groups: a leader has deleted records that a follower never had."""
    two = with_one_committed()
    two.append(b"b")
    two.copy()
    ledger = two.invariants.ledgers[KEY]
    ledger.batches[1] = ledger.batches[1]._replace(crc=1)
    two.second.agrees_to = two.second.high_watermark = 1
    two.follow.log.delete_records_before(2, reason="the leader's start")
    two.invariants.look([two.second])


def test_p5_the_leader_does_not_know_a_member_of_the_isr() -> None:
    two = with_one_committed()
    assert two.lead.leader is not None
    two.lead.leader.isr.maximal = (1,)
    with broken("P5"):
        two.invariants.metadata_changed({KEY}, {})


def test_p6_a_leader_lacks_what_is_committed() -> None:
    two = with_one_committed()
    two.follow.log.truncate_to(0)
    two.second.may_lack = True
    two.look()
    two.second.may_lack = False
    two.second_leads()
    with broken("P6"):
        two.look()


def test_p6_a_member_of_the_isr_lacks_what_is_committed() -> None:
    two = with_one_committed()
    two.follow.log.truncate_to(0)
    two.second.may_lack = True
    two.look()
    two.second.may_lack = False
    two.invariants.metadata_changed({KEY}, {1: True, 2: False})
    with broken("P6"):
        two.invariants.metadata_changed({KEY}, {1: True, 2: True})


def test_p6_a_follower_joins_the_isr_and_lacks_what_is_committed() -> None:
    two = with_one_committed(min_isr=1)
    two.shrink_isr()
    two.look()
    two.append(b"b")
    assert two.invariants.ledgers[KEY].end == 2
    assert two.lead.leader is not None
    two.lead.leader.isr.propose_expansion(2)
    with broken("P6"):
        two.look()


def test_an_unclean_election_may_lose_records_once() -> None:
    two = with_one_committed()
    two.follow.log.truncate_to(0)
    two.second.may_lack = True
    two.look()
    two.metadata_says(leader=2, isr=[2])
    two.other.change(two.follow, leader=NODE, isr=[NODE])
    two.metadata.unclean[KEY] = [1]
    two.look()
    ledger = two.invariants.ledgers[KEY]
    assert (ledger.end, ledger.lost) == (0, [(0, 1, 1)])
    two.follow.append(batch(b"n"), required_acks=1, now_ms=NOW_MS)
    two.look()
    assert ledger.end == 0


def test_p7_a_leaders_high_watermark_goes_back() -> None:
    two = with_one_committed()
    two.lead.log.high_watermark = 0
    with broken("P7"):
        two.look()


def test_p7_a_follower_is_ahead_of_its_leader() -> None:
    two = Two()
    two.append(b"a")
    two.copy_to(two.follow)
    assert two.follow.follower is not None
    two.follow.follower.agree(1, 0)
    with broken("P7"):
        two.look()


def resigns(two: Two) -> None:
    """The leader resigns in the event in which it has committed, after the ISR has shrunk to the leader."""
    two.one.change(two.lead, isr=[1])
    two.one.change(two.lead, leader=2, isr=[2])
    two.metadata_says(leader=2, isr=[2])


def test_a_leader_commits_and_resigns_in_one_event() -> None:
    two = with_one_committed()
    two.append(b"b")
    two.copy_to(two.follow)
    two.lead.note_fetched(2, 2)
    two.invariants.commits(1, two.lead)
    resigns(two)
    two.look()
    assert two.invariants.ledgers[KEY].end == 2


def test_p4_a_leader_commits_what_the_isr_does_not_hold_and_resigns() -> None:
    two = with_one_committed()
    two.append(b"b")
    two.lead.note_fetched(2, 2)
    two.invariants.commits(1, two.lead)
    resigns(two)
    with broken("P4"):
        two.look()


@pytest.mark.parametrize("lives", [False, True])
def test_a_leader_dies_in_the_event_in_which_it_was_told_of_a_smaller_isr(lives: bool) -> None:
    """The smaller ISR is in no image of the quorum yet."""
    two = with_one_committed(min_isr=1)
    two.append(b"b")
    two.one.change(two.lead, isr=[1])
    two.lead.log.set_high_watermark(2)
    two.invariants.commits(1, two.lead)
    two.first.is_up = lives
    with broken("P4") if lives else nullcontext():
        two.look()


def test_p10_a_leader_commits_with_too_small_an_isr_and_resigns() -> None:
    two = with_one_committed()
    two.append(b"b")
    two.shrink_isr()
    two.lead.log.set_high_watermark(2)
    two.invariants.commits(1, two.lead)
    resigns(two)
    with broken("P10"):
        two.look()


def test_p9_a_follower_cuts_below_its_high_watermark() -> None:
    two = with_one_committed()
    two.follow.log.truncate_to(0)
    with broken("P9"):
        two.look()


def test_p9_a_follower_cuts_what_is_committed_before_it_knows() -> None:
    two = Two()
    two.append(b"a")
    two.copy_to(two.follow)
    two.lead.note_fetched(2, 1)
    two.look()
    assert two.follow.high_watermark == 0
    two.follow.log.truncate_to(0)
    with broken("P9"):
        two.look()


def begins_empty(two: Two) -> None:
    """The other node has the replica in another life, without records."""
    two.second.is_up = False
    two.invariants.not_held(2, two.metadata.image)
    fresh = Two()
    two.second = two.invariants.replica(2, fresh.follow)
    two.look()


def test_p9_a_replica_comes_back_without_what_is_committed() -> None:
    two = with_one_committed()
    with broken("P9"):
        begins_empty(two)


def test_a_replica_that_was_moved_away_comes_back_empty() -> None:
    two = with_one_committed()
    two.metadata_says(replicas=[1, 3], isr=[1], leader=1)
    begins_empty(two)
    assert two.second.agrees_to == 0


def test_p10_a_leader_commits_with_too_small_an_isr() -> None:
    two = with_one_committed()
    two.append(b"b")
    two.shrink_isr()
    two.look()
    two.lead.log.set_high_watermark(2)
    with broken("P10"):
        two.look()


def test_p11_offsets_are_out_of_order() -> None:
    two = with_one_committed()
    two.lead.log.log_start_offset = 5
    with broken("P11"):
        two.look()


def test_p12_a_log_has_a_gap() -> None:
    two = with_one_committed()
    assert two.follow.follower is not None
    two.follow.follower.append(batch(b"x", base_offset=3, leader_epoch=0), now_ms=NOW_MS)
    with broken("P12"):
        two.look()


def test_p12_a_log_ends_elsewhere_than_its_files() -> None:
    two = with_one_committed()
    two.follow.log.log_end_offset = 2
    with broken("P12"):
        two.look()


def test_p13_a_replica_is_behind_when_all_is_at_rest() -> None:
    two = with_one_committed(min_isr=1)
    two.shrink_isr()
    two.look()
    two.append(b"b")
    with broken("P13"):
        two.invariants.at_rest()


def test_t9_a_leader_has_forgotten_a_producer() -> None:
    two = Two()
    two.append(b"a", producer_id=9, producer_epoch=0, base_sequence=0)
    two.copy()
    two.second_leads()
    two.follow.log.producers.entries.clear()
    with broken("T9"):
        two.look()
