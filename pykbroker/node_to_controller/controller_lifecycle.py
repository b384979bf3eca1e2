"""Registers a controller with the active controller: its listeners and supported features (KIP-919), once per
incarnation.

Standby controllers register too. Responsible for sending registrations until the metadata shows this incarnation.
controller_sender.py finds the active controller and tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pykbroker.metadata.features import REGISTERED
from pykbroker.metadata.image import ControllerImage, Endpoint, MetadataImage, VersionRange
from pykbroker.metadata.snapshot import CONTROLLERS_FROM
from pykbroker.metadata.view import MetadataView
from pykbroker.node_to_controller.controller_channel import Channel
from pykbroker.node_to_controller.controller_sender import ControllerSender
from pykbroker_wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

if TYPE_CHECKING:
    from pykbroker.metadata.delta import MetadataDelta
    from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)

#: As in Apache Kafka's channel "registration".
_REQUEST_TIMEOUT_MS = 5_000
_LAST_PAUSE_MS = 60_000


class ControllerRegistration:
    """The registration of one controller. Call `start` once and `stop` once."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        channel: Channel,
        metadata: MetadataView,
        node_id: int,
        incarnation_id: bytes,
        features: Mapping[str, VersionRange] = REGISTERED,
    ) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._features = dict(features)
        self._endpoints: list[Endpoint] = []
        #: True when the metadata has shown this incarnation
        self._was_shown = False
        self._is_replaced = False
        self._sender = ControllerSender(
            runtime,
            channel,
            metadata,
            f"[ControllerRegistrationManager id={node_id}]",
            self._next_request,
            self._answered,
            timeout_ms=_REQUEST_TIMEOUT_MS,
            last_pause_ms=_LAST_PAUSE_MS,
        )

    def start(self, endpoints: Iterable[Endpoint]) -> None:
        self._endpoints = list(endpoints)
        self._metadata.add_publisher(self, catch_up=False)
        self._metadata.on_leader(lambda leader_id, epoch: self._sender.wake())
        self._sender.wake()

    def stop(self) -> None:
        self._sender.close()

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """Publisher of the loader. It wakes the sender only if the result of `_next_request` may have changed."""
        node_id = self._node_id
        if old.features is not new.features or old.controllers.get(node_id) is not new.controllers.get(node_id):
            self._sender.wake()

    def _next_request(self) -> ControllerRegistrationRequest | None:
        image = self._metadata.image
        known = image.controllers.get(self._node_id)
        if image.features.metadata_version < CONTROLLERS_FROM:
            return None
        if known is not None and known.incarnation_id == self._incarnation_id:
            self._was_shown = True
            return None
        if known is not None and self._was_shown:
            # Another process has registered with this id. If both processes registered again and again, as in Apache
            # Kafka, the metadata log would grow without end.
            self._say_that_it_is_replaced(known)
            return None
        return ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self._incarnation_id,
            zk_migration_ready=False,
            listeners=[
                Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in self._endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in self._features.items()
            ],
        )

    def _say_that_it_is_replaced(self, other: ControllerImage) -> None:
        if self._is_replaced:
            return
        self._is_replaced = True
        places = ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in other.endpoints.values())
        logger.warning(
            "[ControllerRegistrationManager id=%d] Another process has registered as controller %d, at %s: two nodes "
            "have the same node.id. This one does not register again before it is restarted.",
            self._node_id,
            self._node_id,
            places,
        )

    def _answered(self, response: ControllerRegistrationResponse) -> None:
        # The metadata will show the registration. If it does not, because a leader lost the record, the request is sent
        # again.
        self._sender.wake(_REQUEST_TIMEOUT_MS)
