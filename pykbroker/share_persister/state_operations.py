"""Operations on the state of one share partition, their answers, and the stages of an operation's life.

Responsible for the values that go into and come out of persister_machine.py. Not responsible for the order of
operations, nor for their messages (state_requests.py).

The life of an operation is a table, `STAGES`. A change that is not in the table raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.retries.tries import Tries
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.read_share_group_state import StateBatch as StoredBatch

#: Sizes in a request, in bytes: one share partition, and one batch of its state.
_PARTITION_BYTES: Final = 64
_BATCH_BYTES: Final = 20


class _Key(Enum):
    """An enumeration whose members are looked up for each operation. `Enum.__hash__` is written in Python."""

    __hash__ = object.__hash__


class StateCall(_Key):
    """The five requests to a share coordinator."""

    INITIALIZE = "InitializeShareGroupState"
    READ = "ReadShareGroupState"
    WRITE = "WriteShareGroupState"
    DELETE = "DeleteShareGroupState"
    SUMMARIZE = "ReadShareGroupStateSummary"


class WrittenBatch(Protocol):
    """A state batch to write: a `StateBatch` of WriteShareGroupState, or a `DeliveryRange` of a leader."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def delivery_state(self) -> int: ...
    @property
    def delivery_count(self) -> int: ...


class ShareStateAnswer(NamedTuple):
    """The answer to one operation. Fields that its request does not answer have their defaults."""

    error: ErrorCode
    #: the text of the coordinator, or the reason why it could not be asked
    message: str | None = None
    state_epoch: int = -1
    #: only in the answer to SUMMARIZE
    leader_epoch: int = -1
    start_offset: int = -1
    #: only in the answer to SUMMARIZE; -1 if the coordinator does not know it
    delivery_complete_count: int = -1
    #: only in the answer to READ
    batches: Sequence[StoredBatch] = ()


class Stage(_Key):
    """Where an operation is. It is in exactly one of these places."""

    #: It was made, and the machine does not have it yet.
    MADE = "made"
    #: Another operation on the same key comes first. Summaries only wait for summaries, and others for others.
    BEHIND = "behind"
    #: Its coordinator is unknown, and the next lookup will ask for it.
    SOUGHT = "sought"
    #: A lookup that asks for its coordinator is under way.
    ASKED = "asked"
    #: Its coordinator is known, and it waits for the next request to it.
    QUEUED = "queued"
    #: A request with it is under way.
    SENT = "sent"
    #: It failed, and rests until it is tried again.
    RESTING = "resting"
    #: It has its answer, or its caller has given up and it is not under way.
    ENDED = "ended"


_ROUTED: Final = frozenset({Stage.SOUGHT, Stage.QUEUED, Stage.ENDED})
STAGES: Final = {
    Stage.MADE: _ROUTED | {Stage.BEHIND},
    Stage.BEHIND: _ROUTED,
    # It rests if no broker is known that could be asked. It ends if its caller gives up.
    Stage.SOUGHT: frozenset({Stage.ASKED, Stage.QUEUED, Stage.RESTING, Stage.ENDED}),
    # The metadata may know the coordinator before the lookup is answered.
    Stage.ASKED: frozenset({Stage.QUEUED, Stage.RESTING, Stage.ENDED}),
    # It is queued again, for another node, if the leader has changed.
    Stage.QUEUED: frozenset({Stage.SENT, Stage.QUEUED, Stage.ENDED}),
    Stage.SENT: frozenset({Stage.RESTING, Stage.ENDED}),
    Stage.RESTING: _ROUTED,
    Stage.ENDED: frozenset(),
}


@dataclass(slots=True, eq=False)
class StateOperation:
    """One call for one share partition. The fields after `deadline` are notes of the machine."""

    call: StateCall
    key: SharePartitionKey
    #: of INITIALIZE and WRITE
    state_epoch: int = -1
    #: of READ, WRITE and SUMMARIZE
    leader_epoch: int = -1
    #: of INITIALIZE and WRITE; -1 if it is not set
    start_offset: int = -1
    #: of WRITE
    delivery_complete_count: int = -1
    #: of WRITE
    batches: Sequence[WrittenBatch] = ()
    #: the machine's time at which the caller waits no longer; None if it waits as long as the machine tries
    deadline: float | None = None
    stage: Stage = Stage.MADE
    #: True if the caller has its answer or has given up while a request with this operation is under way
    is_abandoned: bool = False
    lookups: Tries = field(default_factory=Tries)
    requests: Tries = field(default_factory=Tries)
    #: the coordinator to which it goes or went last; None if the last lookup found none
    coordinator: ShareCoordinatorNode | None = None

    @property
    def size(self) -> int:
        """Its bytes in a request, as an estimate from above."""
        return _PARTITION_BYTES + _BATCH_BYTES * len(self.batches)

    def become(self, stage: Stage) -> None:
        """Change to another stage. Raises ValueError if the table does not allow it."""
        if stage not in STAGES[self.stage]:
            raise ValueError(f"an operation that is {self.stage.value} cannot become {stage.value}")
        self.stage = stage


class ShareCoordinatorNode(NamedTuple):
    """The node that leads a partition of `__share_group_state`, and since which leader epoch. The epoch is -1 if a
    lookup has found the node."""

    node_id: int
    leader_epoch: int = -1
