"""The messages between the two loops of a node, each a value that is no longer changed.

`ToBroker` goes from the control loop to the broker loop, `ToControl` the other way.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from pykbroker.metadata.image import MetadataImage
from pykbroker.metadata.replay import Change
from pykbroker.node_to_controller.broker_state import BrokerState
from pykbroker.quorum.known_quorum import KnownQuorum

# -- both ways


class LoopAsked(NamedTuple):
    """A question; its answer has the same number. `question`: a request of the protocol, or a `BrokerQuestion` or
    `ControlQuestion`."""

    number: int
    question: Any


class LoopAnswered(NamedTuple):
    """The answer to the question with this number, or the error that it raised."""

    number: int
    answer: Any
    error: BaseException | None


# -- to the broker loop


class MetadataChanged(NamedTuple):
    """The next change of the metadata."""

    change: Change


class MetadataReplaced(NamedTuple):
    """The newest image. It replaces changes that were not sent, because the receiver was too slow, or that came before
    the feed's start."""

    image: MetadataImage


class AnotherLeader(NamedTuple):
    """The quorum has another leader, or none. The message comes after all metadata that was committed before."""

    leader_id: int | None
    epoch: int


class InitialLoadCompleted(NamedTuple):
    """All metadata that was committed at this node's start was handed over."""


class QuorumChanged(NamedTuple):
    """The present state of this node's replica of the quorum."""

    known: KnownQuorum


class LeaseChanged(NamedTuple):
    """The state of this broker's lifecycle. `broker_epoch`: -1 before the first registration."""

    state: BrokerState
    broker_epoch: int


class BrokerQuestion(Enum):
    """The questions of the control side to the broker half."""

    #: a list of `Sample`
    METRICS = "metrics"
    #: (bytes checked, bytes to check, logs left) while logs of an unclean stop are recovered, else None
    RECOVERY = "recovery"
    #: an empty answer, which proves that the loop turns
    TURNS = "turns"


ToBroker: TypeAlias = (
    MetadataChanged
    | MetadataReplaced
    | AnotherLeader
    | InitialLoadCompleted
    | QuorumChanged
    | LeaseChanged
    | LoopAsked
    | LoopAnswered
)


# -- to the control loop


class MetadataTaken(NamedTuple):
    """The broker half has taken the oldest waiting message about the metadata, and all its publishers got it."""


class ControlQuestion(Enum):
    """The questions of the broker half to the control side, besides requests to its controller half."""

    #: take the space of the metadata log's reserve again; True if that was possible
    RESTORE_RESERVE = "restore reserve"


class DirectoryFailed(NamedTuple):
    """A log directory of this broker is offline from now on."""

    directory_id: bytes
    path: str


class DirectoriesCordoned(NamedTuple):
    """These directories get no new replicas (KIP-1066)."""

    directory_ids: tuple[bytes, ...]


class ReadyToUnfence(NamedTuple):
    """The logs are there, and clients may come."""


class ShutdownWanted(NamedTuple):
    """Asks the controller to move leaderships away from this broker, and to allow it to stop."""


class RecoveryBegan(NamedTuple):
    """The progress of the recovery of logs after an unclean stop: bytes checked, bytes to check, logs left. None if no
    log needs recovery."""

    progress: tuple[int, int, int] | None


class BrokerRunning(NamedTuple):
    """Clients are served."""


class QuorumTaken(NamedTuple):
    """The broker half has taken the last `QuorumChanged`."""


class BrokerFailed(NamedTuple):
    """The broker half cannot continue, and the node ends with it."""

    error: BaseException


ToControl: TypeAlias = (
    MetadataTaken
    | QuorumTaken
    | DirectoryFailed
    | DirectoriesCordoned
    | ReadyToUnfence
    | ShutdownWanted
    | RecoveryBegan
    | BrokerRunning
    | BrokerFailed
    | LoopAsked
    | LoopAnswered
)
