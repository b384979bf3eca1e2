"""Counters of the traffic of one replica since they were last taken.

A node has them only if `pykbroker.load.reporter.enable` is on. Otherwise `Partition.traffic` is None and this module is
not imported. Not responsible for the use of the numbers (load_reports/load_records.py).
"""

from __future__ import annotations

from typing import NamedTuple


class TrafficCounts(NamedTuple):
    """The counts of one period. Bytes are the sizes of record batches as they are stored, so compressed. Other fields
    of requests and responses are not counted."""

    #: bytes appended as the leader: from producers and coordinators, and transaction markers
    bytes_in: int
    messages_in: int
    #: batches appended as the leader
    produce_requests: int
    #: bytes read by consumers; `fetch_requests` is the number of answers to consumers that had records of this
    #: partition
    bytes_out: int
    fetch_requests: int
    #: bytes appended as a follower; `replication_fetches_in` is the number of appends of these records
    replication_bytes_in: int
    replication_fetches_in: int
    #: bytes read by followers; `replication_fetches_out` is the number of answers to followers that had records of this
    #: partition
    replication_bytes_out: int
    replication_fetches_out: int
    #: requests of members of share groups that acknowledged records of this partition
    share_acknowledges: int


class PartitionTraffic:
    """The counters of one replica of this node."""

    __slots__ = (
        "_acknowledges",
        "_bytes_in",
        "_bytes_out",
        "_fetches",
        "_messages_in",
        "_produces",
        "_replicated_in",
        "_replicated_out",
        "_replications_in",
        "_replications_out",
    )

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._bytes_in = self._messages_in = self._produces = 0
        self._bytes_out = self._fetches = 0
        self._replicated_in = self._replications_in = 0
        self._replicated_out = self._replications_out = 0
        self._acknowledges = 0

    def appended(self, size: int, records: int) -> None:
        """Count a batch that the leader has appended."""
        self._bytes_in += size
        self._messages_in += records
        self._produces += 1

    def replicated(self, size: int) -> None:
        """Count records that a follower has appended from its leader."""
        self._replicated_in += size
        self._replications_in += 1

    def read(self, size: int, *, by_follower: bool) -> None:
        """Count an answer that has records of this replica."""
        if by_follower:
            self._replicated_out += size
            self._replications_out += 1
        else:
            self._bytes_out += size
            self._fetches += 1

    def acknowledged(self) -> None:
        """Count a request that acknowledges records for a share group."""
        self._acknowledges += 1

    def take(self) -> TrafficCounts:
        """Return the counts since the last call, and begin again at 0."""
        counted = TrafficCounts(
            self._bytes_in,
            self._messages_in,
            self._produces,
            self._bytes_out,
            self._fetches,
            self._replicated_in,
            self._replications_in,
            self._replicated_out,
            self._replications_out,
            self._acknowledges,
        )
        self._clear()
        return counted
