"""The membership of a broker in its cluster: its state, its epoch, and its next message to the controller.

Pure: answers in, messages out. It is the broker's side of controller/brokers.py. Not responsible for the time at which
a message is sent, for timeouts and for log lines (lifecycle.py), nor for the way to the controller
(controller_sender.py).

Invariant: while a failed directory is not reported, the broker asks to stay fenced. If one heartbeat reported the
failure and asked to be unfenced, the controller would make the broker the leader of replicas in that directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykbroker.metadata.features import REGISTERED
from pykbroker.metadata.image import Endpoint
from pykbroker.metadata.snapshot import CORDONED_FROM
from pykbroker.node_to_controller.broker_state import BrokerState
from pykbroker.node_to_controller.directory_reports import DirectoryReports
from pykbroker_wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pykbroker_wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)

_COMING_UP: Final = (BrokerState.STARTING, BrokerState.RECOVERY)
_SILENT: Final = (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN)


@dataclass(slots=True, frozen=True)
class BrokerIdentity:
    """The facts that a broker registers and that stay the same while it runs."""

    node_id: int
    cluster_id: str
    #: identifies this start of the node
    incarnation_id: bytes
    directory_ids: tuple[bytes, ...]
    #: from the file of a clean shutdown, otherwise -1
    previous_broker_epoch: int = -1
    rack: str | None = None


class BrokerMembership:
    """Send `next_request`, and pass its answer to `registered` or `answered`."""

    __slots__ = (
        "broker_epoch",
        "directories",
        "endpoints",
        "identity",
        "is_held_back",
        "is_ready",
        "is_registered",
        "state",
    )

    def __init__(self, identity: BrokerIdentity) -> None:
        self.identity = identity
        #: the advertised listeners
        self.endpoints: tuple[Endpoint, ...] = ()
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        #: False also after the metadata has lost this broker
        self.is_registered = False
        #: True if the broker can be unfenced, because recovery is over
        self.is_ready = False
        self.directories = DirectoryReports()
        #: True if the last heartbeat asked to stay fenced only because it had to report a failed directory first
        self.is_held_back = False

    def next_request(
        self, seen_offset: int, metadata_version: int
    ) -> BrokerRegistrationRequest | BrokerHeartbeatRequest | None:
        """Return the next message to the controller, or None before the start and after the end. `seen_offset`: the
        offset up to which the broker has the metadata."""
        if self.state in _SILENT:
            return None
        return self._heartbeat(seen_offset, metadata_version) if self.is_registered else self._registration()

    def registered(self, response: BrokerRegistrationResponse) -> None:
        self.broker_epoch = response.broker_epoch
        self.is_registered = True

    def answered(self) -> None:
        """Note that the controller has the content of the last heartbeat."""
        self.directories.answered()

    def state_after(self, response: BrokerHeartbeatResponse) -> BrokerState | None:
        """Return the state that follows the present one, or None if this answer to a heartbeat lets it stay. Ask again
        in the new state, because one answer may allow two steps."""
        if self.state is BrokerState.STARTING and response.is_caught_up:
            return BrokerState.RECOVERY
        if self.state is BrokerState.RECOVERY and not response.is_fenced:
            return BrokerState.RUNNING
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and response.should_shut_down:
            return BrokerState.SHUTTING_DOWN
        return None

    def is_lost(self, *, removed: bool, gets_directories: bool) -> bool:
        """Return True, and register again, if the metadata has removed this broker, or if it can have the broker's
        directories from now on."""
        if self.state in _SILENT or not self.is_registered or not (removed or gets_directories):
            return False
        self.is_registered = False
        return True

    def _registration(self) -> BrokerRegistrationRequest:
        identity = self.identity
        return BrokerRegistrationRequest(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=[
                Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in self.endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in REGISTERED.items()
            ],
            rack=identity.rack,
            log_dirs=list(identity.directory_ids),
            previous_broker_epoch=identity.previous_broker_epoch,
        )

    def _heartbeat(self, seen_offset: int, metadata_version: int) -> BrokerHeartbeatRequest:
        directories = self.directories
        self.is_held_back = self.is_ready and self.state in _COMING_UP and not directories.all_reported
        return BrokerHeartbeatRequest(
            broker_id=self.identity.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=seen_offset,
            want_fence=not self.is_ready or self.is_held_back,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=directories.begin(),
            cordoned_log_dirs=list(directories.cordoned) if metadata_version >= CORDONED_FROM else None,
        )
