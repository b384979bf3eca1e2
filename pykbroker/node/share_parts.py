"""The parts by which a broker serves share groups (KIP-932), apart from its coordinators.

Responsible for making these parts, and for the order in which they close. The persister has connections of its own,
because answers come in the order of the requests, and share coordinators answer late while they load. Nothing is sent
and no connection is made until a share group needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pykbroker.coordinator.group.share.share_lag import EndsOfLeaders, PartitionByName
from pykbroker.share_persister.group_share_states import GroupShareStates
from pykbroker.share_persister.persister import SharePersister

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config
    from pykbroker.metadata.view import MetadataView
    from pykbroker.node.parts import StartedParts
    from pykbroker.quorum.channel import BrokerChannels
    from pykbroker.runtime import Runtime


class ShareParts:
    """Call `start` before the coordinators start, and `follow` with the other publishers of the metadata."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        metadata: MetadataView,
        channels: BrokerChannels,
        send: Callable[[int, Any, int], asyncio.Future[Any]],
    ) -> None:
        """`channels`: the persister's own connections to other brokers and to this one. `send` sends a request to a
        broker over other connections, and takes its id, the request and the timeout in ms."""
        self._metadata = metadata
        self._channels = channels
        self.persister = SharePersister(runtime, metadata, config.listeners.inter_broker_name, channels.send)
        #: what the group coordinator asks of share coordinators
        self.group_states = GroupShareStates(runtime.loop, self.persister)
        #: the ends of partitions, for the lag of share groups
        self.ends = EndsOfLeaders(runtime.loop, self._leader_of, send, config.int("request.timeout.ms"))

    def start(self, parts: StartedParts) -> None:
        """Add the parts to the stack. The persister closes first, because it fails its requests with its answers."""
        parts.add("channels to share coordinators", self._channels.close)
        parts.add("share persister", self.persister.close)

    def follow(self) -> None:
        """Let the persister follow the metadata."""
        self._metadata.add_publisher(self.persister)

    def _leader_of(self, partition: PartitionByName) -> int | None:
        found = self._metadata.image.topics.partition(*partition)
        return None if found is None or found.leader < 0 else found.leader
