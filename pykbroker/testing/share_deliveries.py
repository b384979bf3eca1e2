"""The records that a share group has in flight (KIP-932): the member that holds each, and its delivery count.

No request of Kafka's protocol asks for it. So this reads the state of share-partition leaders, in memory, on their
loop. Not responsible for start offsets and lag, which the protocol has (`inspection.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from pykbroker.share_partitions.delivery_states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    DeliveryRange,
)
from pykbroker.testing.asynchronous import on_thread
from pykbroker.testing.groups import end_session

if TYPE_CHECKING:
    from pykbroker.node.node import Node

T = TypeVar("T")

_STATES: Final = {
    AVAILABLE: "Available",
    ACQUIRED: "Acquired",
    ACKNOWLEDGED: "Acknowledged",
    ARCHIVING: "Archiving",
    ARCHIVED: "Archived",
}


@dataclass(frozen=True, slots=True)
class InspectedDelivery:
    """Offsets of one partition, `first_offset` to `last_offset`, that a share group has in flight.

    `state`: Kafka's word, `Available`, `Acquired`, `Acknowledged`, `Archiving` or `Archived`. `delivery_count`: how
    often each of these records was delivered. `member_id`: the member that holds them, or None. `lock_left_ms`: the
    milliseconds until its lock ends, or None.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    state: str
    delivery_count: int
    member_id: str | None = None
    lock_left_ms: int | None = None


class SharesInProcess(ABC):
    """The share groups of nodes in this process."""

    @abstractmethod
    def _of_each_node(self, read: Callable[[Node], T]) -> list[T]:
        """Return what `read` returns for each node that serves. It is called on the broker loop of the node."""

    def _end_session(self, group_id: str, member_id: str) -> bool:
        return any(self._of_each_node(lambda node: end_session(node.services, group_id, member_id)))

    def deliveries(self, group_id: str) -> list[InspectedDelivery]:
        """Return what a share group has in flight, sorted by topic, partition and offset. Records that are done before
        the start offset are no longer there, and records that no fetch has reached are not there yet. The list is empty
        for a group that has fetched nothing since its partitions have their leaders."""
        found = self._of_each_node(lambda node: list(_of_node(node, group_id)))
        return sorted(
            (one for rows in found for one in rows), key=lambda one: (one.topic, one.partition, one.first_offset)
        )

    deliveries_async = on_thread(deliveries)


def _of_node(node: Node, group_id: str) -> Iterator[InspectedDelivery]:
    now_ms = int(node.services.runtime.client_clock.time() * 1000)
    for leader in node.services.share_leaders:
        if leader.key.group_id == group_id:
            place = (leader.partition.topic, leader.partition.index)
            yield from in_flight(*place, leader.machine.ranges(), leader.machine.locks(), now_ms)


def in_flight(
    topic: str,
    index: int,
    ranges: Iterable[DeliveryRange],
    locks: Iterable[tuple[int, int, str, int]],
    now_ms: int,
) -> Iterator[InspectedDelivery]:
    """Return the rows of a partition. `locks`: first and last offset, the member, and the time in ms of their end."""
    held = sorted(locks)
    for first, last, state, count in ranges:
        word = _STATES[state]
        at = first
        for lock_first, lock_last, member, deadline_ms in held:
            begin, end = max(at, lock_first), min(last, lock_last)
            if begin > end:
                continue
            if begin > at:
                yield InspectedDelivery(topic, index, at, begin - 1, word, count)
            left_ms = max(0, deadline_ms - now_ms)
            yield InspectedDelivery(topic, index, begin, end, word, count, member, left_ms)
            at = end + 1
        if at <= last:
            yield InspectedDelivery(topic, index, at, last, word, count)
