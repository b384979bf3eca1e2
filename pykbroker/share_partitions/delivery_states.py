"""The states of a record in a share group, the changes between them, and the types of an acknowledgement (KIP-932).

A state is one byte, so that the states of a batch are a `bytearray` (`offset_runs.py`). A change that is written to the
share coordinator first sets the bit PENDING together with the state to come. Until the write has ended, such an offset
can neither be acquired nor acknowledged. A failed write takes it back to ACQUIRED.

The numbers without PENDING are stored in `__share_group_state` (Apache Kafka: RecordState). ARCHIVING belongs to dead
letters (KIP-1191, share.version 2). A record gets it instead of ARCHIVED if its group wants dead letters, and keeps it
until its letter is written. Brokers of Apache Kafka 4.3 cannot go on from it, so below share.version 2 no record gets
it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

AVAILABLE: Final = 0
ACQUIRED: Final = 1
ACKNOWLEDGED: Final = 2
ARCHIVING: Final = 3
ARCHIVED: Final = 4
#: the bit of a state whose write to the share coordinator has not ended
PENDING: Final = 8

#: States that no record leaves. The share-partition start offset (SPSO) passes records in these states only.
TERMINAL: Final = frozenset((ACKNOWLEDGED, ARCHIVED))
#: Bytes of records that count as delivered. The write may still be out. ARCHIVING does not count, as in Apache Kafka.
DELIVERED: Final = (ACKNOWLEDGED, ARCHIVED, ACKNOWLEDGED | PENDING, ARCHIVED | PENDING)
#: Every change of a state byte. A change that is not here is a bug, and `InFlightBatch.change` raises for it.
TRANSITIONS: Final = frozenset(
    (
        (AVAILABLE, ACQUIRED),  # a fetch acquires it
        (AVAILABLE, ARCHIVED),  # the log no longer has it
        (ACQUIRED, AVAILABLE),  # its lock expires, or it was never sent
        (ACQUIRED, ARCHIVED),  # the same at the delivery limit, or it belongs to an aborted transaction
        (ACQUIRED, ARCHIVING),  # its lock expires at the delivery limit, and the group wants dead letters
        (ARCHIVING, ARCHIVED),  # its dead letter is written, or given up
        (ACQUIRED, AVAILABLE | PENDING),  # released, by the client or at the end of its session
        (ACQUIRED, ACKNOWLEDGED | PENDING),  # accepted
        (ACQUIRED, ARCHIVED | PENDING),  # rejected, a gap, or released at the delivery limit
        (ACQUIRED, ARCHIVING | PENDING),  # rejected, or released at the delivery limit, and a dead letter is wanted
        (AVAILABLE | PENDING, AVAILABLE),  # the write has succeeded
        (ACKNOWLEDGED | PENDING, ACKNOWLEDGED),
        (ARCHIVED | PENDING, ARCHIVED),
        (ARCHIVING | PENDING, ARCHIVING),
        *((state | PENDING, ACQUIRED) for state in (AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED)),  # it has failed
    )
)

#: Types of an acknowledgement. 0 is for an offset at which the client found no record.
GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
_STATE_OF_TYPE: Final = (ARCHIVED, ACKNOWLEDGED, AVAILABLE, ARCHIVED)

#: A delivery count is an int16 in the protocol.
MOST_DELIVERIES: Final = 2**15 - 1


class ShareLimits(NamedTuple):
    """The configuration of a group, as it is at one call. A change acts at the next call.

    `record_locks` is share.partition.max.record.locks, `delivery_count` is share.delivery.count.limit,
    `lock_duration_ms` is share.record.lock.duration.ms, `allows_renewal` is share.renew.acknowledge.enable.
    `dead_letters` is True if the group has a dead letter queue (errors.deadletterqueue.topic.name) and share.version 2
    is finalised.
    """

    record_locks: int = 2000
    delivery_count: int = 5
    lock_duration_ms: int = 30_000
    allows_renewal: bool = True
    dead_letters: bool = False


class DeliveryRange(NamedTuple):
    """Offsets from `first` to `last` with one state and one delivery count: a state batch in the persister's RPCs.

    A request to the share coordinator is encoded from these values as they are. To make 100,000 messages of them would
    hold the loop for a fifth of a second.
    """

    first: int
    last: int
    state: int
    delivery_count: int

    @property
    def first_offset(self) -> int:
        return self.first

    @property
    def last_offset(self) -> int:
        return self.last

    @property
    def delivery_state(self) -> int:
        return self.state


class DeadRange(NamedTuple):
    """Offsets from `first` to `last` that become dead letters, with one delivery count and for one reason: a member has
    rejected them, or they have reached the delivery limit."""

    first: int
    last: int
    delivery_count: int
    is_rejected: bool


def add_dead(ranges: list[DeadRange], new: DeadRange) -> None:
    """Add a range to others. It becomes one with the last of them if it follows it with the same count and reason."""
    if ranges and ranges[-1].last + 1 == new.first and ranges[-1][2:] == new[2:]:
        ranges[-1] = ranges[-1]._replace(last=new.last)
    else:
        ranges.append(new)


def state_asked_for(kind: int, limits: ShareLimits) -> int:
    """Return the state that an acknowledgement type asks for. RENEW asks for none."""
    return ARCHIVING if kind == REJECT and limits.dead_letters else _STATE_OF_TYPE[kind]


def state_after_release(delivery_count: int, limits: ShareLimits) -> int:
    """Return the state of a record that is released or whose lock has ended: at the delivery limit it is not available
    again."""
    if delivery_count < limits.delivery_count:
        return AVAILABLE
    return ARCHIVING if limits.dead_letters else ARCHIVED
