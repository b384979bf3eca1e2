"""The writer of dead letters of a broker, which share-partition leaders call (KIP-1191, share.version 2).

Responsible for giving the machine (writer_machine.py) its clock, its network, the source log and the metadata, and for
the promises of its callers. Not responsible for the state of the records: the leaders keep it.

Orders that are submitted in one turn of the loop share their requests, because the first is sent after the turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pykbroker.config.per_group import PerGroup
from pykbroker.dead_letters.letter_batches import LetterFrame
from pykbroker.dead_letters.letter_orders import CreateTopic, LetterOrder, ReadSource, SendLetters
from pykbroker.dead_letters.letter_requests import TIMEOUT_MS, produce_errors, produce_request
from pykbroker.dead_letters.letter_topics import LetterQueue, LetterTopic, letter_queue, letter_topic
from pykbroker.dead_letters.writer_machine import LetterCounts, WriterMachine
from pykbroker.metadata.features import DEAD_LETTERS_FROM, share_version
from pykbroker.metadata.image import ConfigResource
from pykbroker.net.promise import Promise
from pykbroker.runtime.early_timer import EarlyTimer
from pykbroker.runtime.line_limit import LineLimit
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.primitives import uuid_to_str

if TYPE_CHECKING:
    from pykbroker.config.live import LiveConfig
    from pykbroker.dead_letters.source_reader import SourceReader
    from pykbroker.dead_letters.source_records import SourceOutcome
    from pykbroker.metadata.delta import MetadataDelta
    from pykbroker.metadata.image import MetadataImage
    from pykbroker.metadata.view import MetadataView
    from pykbroker.runtime import Runtime
    from pykbroker.share_leaders.dead_letters import DeadLetters
    from pykbroker_wire.messages.produce import ProduceResponse

logger = logging.getLogger(__name__)


class LetterWriter:
    """A `DeadLetterWriter` (share_leaders/dead_letters.py). Add it to the publishers of `metadata`.

    After `close` no promise gets its result any more. So the leaders leave the records in the state ARCHIVING, and the
    next leaders ask for their letters again.
    """

    def __init__(
        self,
        runtime: Runtime,
        live: LiveConfig,
        metadata: MetadataView,
        sources: SourceReader,
        send: Callable[[int, Any, int], asyncio.Future[Any]],
        create: Callable[[str], asyncio.Future[ErrorCode]],
        counts: LetterCounts,
    ) -> None:
        """`send` sends a request to a broker, and takes its id, the request and the timeout in ms. Its connections
        belong to this writer, because answers come in order, and a Produce waits for all replicas. `create` creates a
        dead letter topic, and its future gets NONE once this broker's metadata has the topic; it never fails."""
        self._runtime = runtime
        self._live = live
        self._metadata = metadata
        self._sources = sources
        self._send = send
        self._create = create
        self._queues = PerGroup(
            lambda: live.current,
            lambda group: metadata.image.configs.of(ConfigResource.GROUP, group),
            letter_queue,
        )
        self._lines = LineLimit(runtime.loop.time)
        self._machine = WriterMachine(self._topic_of, self._copies_of, counts, runtime.random)
        self._promises: dict[LetterOrder, Promise] = {}
        self._turn: asyncio.Handle | None = None
        self._timer = EarlyTimer(runtime.loop, self._pump_soon)
        self._is_closed = False

    # -- calls --------------------------------------------------------------------------------------------------------

    def is_wanted(self, group_id: str) -> bool:
        """Return True if share.version 2 is finalised and the group has a dead letter topic."""
        return share_version(self._metadata.image) >= DEAD_LETTERS_FROM and bool(self._queue_of(group_id).topic)

    def write(self, letters: DeadLetters) -> Promise:
        """Begin to write letters. Return a promise, whose result is None when they are written or given up."""
        topic = self._metadata.image.topics.by_id.get(letters.topic_id)
        # As in Apache Kafka, the id stands for a topic that no longer exists.
        name = uuid_to_str(letters.topic_id) if topic is None else topic.name
        frame = LetterFrame(name, letters.partition, letters.group_id, letters.delivery_count, letters.cause.value)
        order = LetterOrder(letters, frame)
        promise = self._promises[order] = Promise()
        if not self._is_closed:
            self._machine.submit(order)
            self._pump_soon()
        return promise

    # -- the node -----------------------------------------------------------------------------------------------------

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """Take a change of the metadata. Letters go to new leaders at once."""
        if len(self._machine) and old.topics is not new.topics:
            self._machine.topics_changed(self._runtime.loop.time())
            self._pump_soon()

    def close(self) -> None:
        """Send nothing more, and answer nothing more."""
        self._is_closed = True
        self._promises.clear()
        self._timer.cancel()
        if self._turn is not None:
            self._turn.cancel()

    # -- within -------------------------------------------------------------------------------------------------------

    def _queue_of(self, group_id: str) -> LetterQueue:
        return self._queues.of(group_id)

    def _topic_of(self, order: LetterOrder) -> LetterTopic:
        letters = order.letters
        return letter_topic(
            self._queue_of(letters.group_id), letters.partition, self._live.current, self._metadata.image
        )

    def _copies_of(self, order: LetterOrder) -> bool:
        return self._queue_of(order.letters.group_id).copies

    def _pump_soon(self) -> None:
        if self._turn is None and not self._is_closed:
            self._turn = self._runtime.loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Do one turn of work: everything that can be done now, up to the machine's limits of a turn."""
        self._turn = None
        loop = self._runtime.loop
        for step in self._machine.take_steps(loop.time(), self._runtime.now_ms()):
            if isinstance(step, ReadSource):
                self._read(step)
            elif isinstance(step, CreateTopic):
                self._create(step.name).add_done_callback(partial(self._created, step.name))
            else:
                request = produce_request(step)
                self._send(step.node_id, request, TIMEOUT_MS).add_done_callback(partial(self._answered, step))
        for order in self._machine.take_ended():
            self._end(order)
        if self._machine.has_more:
            self._pump_soon()
        self._timer.set(self._machine.next_wake())

    def _end(self, order: LetterOrder) -> None:
        letters = order.letters
        left_out = self._lines.take(letters.group_id) if order.problem else None
        if left_out is not None:
            logger.warning(
                "Group %s: the records from offset %d to %d of partition %d get no dead letters: %s%s",
                letters.group_id,
                order.next_offset,
                letters.last_offset,
                letters.partition,
                order.problem,
                left_out,
            )
        try:
            self._promises.pop(order).set_result(None)
        except Exception:
            # The other promises must have their results too.
            logger.exception("The end of the dead letters of %s could not be used", letters)

    # -- the source log, the controller and the leaders of topics ----------------------------------------------------

    def _read(self, step: ReadSource) -> None:
        letters, first = step.order.letters, step.order.next_offset
        read = self._sources.read(letters.topic_id, letters.partition, first, step.last, step.most_bytes)
        read.add_done_callback(partial(self._source_read, step))

    def _source_read(self, step: ReadSource, read: asyncio.Future[SourceOutcome]) -> None:
        if not self._is_closed and not read.cancelled():
            self._machine.source_read(step.order, read.result(), step.last, self._runtime.loop.time())
            self._pump_soon()

    def _created(self, name: str, created: asyncio.Future[ErrorCode]) -> None:
        if not self._is_closed and not created.cancelled():
            self._machine.created(name, created.result(), self._runtime.loop.time())
            self._pump_soon()

    def _answered(self, step: SendLetters, sent: asyncio.Future[ProduceResponse]) -> None:
        error = asyncio.CancelledError() if sent.cancelled() else sent.exception()
        if self._is_closed:
            return
        now = self._runtime.loop.time()
        if error is None:
            self._machine.answered(step, produce_errors(step, sent.result()), now)
        else:
            self._machine.failed(step, str(error) or type(error).__name__, now)
        self._pump_soon()
