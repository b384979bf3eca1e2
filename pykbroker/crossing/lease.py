"""The broker half's view of this broker's membership in the cluster: the state of its lease, and the messages in which
it reports its own state.

The lease itself is in the lifecycle (node_to_controller/lifecycle.py) on the control loop, where heartbeats continue
while the broker loop is busy. Responsible for the futures on which the broker half waits. The broker counts as running
only when the metadata of the broker half shows it as active too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from pykbroker.crossing.loop_messages import (
    BrokerRunning,
    DirectoriesCordoned,
    DirectoryFailed,
    LeaseChanged,
    ReadyToUnfence,
    ShutdownWanted,
    ToControl,
)
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import MetadataImage
from pykbroker.metadata.view import MetadataView
from pykbroker.node_to_controller.broker_state import BrokerState
from pykbroker.runtime import Runtime


class Lease:
    """Call `follow` once."""

    def __init__(
        self, runtime: Runtime, node_id: int, metadata: MetadataView, put: Callable[[ToControl], None]
    ) -> None:
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self._node_id = node_id
        self._metadata = metadata
        self._put = put
        self._fenced: Callable[[], None] | None = None
        loop = runtime.loop
        #: done when the metadata is at least as new as this broker's registration
        self.caught_up: asyncio.Future[None] = loop.create_future()
        #: done when the broker is unfenced and the metadata of this half shows that, so that clients can be served
        self.running: asyncio.Future[None] = loop.create_future()
        #: done when this broker leads no partition, or when it is useless to wait for that
        self.shutdown_granted: asyncio.Future[None] = loop.create_future()

    def follow(self) -> None:
        """Begin to follow the metadata. Call it before the parts that show the metadata to clients follow it."""
        self._metadata.add_publisher(self, catch_up=False)

    # -- from the broker half

    def ready_to_unfence(self) -> asyncio.Future[None]:
        """Report that recovery is over. The future is done when the broker is RUNNING."""
        self._put(ReadyToUnfence())
        return self.running

    def announce_running(self) -> None:
        """Report that clients are served."""
        self._put(BrokerRunning())

    def begin_controlled_shutdown(self, fenced: Callable[[], None]) -> asyncio.Future[None]:
        """Ask the controller to move leaderships away. The future is done when the controller allows this broker to
        stop. `fenced` is called as soon as the metadata of this half shows this broker as fenced or gone. Clients must
        not get such metadata from this broker."""
        self._fenced = fenced
        self._put(ShutdownWanted())
        return self.shutdown_granted

    def directory_failed(self, directory_id: bytes, path: str) -> None:
        """Report to the controller that a log directory is offline (KIP-858)."""
        self._put(DirectoryFailed(directory_id, path))

    def cordon(self, directory_ids: Iterable[bytes]) -> None:
        """Report to the controller the directories that get no new replicas (KIP-1066)."""
        self._put(DirectoriesCordoned(tuple(directory_ids)))

    # -- from the control side

    def changed(self, message: LeaseChanged) -> None:
        self.state = message.state
        self.broker_epoch = message.broker_epoch
        if self.state is BrokerState.SHUTTING_DOWN:
            if not self.shutdown_granted.done():
                self.shutdown_granted.set_result(None)
            for future in (self.caught_up, self.running):
                future.cancel()
        elif self.state >= BrokerState.RECOVERY and not self.caught_up.done():
            self.caught_up.set_result(None)
        self._look()

    # -- from the metadata

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """Take a change of this half's metadata (called by the `MetadataView`)."""
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and self._fenced is not None:
            broker = new.brokers.get(self._node_id)
            if broker is None or broker.fenced:
                self._fenced()
        self._look()

    def _look(self) -> None:
        is_running = BrokerState.RUNNING <= self.state < BrokerState.SHUTTING_DOWN
        if is_running and not self.running.done() and self._metadata.image.broker_is_active(self._node_id):
            self.running.set_result(None)
