"""The offset at which a follower cuts its log: the cases of KIP-101 and KIP-279."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pykbroker.replica.fetching.divergence import truncation_offset
from pykbroker_log.epochs import LeaderEpochs


@dataclass
class Log:
    entries: list[tuple[int, int]]
    log_end_offset: int

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        return LeaderEpochs(self.entries).end_offset(leader_epoch, self.log_end_offset)


@pytest.mark.parametrize(
    ("entries", "end", "epoch", "leader_end", "expected"),
    [
        # Both have the epoch: cut where it ends first.
        ([(0, 0), (2, 10)], 15, 0, 8, 8),
        ([(0, 0), (2, 10)], 15, 0, 12, 10),
        ([(0, 0)], 15, 0, 12, 12),
        # Only the leader has it: cut to the end of the one before, and ask again.
        ([(0, 0), (3, 10)], 15, 1, 12, 10),
        # The follower no longer has epochs that old.
        ([(5, 10)], 15, 3, 12, 10),
        ([], 15, 3, 12, 12),
        ([], 15, 3, 20, 15),
        # Nothing was written in the epoch that this log began.
        ([(0, 0), (2, 15)], 15, 0, 15, 15),
    ],
)
def test_the_offset_to_truncate_to(
    entries: list[tuple[int, int]], end: int, epoch: int, leader_end: int, expected: int
) -> None:
    assert truncation_offset(Log(entries, end), epoch, leader_end) == expected
