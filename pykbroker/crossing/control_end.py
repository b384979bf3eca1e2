"""The control loop's end of the messages between the loops of a node.

Hands metadata, lease and quorum state over to the broker half. Passes each message of the broker half to the part of
the control loop that it is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from pykbroker.crossing.calls import Calls, CallsAnswered
from pykbroker.crossing.feed import MetadataFeed
from pykbroker.crossing.loop_messages import (
    BrokerFailed,
    BrokerQuestion,
    BrokerRunning,
    ControlQuestion,
    DirectoriesCordoned,
    DirectoryFailed,
    LeaseChanged,
    LoopAnswered,
    LoopAsked,
    MetadataTaken,
    QuorumTaken,
    ReadyToUnfence,
    RecoveryBegan,
    ShutdownWanted,
    ToBroker,
    ToControl,
)
from pykbroker.crossing.pulse import Pulse
from pykbroker.crossing.quorum_feed import QuorumFeed
from pykbroker.node_to_controller.broker_state import BrokerState
from pykbroker.node_to_controller.lifecycle import BrokerLifecycle
from pykbroker.quorum.known_quorum import KnownQuorum
from pykbroker.runtime import Runtime

#: The time between two signs of life of the broker loop.
PULSE_SECONDS: Final = 0.5


class QuorumSide(Protocol):
    """This node's replica of the quorum."""

    def when_known(self, callback: Callable[[KnownQuorum], None]) -> None: ...

    def restore_reserve(self) -> asyncio.Future[bool]: ...


class ControlEnd:
    """Call `start` once. `take` is the receiver of the `HandOver` from the broker loop."""

    def __init__(
        self,
        runtime: Runtime,
        put: Callable[[ToBroker], None],
        feed: MetadataFeed,
        lifecycle: BrokerLifecycle,
        quorum: QuorumSide,
        controller: Callable[[Any], Any] | None,
        on_directory_failure: Callable[[str], None],
        on_failure: Callable[[BaseException], None],
        session_seconds: float,
    ) -> None:
        """`controller` calls this node's controller half, if it has one; `on_directory_failure` gets a path.
        `session_seconds`: the longest time for which the broker loop may stand still."""
        self._put = put
        self._feed = feed
        self._lifecycle = lifecycle
        self._quorum = quorum
        self._controller = controller
        self._on_directory_failure = on_directory_failure
        self._on_failure = on_failure
        self._calls = Calls(runtime, put)
        self._answers = CallsAnswered(put, self._answer)
        self._runtime = runtime
        self._pulse = Pulse(PULSE_SECONDS)
        self._timer: asyncio.TimerHandle | None = None
        self._recovery: tuple[int, int, int] | None = None
        self._asks_recovery = False
        # After this time the broker loop counts as standing still. It is shorter than a session, because the pulse may
        # count up to two intervals too little. So no heartbeat is sent later than a session after the loop's last turn.
        self._longest_silence = session_seconds - min(2 * PULSE_SECONDS, session_seconds / 2)
        self._quorum_feed = QuorumFeed(put)

    def start(self) -> None:
        """Hand over the present state of the quorum and the metadata, and from now on each change."""
        self._quorum.when_known(self._quorum_feed.changed)
        self._feed.start()
        self._tick()

    def lease_changed(self, state: BrokerState, broker_epoch: int) -> None:
        """Report a new state of the lifecycle."""
        self._put(LeaseChanged(state, broker_epoch))

    def take(self, message: ToControl) -> None:
        """Take a message of the broker loop."""
        match message:
            case MetadataTaken():
                self._feed.taken()
            case QuorumTaken():
                self._quorum_feed.taken()
            case LoopAsked():
                self._answers.asked(message)
            case LoopAnswered():
                self._calls.answered(message)
            case DirectoryFailed():
                self._lifecycle.directory_failed(message.directory_id)
                self._on_directory_failure(message.path)
            case DirectoriesCordoned():
                self._lifecycle.cordon(message.directory_ids)
            case ReadyToUnfence():
                self._lifecycle.ready_to_unfence()
            case ShutdownWanted():
                self._lifecycle.begin_controlled_shutdown()
            case RecoveryBegan():
                self._recovery = message.progress
            case BrokerRunning():
                self._lifecycle.announce_running()
            case BrokerFailed():
                self._on_failure(message.error)

    def ask(self, question: BrokerQuestion) -> asyncio.Future[Any]:
        """Return the broker half's answer, which comes when its loop turns."""
        return self._calls.ask(question)

    def recovery_progress(self) -> tuple[int, int, int] | None:
        """Return (bytes checked, bytes to check, logs left) from the broker half's last report or answer, or None while
        no logs of an unclean stop are recovered. Ask the broker half again, unless an earlier question waits."""
        if not self._asks_recovery:
            self._asks_recovery = True
            self.ask(BrokerQuestion.RECOVERY).add_done_callback(self._recovers)
        return self._recovery

    def _recovers(self, answer: asyncio.Future[tuple[int, int, int] | None]) -> None:
        self._asks_recovery = False
        if not answer.cancelled() and answer.exception() is None:
            self._recovery = answer.result()

    def close(self) -> None:
        """Cancel every question, because the broker half is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._calls.close()

    # -- the pulse

    @property
    def silent_seconds(self) -> float:
        """The seconds without a sign of life of the broker loop; 0 if the loop turns or has ended."""
        return 0.0 if self._timer is None else self._pulse.silent_seconds

    def _tick(self) -> None:
        loop = self._runtime.loop
        self._timer = loop.call_later(PULSE_SECONDS, self._tick)
        if self._pulse.tick(loop.time()):
            self.ask(BrokerQuestion.TURNS).add_done_callback(self._turned)
        if self._pulse.silent_seconds >= self._longest_silence:
            self._lifecycle.stand_still(self._pulse.silent_seconds)

    def _turned(self, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled():
            answer.exception()
            self._pulse.came()
            self._lifecycle.turn_again()

    def _answer(self, question: Any) -> Any:
        if question is ControlQuestion.RESTORE_RESERVE:
            return self._quorum.restore_reserve()
        if self._controller is None:
            raise ConnectionError("this node has no controller half")
        return self._controller(question)
