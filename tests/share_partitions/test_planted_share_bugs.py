"""The model of a share partition can fail: each of these deliberately wrong machines must differ from it.

Each planted bug is a likely mistake (testkit/planting.py).
"""

from __future__ import annotations

from typing import Final

import pytest

from pykbroker.share_partitions import settlement, share_partition
from pykbroker.share_partitions.acquisition import Acquisition
from pykbroker.share_partitions.in_flight import InFlightWindow
from pykbroker.share_partitions.offset_runs import InFlightBatch
from pykbroker.share_partitions.settlement import Settlement
from pykbroker.share_partitions.share_partition import SharePartition
from testkit.bug_search import search
from testkit.planting import Edit, plant
from tests.share_partitions.share_partition_machine import SharePartitionEvents

pytestmark = pytest.mark.slow

# ruff: noqa: E501
BUGS: dict[str, list[Edit]] = {
    "a lock is given twice": [
        (InFlightBatch.runs_of, "if self.state == state:", "if True:"),
        (InFlightBatch.change, "or not self.is_all(before, first, last)", ""),
        (Acquisition._acquire_again, "if batch.state != AVAILABLE:", "if False:"),
    ],
    "an acknowledgement of another member's lock counts": [
        (SharePartition._acknowledge_part, "and batch.is_owned(owner, first, end)", ""),
    ],
    "a release at the end of a session is lost": [
        (SharePartition._release, "for first, last in batch.owned_runs(owner):", "for first, last in list(batch.owned_runs(owner))[:1]:"),
    ],
    "a release whose write fails is lost": [
        (SharePartition._release, "batch.set_deadline(first, last, now_ms)", "pass"),
    ],
    "the start passes a gap": [(InFlightWindow.advance_start, "if batch.first > gap:", "if False:")],
    "the start passes a record whose write is out": [
        (InFlightBatch.final_before, "self.state in TERMINAL", "self.state & ~PENDING in TERMINAL"),
        (InFlightBatch.final_before, "match(self._states)", "match(bytes(each & ~PENDING for each in self._states))"),
    ],
    "answered before persisted": [(SharePartition._send, "change.write = write", "pass")],
    "released before the write has ended": [
        (InFlightWindow.mark_pending, "state | PENDING", "state or RELEASED"),
    ],
    "a renewal revives an expired lock": [
        (SharePartition._acknowledge_part, "batch.is_all(ACQUIRED, first, end)", "(kind == RENEW or batch.is_all(ACQUIRED, first, end))"),
        (SharePartition._acknowledge_part, "batch.is_owned(owner, first, end)", "(kind == RENEW or batch.is_owned(owner, first, end))"),
    ],
    "a renewal of one record does not last": [
        (InFlightBatch.set_deadline, "self._deadlines[first - self.first] = deadline_ms", "pass"),
    ],
    "a count is reset by a load": [(SharePartition.load, "if state == ACQUIRED else state, count)", "if state == ACQUIRED else state, 0)")],
    "an aborted batch is delivered": [
        (Acquisition._archive_aborted, "AcquiredRange(at, a - 1, found.delivery_count)", "AcquiredRange(at, b, found.delivery_count)"),
    ],
    "the last attempt is not alone": [(Acquisition._take_available, "most = min(most, 1)", "pass")],
    "nothing is throttled": [(Acquisition._take_available, "self._throttled_from and not", "99 and not")],
    "a partial acknowledgement is kept after a bad range": [
        (SharePartition._acknowledge, "end(change, write, False", "end(change, write, True"),
    ],
    "the limit of locks is overshot by more than a batch": [
        (Acquisition._bounded_last, "self._limits.record_locks - window.locked_span", "self._limits.record_locks"),
    ],
    "a lock that ended while its write was out comes back": [
        (Settlement._roll_back, "if deadline_ms > now_ms:", "if True:"),
    ],
    "a failed write leaves records counted as delivered": [
        (InFlightWindow.change, "((after in DELIVERED) - (before in DELIVERED))", "max(0, (after in DELIVERED) - (before in DELIVERED))"),
    ],
    "records at the delivery limit come again": [
        (Settlement.unlock, "state_after_release(count, limits)", "AVAILABLE"),
    ],
    "the second lock of a batch never ends": [
        (SharePartition.expire, "window.deadlines.add(batch, earliest)", "pass"),
    ],
    "records that compaction removed hold the start": [
        (Acquisition._archive_missing, "window.change(batch, a, b, AVAILABLE, ARCHIVED)", "pass"),
    ],
    "a released record waits for the end of the window": [
        (Settlement.end, "window.note_available(at)", "pass"),
    ],
    "parked fetches are not woken": [(Settlement.end, "change.frees |= window.advance_start()", "window.advance_start()")],
    "an answer that was not sent counts as a delivery": [
        (InFlightBatch.give_back, "self._add_deliveries(first, last, -1)", "pass"),
    ],
    "a rejected record is archived without a letter": [
        (Settlement.mark_pending, "if state == ARCHIVING:", "if state == ARCHIVING and kind != REJECT:"),
    ],
    "a letter is written before its record is stored as archiving": [
        (Settlement.end, "if is_written:\n        change.dead", "if True:\n        change.dead"),
    ],
    "a lock that ends at the limit leaves no letter": [(Settlement.unlock, "elif state == ARCHIVING:", "elif False:")],
    "a record that waits for its letter is acknowledged": [
        (SharePartition._acknowledge_part, "batch.is_all(ACQUIRED, first, end)", "(batch.is_all(ACQUIRED, first, end) or batch.is_all(3, first, end))"),
        (SharePartition._acknowledge_part, "and batch.is_owned(owner, first, end)", "and (batch.is_owned(owner, first, end) or batch.is_all(3, first, end))"),
        (InFlightWindow.mark_pending, "self.change(batch, first, last, ACQUIRED", "self.change(batch, first, last, 3 if batch.is_all(3, first, last) else ACQUIRED"),
        (InFlightBatch.change, "(before, after) not in TRANSITIONS or", ""),
    ],
    "the start passes a record that waits for its letter": [
        (InFlightBatch.final_before, "self.state in TERMINAL", "self.state in (2, 3, 4)"),
        (InFlightBatch.final_before, "match(self._states)", "match(self._states.replace(bytes((3,)), bytes((4,))))"),
    ],
    "a record that waits for its letter counts as delivered": [
        (InFlightWindow.change, "((after in DELIVERED) - (before in DELIVERED))", "((after in (*DELIVERED, 3)) - (before in (*DELIVERED, 3)))"),
    ],
    "a letter of a loaded state is forgotten": [
        (Settlement.unfinished, "for first, last in batch.runs_of(ARCHIVING, batch.first, batch.last):", "for first, last in list(batch.runs_of(ARCHIVING, batch.first, batch.last))[1:]:"),
    ],
    "a loaded letter has the wrong reason": [(Settlement.unfinished, "count < limits.delivery_count", "False")],
    "a letter is written and its record stays": [
        (Settlement.archive, "at = batch.last + 1", "at = last + 1"),
    ],
    "the start does not go on after a letter": [
        (Settlement.archive, "change.frees |= window.advance_start()", "pass"),
    ],
    "an archived record is not stored after its letter": [(Settlement.archive, "write.add(c, d, ARCHIVED, count)", "pass")],
    "a group without a queue stores records as archiving": [
        (Settlement.mark_pending, "state_after_release(count, limits)", "state_after_release(count, limits._replace(dead_letters=True))"),
    ],
    "a record that is rejected on its last delivery has the wrong reason": [(Settlement.mark_pending, "kind == REJECT)", "kind == REJECT and count < limits.delivery_count)")],
}  # fmt: skip


