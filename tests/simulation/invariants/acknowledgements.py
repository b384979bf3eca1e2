"""An acknowledged record is committed at that moment: P10 for the responses of a broker, A1 for those that clients got.

A client's response is compared with the committed records by its unique parts: the values of records, the marks of
offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from pykbroker_worlds.history.events import CommittedOffset, Event, History, Produced
from tests.simulation.invariants.broken import InvariantBroken

if TYPE_CHECKING:
    from pykbroker.replica.partition import Partition
    from tests.simulation.invariants.partitions import PartitionInvariants


class Acknowledgements:
    """The acknowledgements of a run with one history."""

    def __init__(self, partitions: PartitionInvariants, history: History | None) -> None:
        self._partitions = partitions
        self._history = history
        self._seen = 0
        self._answered: list[tuple[int, Partition, int]] = []

    def answers(self, node: int, partition: Partition, last_offset: int) -> None:
        """Record that a broker acknowledges an append to all replicas."""
        self._answered.append((node, partition, last_offset))

    def look(self) -> None:
        """Check after an event."""
        if self._answered:
            answered, self._answered = self._answered, []
            for node, partition, last_offset in answered:
                self._is_committed(node, partition, last_offset)
        history = self._history
        if history is not None and len(history.events) > self._seen:
            new = history.events[self._seen :]
            self._seen = len(history.events)
            for event in new:
                self._told(event)

    def _is_committed(self, node: int, partition: Partition, last_offset: int) -> None:
        ledger = self._partitions.ledgers.get((partition.topic_id, partition.index))
        if ledger is None or last_offset < ledger.end:
            return
        raise InvariantBroken(
            "P10",
            f"node {node} acknowledges {partition} up to offset {last_offset} to a client that waits for all replicas; "
            f"committed is everything before {ledger.end}",
        )

    def _told(self, event: Event) -> None:
        if event.code != 0:
            return
        if isinstance(event, Produced):
            self._produced(event)
        elif isinstance(event, CommittedOffset):
            self._offset(event)

    def _produced(self, event: Produced) -> None:
        ledger = self._partitions.ledger_of(*event.place)
        if ledger is None or event.base_offset < 0 or event.acks != -1:
            return
        index = ledger.index_of(event.base_offset)
        wanted = dict(enumerate(event.values, event.base_offset))
        for batch in ledger.batches[index : index + 1]:
            for position, header in iter_batches(batch.data):
                for record in iter_records(batch.data, position, header):
                    if wanted.get(record.offset) == record.value:
                        del wanted[record.offset]
        if not wanted:
            return
        if any(first <= offset < end for offset in wanted for first, end, _ in ledger.lost):
            return
        raise InvariantBroken(
            "A1",
            f"{event.client} was told that {event.values} of producer {event.producer_id} are at {event.base_offset} "
            f"of {ledger.name}; committed is everything before {ledger.end}, and not {sorted(wanted.items())}",
        )

    def _offset(self, event: CommittedOffset) -> None:
        mark = event.mark.encode()
        partitions = self._partitions
        ledgers = [ledger for ledger in partitions.ledgers.values() if ledger.name.startswith("__consumer_offsets-")]
        if not mark or not ledgers or any(ledger.lost for ledger in ledgers):
            return
        if any(mark in batch.data for ledger in ledgers for batch in reversed(ledger.batches)):
            return
        raise InvariantBroken(
            "A1",
            f"{event.client} was told that the offset {event.offset} of group {event.group} for {event.place}, marked "
            f"{event.mark!r}, is committed; no committed batch of the group's coordinators has it",
        )
