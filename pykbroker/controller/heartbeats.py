"""The last heartbeat and the state of each broker: the controller's soft state about brokers.

This state is in no record, so a new controller gives each unfenced broker a whole session. Responsible for the
transitions that a heartbeat may request. The records for them are in brokers.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

NEVER = -1


class BrokerSession(NamedTuple):
    """One incarnation of a broker. A new incarnation has a new epoch, and no session before its first heartbeat."""

    broker_id: int
    broker_epoch: int


class BrokerSessions:
    """The last heartbeat of each incarnation, fenced or not (Kafka's BrokerHeartbeatTracker).

    So while a broker starts and is still fenced, no second process can register with its id.
    """

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._contacts: dict[BrokerSession, int] = {}
        #: broker id -> the epoch of its last incarnation that was permitted to shut down
        self._let_go: dict[int, int] = {}

    def touch(self, session: BrokerSession, now_ms: int) -> None:
        self._contacts[session] = now_ms

    def end(self, session: BrokerSession) -> None:
        self._contacts.pop(session, None)

    def let_go(self, session: BrokerSession) -> None:
        """End the session of a broker that is permitted to shut down: its process leads nothing and is about to end."""
        self.end(session)
        self._let_go[session.broker_id] = session.broker_epoch

    def was_let_go(self, session: BrokerSession) -> bool:
        return self._let_go.get(session.broker_id) == session.broker_epoch

    def clear(self) -> None:
        self._contacts.clear()
        self._let_go.clear()

    def over_at_ms(self, session: BrokerSession) -> int | None:
        """Return the time at which the session is over if no heartbeat comes, None if it is over already."""
        contact_ms = self._contacts.get(session)
        return None if contact_ms is None else contact_ms + self.timeout_ms

    def is_valid(self, session: BrokerSession, now_ms: int) -> bool:
        contact_ms = self._contacts.get(session)
        return contact_ms is not None and contact_ms + self.timeout_ms >= now_ms

    def expired(self, now_ms: int) -> BrokerSession | None:
        """Return the session that has been silent longest, if it is over."""
        over = [
            (contact_ms, session)
            for session, contact_ms in self._contacts.items()
            if contact_ms + self.timeout_ms < now_ms
        ]
        return min(over)[1] if over else None

    def next_deadline_ms(self) -> int | None:
        """Return the time at which the next session would be over, None if there is no session."""
        return min(self._contacts.values()) + self.timeout_ms + 1 if self._contacts else None


class BrokerControlState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shut down"

    @property
    def is_fenced(self) -> bool:
        return self in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)


@dataclass(slots=True)
class Heartbeat:
    """The state of one broker. While it is in controlled shutdown, `shutdown_offset` is the offset at which its last
    leadership moved away."""

    fenced: bool
    metadata_offset: int = NEVER
    shutdown_offset: int = NEVER

    @property
    def shutting_down(self) -> bool:
        return self.shutdown_offset != NEVER

    @property
    def state(self) -> BrokerControlState:
        if self.shutting_down:
            return BrokerControlState.CONTROLLED_SHUTDOWN
        return BrokerControlState.FENCED if self.fenced else BrokerControlState.UNFENCED


class Heartbeats:
    """The state of each broker, by its id (Kafka's BrokerHeartbeatManager)."""

    def __init__(self) -> None:
        self._brokers: dict[int, Heartbeat] = {}

    def get(self, broker_id: int) -> Heartbeat | None:
        return self._brokers.get(broker_id)

    def clear(self) -> None:
        self._brokers.clear()

    def remove(self, broker_id: int) -> None:
        self._brokers.pop(broker_id, None)

    def register(self, broker_id: int, fenced: bool) -> None:
        """Take the fenced state from a replayed record."""
        known = self._brokers.get(broker_id)
        offset = known.metadata_offset if known is not None and known.fenced != fenced else NEVER
        self.touch(broker_id, fenced, offset)

    def touch(self, broker_id: int, fenced: bool, metadata_offset: int) -> None:
        known = self._brokers.get(broker_id)
        if known is None:
            self._brokers[broker_id] = Heartbeat(fenced, metadata_offset)
            return
        known.fenced = fenced
        known.metadata_offset = metadata_offset
        if fenced:
            known.shutdown_offset = NEVER

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        known = self._brokers[broker_id]
        if known.shutdown_offset == NEVER:
            known.shutdown_offset = offset

    def lowest_active_offset(self) -> int | None:
        """Return the lowest metadata offset of the brokers that serve, None if none serves."""
        active = [b.metadata_offset for b in self._brokers.values() if not b.fenced and not b.shutting_down]
        return min(active, default=None)

    def next_state(
        self, broker_id: int, *, want_fence: bool, want_shutdown: bool, caught_up: bool, has_leaderships: bool
    ) -> BrokerControlState:
        """Return the broker's state after a heartbeat with these requests."""
        broker = self._brokers[broker_id]
        match broker.state:
            case BrokerControlState.FENCED:
                if want_shutdown:
                    return BrokerControlState.SHUTDOWN_NOW
                return BrokerControlState.UNFENCED if not want_fence and caught_up else BrokerControlState.FENCED
            case BrokerControlState.UNFENCED:
                if want_fence:
                    return BrokerControlState.SHUTDOWN_NOW if want_shutdown else BrokerControlState.FENCED
                if want_shutdown:
                    return (
                        BrokerControlState.CONTROLLED_SHUTDOWN if has_leaderships else BrokerControlState.SHUTDOWN_NOW
                    )
                return BrokerControlState.UNFENCED
            case _:
                if has_leaderships:
                    return BrokerControlState.CONTROLLED_SHUTDOWN
                # All brokers that serve must have read the moves of the leaderships before the old leader stops.
                lowest = self.lowest_active_offset()
                if lowest is None or broker.shutdown_offset <= lowest:
                    return BrokerControlState.SHUTDOWN_NOW
                return BrokerControlState.CONTROLLED_SHUTDOWN
