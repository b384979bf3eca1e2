"""Brokers that were fenced before their sessions were over, and what waits until these would have been.

A partition that only an unclean election would give a leader waits for as long as it would have waited without the
early fence: the broker may come back with the records. It waits no longer once the broker serves again: then the broker
itself leads, as one that is in sync or as the last known leader (KIP-966), of which there is one. An administrator's
own ElectLeaders does not wait. Soft state of the active controller; a new one holds the elections of all brokers that
are fenced for a whole session, as it does not know which of them were fenced early.
"""

from __future__ import annotations

from pykbroker.metadata.image import PartitionImage


class HeldElections:
    """`now_ms`: the loop's clock."""

    def __init__(self) -> None:
        self._until_ms: dict[int, int] = {}

    def hold(self, broker_id: int, until_ms: int) -> None:
        """Until then nothing is lost that this broker may have."""
        self._until_ms[broker_id] = until_ms

    def release(self, broker_id: int) -> None:
        self._until_ms.pop(broker_id, None)

    def clear(self) -> None:
        self._until_ms.clear()

    def holds(self, partition: PartitionImage) -> bool:
        """Whether a broker that may have what the partition has committed is waited for."""
        return bool(self._until_ms) and any(
            broker_id in self._until_ms for broker_id in (*partition.isr, *partition.elr, *partition.last_known_elr)
        )

    def over(self, now_ms: int) -> list[int]:
        """The brokers that are waited for no longer."""
        return [broker_id for broker_id, until_ms in self._until_ms.items() if until_ms < now_ms]

    def next_deadline_ms(self) -> int | None:
        """When the next wait is over."""
        return min(self._until_ms.values()) + 1 if self._until_ms else None
