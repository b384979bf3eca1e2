"""The random events can fail: each of these deliberately wrong leaders must be found (testkit/planting.py)."""

from __future__ import annotations

from typing import Final

import pytest

from pykbroker.share_leaders import dead_letter_flow, fetch_wakes
from pykbroker.share_leaders.change_turns import ChangeTurns
from pykbroker.share_leaders.dead_letter_flow import DeadLetterFlow
from pykbroker.share_leaders.fetch_wakes import FetchWakes
from pykbroker.share_leaders.leader_table import ShareLeaders
from pykbroker.share_leaders.share_partition_leader import SharePartitionLeader
from pykbroker.share_leaders.state_writes import JoinedWrites
from pykbroker.share_partitions import acknowledged_ranges, settlement, share_partition
from testkit.bug_search import search
from testkit.planting import Edit, plant
from tests.share_leaders.leader_events import LeaderEvents

pytestmark = pytest.mark.slow

# ruff: noqa: E501
BUGS: dict[str, list[Edit]] = {
    "answered before persisted": [
        (SharePartitionLeader._changed, "partial(self._written, change.write, promise)", "partial(self._written, change.write, Promise())); promise.set_result(ErrorCode.NONE"),
    ],
    "a write that has failed counts": [
        (SharePartitionLeader._written, "write, error is ErrorCode.NONE", "write, True"),
    ],
    "records are acquired before the start is stored": [
        (SharePartitionLeader.can_acquire, "self._is_start_stored", "True"),
        (SharePartitionLeader.acquire, "assert self._is_start_stored", "pass"),
    ],
    "a release wakes no fetch": [(SharePartitionLeader._after, "if change.frees:", "if False:")],
    "a lock that has ended wakes no fetch": [(SharePartitionLeader._expire, "self._wakes.now()", "pass")],
    "an append wakes no fetch": [(SharePartitionLeader.poke, "self._wakes.now()", "pass")],
    "a stored start wakes no fetch": [(SharePartitionLeader._start_written, "self._wakes.now()", "pass")],
    "a leader that has left leaves its fetches waiting": [(SharePartitionLeader._leave, "self._wakes.soon()", "pass")],
    "the rest of the fetches is not woken": [(FetchWakes._run, "if self._waking is not None or self._is_due:", "if self._is_due:")],
    "locks do not end": [(SharePartitionLeader.acquire, "self._timer.set(self.machine.next_expiry_ms())", "pass")],
    "a later lock does not end": [(SharePartitionLeader._expire, "self._timer.set(self.machine.next_expiry_ms())", "pass")],
    "a release overtakes an acknowledgement": [(ChangeTurns.begin, "if self._is_busy:", "if False:")],
    "a leader goes on in another leader epoch": [(ShareLeaders.on_leadership, "leader.end()", "pass")],
    "a write that comes during another is not sent": [(JoinedWrites._ended, "self._send_next()", "pass")],
    "a write drops those that come with it": [(JoinedWrites._join, "for each in together", "for each in together[-1:]")],
    "leaders stay without a session": [(ShareLeaders._drop, "if not self.sessions.has_group(group):", "if False:")],
    "a session that ends with its connection releases nothing": [(ShareLeaders.disconnected, "self._end_sessions(self.sessions.disconnected(connection))", "self.sessions.disconnected(connection)")],
    "letters of a loaded state are forgotten": [(SharePartitionLeader._loaded, "self.letters.add(self.machine.unfinished_letters(self.limits))", "pass")],
    "a letter is written before its record is stored": [
        (SharePartitionLeader._changed, "self._write(change.write)", "self.letters.add(change.write.dead); self._write(change.write)"),
    ],
    "a rejected record gets no letter": [(SharePartitionLeader._after, "self.letters.add(change.dead)", "pass")],
    "an ended lock leaves no letter": [(SharePartitionLeader._written, "self.letters.add(write.dead)", "pass")],
    "letters wait for ever after the first ones": [(DeadLetterFlow._go_on, "self._under_way -= len(written)", "pass")],
    "a group without a queue gets letters": [
        (SharePartitionLeader.acknowledge, "ranges, self.limits,", "ranges, self.limits._replace(dead_letters=True),"),
    ],
    "a record is not archived after its letter": [
        (SharePartitionLeader._archive, "self.machine.archive(ranges)", "self.machine.archive(ranges[1:])"),
    ],
    "a leader with letters stays when they are written": [(DeadLetterFlow._look, "if self.is_idle:", "if False:")],
}  # fmt: skip


#: Where the search for a bug begins, if it finds nothing with the first seed.
SEEDS: Final[dict[str, int]] = {
    "answered before persisted": 1,
    "a write that has failed counts": 2,
    "records are acquired before the start is stored": 1,
    "a lock that has ended wakes no fetch": 2,
    "the rest of the fetches is not woken": 1,
    "locks do not end": 3,
    "a later lock does not end": 2,
    "a release overtakes an acknowledgement": 1,
    "leaders stay without a session": 1,
    "a letter is written before its record is stored": 3,
    "an ended lock leaves no letter": 6,
    "a group without a queue gets letters": 6,
    "a leader with letters stays when they are written": 6,
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_events_find_it(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (share_partition, settlement, acknowledged_ranges):
        monkeypatch.setattr(module, "PER_TURN", 2)
    monkeypatch.setattr(fetch_wakes, "WAKES_PER_TURN", 1)
    monkeypatch.setattr(dead_letter_flow, "MOST_UNDER_WAY", 2)
    # After the constants, because a planted method has its own copy of them.
    plant(monkeypatch, BUGS[bug])
    with pytest.raises((AssertionError, ExceptionGroup)):
        search(LeaderEvents, seed=SEEDS.get(bug, 0), steps=40)