#: Where the search for a bug begins, if it finds nothing with the first seed.
SEEDS: Final[dict[str, int]] = {
    "a lock is given twice": 1,
    "an acknowledgement of another member's lock counts": 3,
    "a release at the end of a session is lost": 2,
    "the start passes a gap": 3,
    "the start passes a record whose write is out": 3,
    "a renewal revives an expired lock": 7,
    "a renewal of one record does not last": 2,
    "an aborted batch is delivered": 4,
    "nothing is throttled": 3,
    "a lock that ended while its write was out comes back": 2,
    "records at the delivery limit come again": 2,
    "the second lock of a batch never ends": 2,
    "records that compaction removed hold the start": 1,
    "a letter is written before its record is stored as archiving": 2,
    "a lock that ends at the limit leaves no letter": 2,
    "a record that waits for its letter is acknowledged": 2,
    "a letter of a loaded state is forgotten": 3,
    "a loaded letter has the wrong reason": 3,
    "a letter is written and its record stays": 39,
    "a record that is rejected on its last delivery has the wrong reason": 26,
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_model_finds_it(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, BUGS[bug])
    for module in (share_partition, settlement):
        monkeypatch.setattr(module, "PER_TURN", 2)
    with pytest.raises((AssertionError, RuntimeError, ExceptionGroup)):
        search(SharePartitionEvents, seed=SEEDS.get(bug, 0), steps=40)
