"""Bugs of share groups to be found by the run with share groups, as those of tests/simulation/planted.py are by the
usual run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from pykbroker.coordinator.share import shard
from pykbroker.coordinator.share.shard import ShareStateShard
from pykbroker.coordinator.share.share_state import ShareState, StateUpdate, next_snapshot
from pykbroker.share_leaders.dead_letter_flow import DeadLetterFlow
from pykbroker.share_leaders.leader_table import ShareLeaders
from pykbroker.share_leaders.share_partition_leader import SharePartitionLeader
from pykbroker.share_partitions import settlement
from pykbroker.share_partitions.acquisition import Acquisition
from pykbroker.share_partitions.delivery_states import ARCHIVED, AVAILABLE, ShareLimits
from pykbroker.share_partitions.in_flight import InFlightWindow
from pykbroker.share_partitions.share_partition import SharePartition
from testkit.planting import Edit, plant
from tests.simulation.planted import Bug


@contextmanager
def _planted(*edits: Edit) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, list(edits))
        yield


@contextmanager
def a_lock_given_twice_after_failover() -> Iterator[None]:
    """A fetch that comes while the new leader of a share partition loads its state makes another leader, and both give
    locks."""
    is_known = "is_current = found.partition is partition"
    with _planted(
        (
            ShareLeaders.leader_of,
            is_known,
            "is_current = found.state.value != 'loading' and found.partition is partition",
        ),
        (ShareLeaders.leader_of, "found.end()", "pass"),
    ):
        yield


@contextmanager
def a_release_lost_at_session_close() -> Iterator[None]:
    """A request that closes a share session does not release what its member holds."""
    with _planted((ShareLeaders.close_session, "self.end_session(ended)", "pass")):
        yield


@contextmanager
def a_start_that_passes_a_gap() -> Iterator[None]:
    """The start passes offsets of which the loaded state says nothing, because the last leader had locked them only."""
    with _planted((InFlightWindow.advance_start, "if batch.first > gap:", "if False:")):
        yield


@contextmanager
def answered_before_persisted() -> Iterator[None]:
    """An acknowledgement is answered when its write is sent."""
    written = "partial(self._written, change.write, promise)"
    early = "partial(self._written, change.write, Promise())); promise.set_result(ErrorCode.NONE"
    with _planted((SharePartitionLeader._changed, written, early)):
        yield


@contextmanager
def a_renewal_that_revives_an_expired_lock() -> Iterator[None]:
    """A lock that has ended is renewed."""
    with _planted(
        (
            SharePartition._acknowledge_part,
            "batch.is_all(ACQUIRED, first, end)",
            "(kind == RENEW or batch.is_all(ACQUIRED, first, end))",
        ),
        (
            SharePartition._acknowledge_part,
            "batch.is_owned(owner, first, end)",
            "(kind == RENEW or batch.is_owned(owner, first, end))",
        ),
    ):
        yield


@contextmanager
def a_count_reset_by_a_snapshot() -> Iterator[None]:
    """A snapshot of the share coordinator has the delivery count 1 for records that are to come again."""

    def snapshot(state: ShareState, update: StateUpdate, now_ms: int) -> ShareState:
        found = next_snapshot(state, update, now_ms)
        return found._replace(batches=tuple(each._replace(delivery_count=1) for each in found.batches))

    with mock.patch.object(shard, "next_snapshot", snapshot):
        yield


@contextmanager
def an_aborted_batch_delivered() -> Iterator[None]:
    """A group that reads committed records gets those of an aborted transaction with the records before them."""
    kept = "AcquiredRange(at, a - 1, found.delivery_count)"
    with _planted((Acquisition._archive_aborted, kept, "AcquiredRange(at, b, found.delivery_count)")):
        yield


@contextmanager
def a_dead_letter_archived_but_not_written() -> Iterator[None]:
    """A record of a group with a dead letter queue is archived as if its letter were written."""
    written = "self._writer.write(letters).add_done_callback(partial(self._letters_ended, (first, last)))"
    with _planted((DeadLetterFlow._go_on, written, "self._letters_ended((first, last), self._writer)")):
        yield


@contextmanager
def a_record_at_the_limit_without_its_letter() -> Iterator[None]:
    """A record at the delivery limit is archived at once, as in a group without a dead letter queue."""

    def after(count: int, limits: ShareLimits) -> int:
        return ARCHIVED if count >= limits.delivery_count else AVAILABLE

    with mock.patch.object(settlement, "state_after_release", after):
        yield


@contextmanager
def a_reset_that_an_earlier_leader_overwrites() -> Iterator[None]:
    """The share coordinator takes writes of a state that was reset."""
    fence = "kept.state_epoch > wanted.state_epoch"
    with _planted((ShareStateShard.write, fence, "False")):
        yield


SHARE_BUGS = (
    Bug(a_lock_given_twice_after_failover, frozenset({"S1"}), 0),
    Bug(a_release_lost_at_session_close, frozenset({"S8"}), 0),
    Bug(a_start_that_passes_a_gap, frozenset({"S5", "delivered_at_least_once"}), 16),
    Bug(answered_before_persisted, frozenset({"S6", "the_acknowledged_never_come_again"}), 0),
    Bug(a_renewal_that_revives_an_expired_lock, frozenset({"S2"}), 11),
    Bug(a_count_reset_by_a_snapshot, frozenset({"S4"}), 12),
    Bug(an_aborted_batch_delivered, frozenset({"nothing_else_is_delivered"}), 0),
    Bug(a_record_at_the_limit_without_its_letter, frozenset({"the_dead_are_lettered"}), 13),
    Bug(a_reset_that_an_earlier_leader_overwrites, frozenset({"S9"}), 0),
    Bug(a_dead_letter_archived_but_not_written, frozenset({"the_dead_are_lettered"}), 5),
)
