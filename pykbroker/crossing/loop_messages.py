"""What the two loops of a node say to each other, each message a value that nobody changes any more.

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
    """To be answered under this number. `question`: a request of the protocol, or one of those below."""

    number: int
    question: Any


class LoopAnswered(NamedTuple):
    """`answer`, or the error that was raised."""

    number: int
    answer: Any
    error: BaseException | None


# -- to the broker loop


class MetadataChanged(NamedTuple):
    """The next change."""

    change: Change


class MetadataReplaced(NamedTuple):
    """The newest image, instead of the changes that led to it: the receiver was too far behind for them."""

    image: MetadataImage


class AnotherLeader(NamedTuple):
    """The quorum has another leader, or none. It comes after the metadata that was committed before."""

    leader_id: int | None
    epoch: int


class InitialLoadCompleted(NamedTuple):
    """Everything that was committed when this node started was handed over."""


class QuorumChanged(NamedTuple):
    """What this node's replica of the quorum knows now."""

    known: KnownQuorum


class LeaseChanged(NamedTuple):
    """Where the lifecycle of this broker stands. `broker_epoch`: -1 before the first registration."""

    state: BrokerState
    broker_epoch: int


class BrokerQuestion(Enum):
    """What the control side asks of the broker half."""

    #: a list of `Sample`
    METRICS = "metrics"
    #: (bytes checked, bytes to check, logs left) while logs of an unclean stop are recovered, else None
    RECOVERY = "recovery"
    #: nothing: that an answer comes says that the loop turns
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
    """Every publisher of the broker half was told of the next message about the metadata."""


class ControlQuestion(Enum):
    """What the broker half asks of the control side, beside requests to its controller half."""

    #: take the room of the metadata log's reserve again; whether that was possible
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
    """The controller is to move leaderships away from this broker, and to let it go."""


class RecoveryBegan(NamedTuple):
    """Logs of an unclean stop are recovered: bytes checked, bytes to check, logs left."""

    progress: tuple[int, int, int] | None


class BrokerRunning(NamedTuple):
    """Clients are served."""


class QuorumTaken(NamedTuple):
    """What the broker half was told of the quorum was taken."""


class BrokerFailed(NamedTuple):
    """The broker half cannot go on, and the node with it."""

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
