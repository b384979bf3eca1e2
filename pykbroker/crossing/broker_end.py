"""The broker loop's end of the messages between the loops of a node.

Responsible for passing each message of the control side to the part of the broker half that it is for. The parts of the
broker half read the quorum's state, the metadata and this broker's lease here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pykbroker.crossing.calls import Calls, CallsAnswered
from pykbroker.crossing.lease import Lease
from pykbroker.crossing.loop_messages import (
    AnotherLeader,
    BrokerFailed,
    BrokerQuestion,
    ControlQuestion,
    InitialLoadCompleted,
    LeaseChanged,
    LoopAnswered,
    LoopAsked,
    MetadataChanged,
    MetadataReplaced,
    MetadataTaken,
    QuorumChanged,
    QuorumTaken,
    RecoveryBegan,
    ToBroker,
    ToControl,
)
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.replay import Change
from pykbroker.metadata.view import MetadataView
from pykbroker.quorum.known_quorum import KnownQuorum
from pykbroker.runtime import Runtime
from pykbroker_raft.ready import Destination


class BrokerEnd:
    """`take` is the receiver of the `HandOver` from the control loop. `put` belongs to the `HandOver` to the control
    loop."""

    def __init__(self, runtime: Runtime, node_id: int, put: Callable[[ToControl], None]) -> None:
        self.node_id = node_id
        self.metadata = MetadataView()
        self.lease = Lease(runtime, node_id, self.metadata, put)
        self._calls = Calls(runtime, put)
        self._answers = CallsAnswered(put, self._answer)
        self._put = put
        self._sources: dict[BrokerQuestion, Callable[[], Any]] = {BrokerQuestion.TURNS: lambda: None}
        self._known = KnownQuorum(node_id)
        self._loaded: Callable[[], None] | None = None
        self._is_short_of_room: Callable[[], None] | None = None

    # -- the state of the quorum

    @property
    def leader_id(self) -> int | None:
        return self._known.leader_id

    @property
    def leader(self) -> Destination | None:
        """The address at which the leader listens for other nodes."""
        return self._known.leader

    @property
    def kraft_version(self) -> int:
        return self._known.kraft_version

    @property
    def is_only_voter(self) -> bool:
        """Return True if this node is the only voter."""
        return self._known.is_only_voter

    @property
    def is_short_of_room(self) -> bool:
        """True while the metadata log uses the space of its reserve, until `restore_reserve`."""
        return self._known.is_short_of_room

    def restore_reserve(self) -> asyncio.Future[bool]:
        return self._calls.ask(ControlQuestion.RESTORE_RESERVE)

    def call_controller(self, request: Any) -> asyncio.Future[Any]:
        """Pass a request to this node's controller half."""
        return self._calls.ask(request)

    # -- callbacks of the broker half, and its messages

    def when_loaded(self, callback: Callable[[], None]) -> None:
        """Set the callback for the time when all metadata that was committed at this node's start is published. Call
        this once."""
        assert self._loaded is None, "one part asks"
        self._loaded = callback

    def when_short_of_room(self, callback: Callable[[], None]) -> None:
        """Set the callback for each time that the metadata log begins to use the space of its reserve. It is called now
        if the log uses that space already. Call this once."""
        assert self._is_short_of_room is None, "one part asks"
        self._is_short_of_room = callback
        if self._known.is_short_of_room:
            callback()

    def answer_with(self, question: BrokerQuestion, source: Callable[[], Any]) -> None:
        """Set `source` as the answer to this question of the control side."""
        self._sources[question] = source

    def recovery_began(self, progress: tuple[int, int, int] | None) -> None:
        """Report the progress of the recovery of logs after an unclean stop, or None if no log needs recovery."""
        self._put(RecoveryBegan(progress))

    def failed(self, error: BaseException) -> None:
        """Report that the broker half cannot continue. The node then ends."""
        self._put(BrokerFailed(error))

    def close(self) -> None:
        self._calls.close()

    # -- received messages

    def take(self, message: ToBroker) -> None:
        """Take a message of the control loop."""
        match message:
            case LoopAnswered():
                self._calls.answered(message)
            case LoopAsked():
                self._answers.asked(message)
            case MetadataChanged() | MetadataReplaced() | AnotherLeader() | InitialLoadCompleted():
                try:
                    self._take_metadata(message)
                finally:
                    # Put it also if a publisher has failed, because the feed waits for this message.
                    self._put(MetadataTaken())
            case LeaseChanged():
                self.lease.changed(message)
            case QuorumChanged():
                try:
                    self._quorum_changed(message.known)
                finally:
                    self._put(QuorumTaken())

    def _answer(self, question: BrokerQuestion) -> Any:
        source = self._sources.get(question)
        return None if source is None else source()

    def _take_metadata(
        self, message: MetadataChanged | MetadataReplaced | AnotherLeader | InitialLoadCompleted
    ) -> None:
        match message:
            case MetadataChanged():
                self.metadata.take(message.change)
            case MetadataReplaced():
                image = message.image
                self.metadata.take(Change(MetadataDelta.between(self.metadata.image, image), image))
            case AnotherLeader():
                self.metadata.change_leader(message.leader_id, message.epoch)
            case InitialLoadCompleted():
                loaded, self._loaded = self._loaded, None
                if loaded is not None:
                    loaded()

    def _quorum_changed(self, known: KnownQuorum) -> None:
        was_short = self._known.is_short_of_room
        self._known = known
        if known.is_short_of_room and not was_short and self._is_short_of_room is not None:
            self._is_short_of_room()
