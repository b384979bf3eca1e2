"""The parts by which a broker serves share groups (KIP-932), apart from its coordinators.

Responsible for making these parts, and for the order in which they close. The persister has connections of its own,
because answers come in the order of the requests, and share coordinators answer late while they load. It asks this
broker in memory. The writer of dead letters has its own connections, because its answers wait for all replicas. Nothing
is sent and no connection is made until a share group needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pykbroker.config.per_group import PerGroup
from pykbroker.coordinator.group.share.share_lag import EndsOfLeaders, PartitionByName
from pykbroker.dead_letters.letter_metrics import LetterMetrics
from pykbroker.dead_letters.letter_writer import LetterWriter
from pykbroker.dead_letters.source_reader import SourceReader
from pykbroker.metadata.features import share_version
from pykbroker.metadata.image import ConfigResource
from pykbroker.quorum.channel import call_in_memory
from pykbroker.share_leaders.leader_configs import leader_config
from pykbroker.share_leaders.leader_table import ShareLeaders
from pykbroker.share_leaders.start_offsets import StartOffsets
from pykbroker.share_persister.group_share_states import GroupShareStates
from pykbroker.share_persister.persister import SharePersister

if TYPE_CHECKING:
    from pykbroker.config.live import LiveConfig
    from pykbroker.metadata.delta import MetadataDelta
    from pykbroker.metadata.image import MetadataImage
    from pykbroker.metadata.view import MetadataView
    from pykbroker.metrics.registry import Metrics
    from pykbroker.node.parts import StartedParts
    from pykbroker.quorum.channel import BrokerChannels
    from pykbroker.replica.batch_checks import BatchChecks
    from pykbroker.replica.partition import Partition
    from pykbroker.replica.table import ReplicaTable
    from pykbroker.runtime import Runtime
    from pykbroker.runtime.cold_reads import ColdReads
    from pykbroker_wire.errors import ErrorCode


class ShareLogs(NamedTuple):
    """The parts of a broker by which share groups read its logs."""

    replicas: ReplicaTable
    cold_reads: ColdReads
    batch_checks: BatchChecks


class ShareParts:
    """Call `start` before the coordinators start, `follow` with the other publishers of the metadata, and `serve`
    before the listeners serve."""

    def __init__(
        self,
        runtime: Runtime,
        live: LiveConfig,
        metadata: MetadataView,
        channels: Callable[[], BrokerChannels],
        send: Callable[[int, Any, int], asyncio.Future[Any]],
        logs: ShareLogs,
        create_dead_letter_topic: Callable[[str], asyncio.Future[ErrorCode]],
        metrics: Metrics,
        in_memory: Callable[[int], Callable[[Any], Any] | None],
    ) -> None:
        """`channels` makes connections to other brokers and to this one, for one part. `send` sends a request to a
        broker over other connections, and takes its id, the request and the timeout in ms.
        `create_dead_letter_topic`: see `LetterWriter`. `in_memory` takes an API key, and returns what handles such a
        request of this broker to itself, None if the request has to come over a listener."""
        config = live.static
        self._metadata = metadata
        self._replicas = logs.replicas
        self._runtime = runtime
        self._node_id = config.node_id
        self._in_memory = in_memory
        self._channels = channels()
        self.persister = SharePersister(runtime, metadata, config.listeners.inter_broker_name, self._ask)
        #: what the group coordinator asks of share coordinators
        self.group_states = GroupShareStates(runtime.loop, self.persister)
        #: the ends of partitions, for the lag of share groups
        self.ends = EndsOfLeaders(runtime.loop, self._leader_of, send, config.int("request.timeout.ms"))
        configs = PerGroup(
            lambda: live.current,
            lambda group: metadata.image.configs.of(ConfigResource.GROUP, group),
            leader_config,
        )
        self._letter_channels = channels()
        #: writes what the leaders give up on
        self.dead_letters = LetterWriter(
            runtime,
            live,
            metadata,
            SourceReader(runtime.loop, self._partition, logs.cold_reads, logs.batch_checks),
            self._letter_channels.send,
            create_dead_letter_topic,
            LetterMetrics(metrics),
        )
        self.leaders = ShareLeaders(
            runtime.client_clock,
            self.persister,
            configs.of,
            StartOffsets(runtime, logs.cold_reads, logs.batch_checks).find,
            self.dead_letters,
            config.int("group.share.max.share.sessions"),
        )

    def start(self, parts: StartedParts) -> None:
        """Add the parts to the stack. The persister closes first, because it fails its requests with its answers."""
        parts.add("channels to share coordinators", self._channels.close)
        parts.add("share persister", self.persister.close)
        parts.add("channels for dead letters", self._letter_channels.close)
        parts.add("dead letters", self.dead_letters.close)

    def follow(self) -> None:
        """Let the parts follow the metadata."""
        self._metadata.add_publisher(self.persister)
        self._metadata.add_publisher(self.dead_letters)
        self._metadata.add_publisher(self)

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """End all sessions if share groups are switched off."""
        if share_version(old) and not share_version(new):
            self.leaders.turn_off()

    def serve(self, parts: StartedParts) -> None:
        """Add the leaders of share partitions to the stack. They end after the last request and before the logs
        close."""
        parts.add("leaders of share partitions", self.leaders.turn_off)

    async def shut_down(self) -> None:
        """Release all locks while share coordinators can still be asked, this node's among them."""
        await self.leaders.close()

    def _ask(self, broker_id: int, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        """Send a request for share states. With one broker all of them go in memory: a socket to this process costs a
        fifth of the time of an acknowledgement."""
        call = self._in_memory(request.API_KEY) if broker_id == self._node_id else None
        if call is None:
            return self._channels.send(broker_id, request, timeout_ms)
        return call_in_memory(self._runtime, call, request, timeout_ms)

    def _partition(self, topic_id: bytes, index: int) -> Partition | None:
        topic = self._metadata.image.topics.by_id.get(topic_id)
        return None if topic is None else self._replicas.find(topic.name, index)

    def _leader_of(self, partition: PartitionByName) -> int | None:
        found = self._metadata.image.topics.partition(*partition)
        return None if found is None or found.leader < 0 else found.leader
