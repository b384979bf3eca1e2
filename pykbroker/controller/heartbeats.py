"""When each broker was last heard of, and what state it is in: the controller's soft state about brokers.

In no record: a new controller starts with everybody just heard of. Responsible for the transitions that a heartbeat may
ask for; the records that carry them out are brokers.py's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NEVER = -1


class BrokerState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shut down"

    @property
    def is_fenced(self) -> bool:
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


@dataclass(slots=True)
class Heartbeat:
    """One broker. `shutdown_offset` is set while it is in controlled shutdown: where its last leadership moved away."""

    last_contact_ms: int
    fenced: bool
    metadata_offset: int = NEVER
    shutdown_offset: int = NEVER

    @property
    def shutting_down(self) -> bool:
        return self.shutdown_offset != NEVER

    @property
    def state(self) -> BrokerState:
        if self.shutting_down:
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.FENCED if self.fenced else BrokerState.UNFENCED


class Heartbeats:
    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._brokers: dict[int, Heartbeat] = {}

    def get(self, broker_id: int) -> Heartbeat | None:
        return self._brokers.get(broker_id)

    def clear(self) -> None:
        self._brokers.clear()

    def remove(self, broker_id: int) -> None:
        self._brokers.pop(broker_id, None)

    def register(self, broker_id: int, fenced: bool, now_ms: int) -> None:
        """A record said what state the broker is in. That counts as hearing of it."""
        known = self._brokers.get(broker_id)
        offset = known.metadata_offset if known is not None and known.fenced != fenced else NEVER
        self.touch(broker_id, fenced, offset, now_ms)

    def touch(self, broker_id: int, fenced: bool, metadata_offset: int, now_ms: int) -> None:
        known = self._brokers.get(broker_id)
        if known is None:
            self._brokers[broker_id] = Heartbeat(now_ms, fenced, metadata_offset)
            return
        known.last_contact_ms = now_ms
        known.fenced = fenced
        known.metadata_offset = metadata_offset
        if fenced:
            known.shutdown_offset = NEVER

    def has_valid_session(self, broker_id: int, now_ms: int) -> bool:
        known = self._brokers.get(broker_id)
        return known is not None and not known.fenced and known.last_contact_ms + self.session_timeout_ms >= now_ms

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        known = self._brokers[broker_id]
        if known.shutdown_offset == NEVER:
            known.shutdown_offset = offset

    def lowest_active_offset(self) -> int | None:
        """How far the slowest of the brokers that serve has come; None when none serves."""
        active = [b.metadata_offset for b in self._brokers.values() if not b.fenced and not b.shutting_down]
        return min(active, default=None)

    def stale_broker(self, now_ms: int) -> int | None:
        """The unfenced broker that has been silent longest, if its session is over."""
        stale = [
            (b.last_contact_ms, broker_id)
            for broker_id, b in self._brokers.items()
            if not b.fenced and b.last_contact_ms + self.session_timeout_ms < now_ms
        ]
        return min(stale)[1] if stale else None

    def next_deadline_ms(self) -> int | None:
        """When the next session would be over; None when no session is running."""
        contacts = [b.last_contact_ms for b in self._brokers.values() if not b.fenced]
        return min(contacts) + self.session_timeout_ms + 1 if contacts else None

    def next_state(
        self, broker_id: int, *, want_fence: bool, want_shutdown: bool, caught_up: bool, has_leaderships: bool
    ) -> BrokerState:
        """What a heartbeat with these wishes turns the broker into."""
        broker = self._brokers[broker_id]
        match broker.state:
            case BrokerState.FENCED:
                if want_shutdown:
                    return BrokerState.SHUTDOWN_NOW
                return BrokerState.UNFENCED if not want_fence and caught_up else BrokerState.FENCED
            case BrokerState.UNFENCED:
                if want_fence:
                    return BrokerState.SHUTDOWN_NOW if want_shutdown else BrokerState.FENCED
                if want_shutdown:
                    return BrokerState.CONTROLLED_SHUTDOWN if has_leaderships else BrokerState.SHUTDOWN_NOW
                return BrokerState.UNFENCED
            case _:
                if has_leaderships:
                    return BrokerState.CONTROLLED_SHUTDOWN
                # Everybody who serves must know that the leaderships moved before the old leader goes away.
                lowest = self.lowest_active_offset()
                if lowest is None or broker.shutdown_offset <= lowest:
                    return BrokerState.SHUTDOWN_NOW
                return BrokerState.CONTROLLED_SHUTDOWN
