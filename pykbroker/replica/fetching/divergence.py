"""The offset at which a follower cuts its log after the leader's log went another way (KIP-101, KIP-279); pure.

Responsible for the offset alone. Not responsible for cutting (replica/follower.py), nor for the next steps.
"""

from __future__ import annotations

from typing import Protocol

_UNKNOWN = -1


class Epochs(Protocol):
    """The queries to the follower's log."""

    @property
    def log_end_offset(self) -> int: ...

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """Return (largest known epoch that is not greater, the offset at which the next one begins); (-1, -1) if
        unknown."""


def truncation_offset(log: Epochs, leader_epoch: int, leader_end_offset: int) -> int:
    """Return the offset from which the follower's records are cut off. The leader's answer names `leader_epoch`, its
    newest epoch up to the follower's, which ends at `leader_end_offset` there."""
    own_end = log.log_end_offset
    epoch, end = log.epoch_end_offset(leader_epoch)
    if epoch == _UNKNOWN:
        # This log has only newer epochs, which the leader does not have.
        return min(leader_end_offset, own_end)
    if epoch != leader_epoch:
        # This log lacks that epoch, too. The next fetch names the older one, and the leader answers again.
        return min(end, own_end)
    return min(end, leader_end_offset, own_end)
