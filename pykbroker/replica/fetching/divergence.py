"""The offset at which a follower cuts its log if it differs from the leader's log (KIP-101, KIP-279); pure.

Responsible for the offset alone. Not responsible for the truncation (replica/follower.py), nor for the next steps.
"""

from __future__ import annotations

from typing import Protocol

_UNKNOWN = -1


class Epochs(Protocol):
    """The queries to the follower's log."""

    @property
    def log_end_offset(self) -> int: ...

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """Return the largest epoch in the log that is not greater than `leader_epoch`, and the offset at which the next
        epoch begins; (-1, -1) if there is none."""


def truncation_offset(log: Epochs, leader_epoch: int, leader_end_offset: int) -> int:
    """Return the offset from which the follower's records are cut off. `leader_epoch` and `leader_end_offset` are from
    the leader's answer: its newest epoch that is not above the epoch that the follower named, and the offset at which
    that epoch ends in the leader's log."""
    own_end = log.log_end_offset
    epoch, end = log.epoch_end_offset(leader_epoch)
    if epoch == _UNKNOWN:
        # This log has only newer epochs, which the leader does not have.
        return min(leader_end_offset, own_end)
    if epoch != leader_epoch:
        # This log does not have `leader_epoch` either. It is cut to the end of `epoch`, which is older. The next fetch
        # names that epoch, and the leader answers again.
        return min(end, own_end)
    return min(end, leader_end_offset, own_end)
