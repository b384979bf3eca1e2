"""Protects records of a log that must not be cut off when it is opened: an error is raised instead.

A damaged log of a topic ends at the damage, because its replicas have the rest. The metadata log is another matter: a
cluster that has forgotten half of its topics looks like a smaller cluster. Responsible for deciding if a log may be
cut. Not responsible for finding damage (log_loading.py), nor for how far the log was known to be durable (the caller
passes it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pykbroker_wire.records.batch import BatchHeader


def allow_batch(header: BatchHeader, batch: memoryview) -> str:
    return ""


class DamagedLog(ValueError):
    """Records that must not be lost are damaged or missing. Nothing was cut off."""

    def __init__(self, where: str, lost_from: int, last_known: int) -> None:
        super().__init__(where)
        self.where = where
        #: the first offset that would be lost
        self.lost_from = lost_from
        #: the last offset that is known to have been in the log, or -1 if that is unknown
        self.last_known = last_known


@dataclass(slots=True)
class CutGuard:
    """The LogLoader asks it before it cuts a log. A log with a guard has every offset, without a gap."""

    #: Every record below this offset was durable.
    flushed: int
    #: True if no record from `flushed` on was ever acknowledged, False if that is unknown. If it is False, a cut is
    #: refused when whole batches come after it, because their records may have been acknowledged.
    is_exact: bool
    #: Records below this offset are held elsewhere too, in a snapshot.
    covered: int = 0
    #: The owner of the log accepts the loss if it begins at this offset.
    given_up_from: int | None = None
    #: Another replica has the whole log.
    is_replaceable: bool = False
    #: Returns why a batch with a good checksum cannot stand at its place, or "" if it can. It is called for the first
    #: batch of each segment and wherever the leader epoch changes.
    judge: Callable[[BatchHeader, memoryview], str] = allow_batch
    #: The first lost offset of a cut that `is_replaceable` or `given_up_from` permitted, or None without such a cut.
    gave_up: int | None = None

    def before_cut(self, where: str, offset: int, *, is_followed: bool) -> None:
        """The log would end at `offset`, and `is_followed` is True if whole batches come after it. Raises
        DamagedLog."""
        lost_from = max(offset, self.covered)
        if lost_from >= self.flushed and (self.is_exact or not is_followed):
            return
        if self.is_replaceable or lost_from == self.given_up_from:
            self.gave_up = lost_from
            return
        raise DamagedLog(where, lost_from, max(self.flushed, lost_from) - 1 if self.is_exact else -1)
