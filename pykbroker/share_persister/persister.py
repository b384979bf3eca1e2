"""The persister of a broker: what share-partition leaders and the group coordinator call to keep share states.

Responsible for giving the machine (persister_machine.py) its clock, its network and the metadata, and for the promises
of its callers. Not responsible for the meaning of an error to a share group: the callers decide that, as in Apache
Kafka (DefaultStatePersister there).

Operations that are submitted in one turn of the loop share their requests, because the first is sent after the turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pykbroker.client_view.leader_hints import node_on_listener
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.metadata.topic_names import SHARE_STATE_TOPIC
from pykbroker.net.promise import Promise
from pykbroker.net.versions import UnsupportedVersion
from pykbroker.runtime.early_timer import EarlyTimer
from pykbroker.share_persister.persister_machine import (
    CoordinatorLookup,
    PersisterMachine,
    RequestFailure,
    StateRequest,
)
from pykbroker.share_persister.state_operations import (
    ShareCoordinatorNode,
    ShareStateAnswer,
    StateCall,
    StateOperation,
)
from pykbroker.share_persister.state_requests import lookup_answers, lookup_request, state_answers, state_request

if TYPE_CHECKING:
    from pykbroker.metadata.delta import MetadataDelta
    from pykbroker.metadata.image import MetadataImage
    from pykbroker.metadata.view import MetadataView
    from pykbroker.runtime import Runtime
    from pykbroker.share_persister.state_operations import WrittenBatch

logger = logging.getLogger(__name__)

#: Apache Kafka's (CommonClientConfigs.DEFAULT_SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS).
REQUEST_TIMEOUT_MS: Final = 30_000
#: Any broker can answer a lookup, so another one is asked sooner.
LOOKUP_TIMEOUT_MS: Final = 5_000


class SharePersister:
    """Each call returns a promise of a `ShareStateAnswer`, and never raises. The answer's error is that of the share
    coordinator. It is COORDINATOR_NOT_AVAILABLE if no coordinator could be reached in all tries, which take half a
    minute or more, or if too many operations wait. It is REQUEST_TIMED_OUT if `timeout_ms` has passed.

    An operation without an answer, or with one of these two errors, may have been carried out. A caller that waits no
    longer cancels the promise. Operations on one key are carried out in the order of the calls.
    """

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataView,
        listener_name: str,
        send: Callable[[int, Any, int], asyncio.Future[Any]],
    ) -> None:
        """`listener_name`: the listener between brokers. `send`: sends a request to a broker, and takes its id, the
        request and the timeout in ms. Its connections belong to this persister, because answers come in order, and
        share coordinators answer late while they load. Add the persister to the publishers of `metadata`."""
        self._loop = runtime.loop
        self._metadata = metadata
        self._listener_name = listener_name
        self._send = send
        self._machine = PersisterMachine(self._coordinator_of, self._brokers, runtime.random)
        self._promises: dict[StateOperation, Promise] = {}
        self._turn: asyncio.Handle | None = None
        self._timer = EarlyTimer(runtime.loop, self._wake)
        self._is_pumping = False

    # -- calls --------------------------------------------------------------------------------------------------------

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, *, timeout_ms: int | None = None
    ) -> Promise:
        """Set the state epoch and the start offset (-1 if it is not known yet), and forget all state before."""
        operation = StateOperation(StateCall.INITIALIZE, key, state_epoch=state_epoch, start_offset=start_offset)
        return self._submit(operation, timeout_ms)

    def read(self, key: SharePartitionKey, leader_epoch: int, *, timeout_ms: int | None = None) -> Promise:
        """Return the state, and fence leaders with an older epoch."""
        return self._submit(StateOperation(StateCall.READ, key, leader_epoch=leader_epoch), timeout_ms)

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[WrittenBatch],
        *,
        timeout_ms: int | None = None,
    ) -> Promise:
        """Merge these batches into the state. The batches may not change until the answer is there. `start_offset` is
        -1 if it stays. `delivery_complete_count` is -1 if it is not known; a coordinator of version 0 drops it."""
        operation = StateOperation(
            StateCall.WRITE,
            key,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            batches=batches,
        )
        return self._submit(operation, timeout_ms)

    def delete(self, key: SharePartitionKey, *, timeout_ms: int | None = None) -> Promise:
        """Forget the state. It is no error if there is none."""
        return self._submit(StateOperation(StateCall.DELETE, key), timeout_ms)

    def summarize(self, key: SharePartitionKey, leader_epoch: int = -1, *, timeout_ms: int | None = None) -> Promise:
        """Return the state without its batches, and fence nothing."""
        return self._submit(StateOperation(StateCall.SUMMARIZE, key, leader_epoch=leader_epoch), timeout_ms)

    # -- the node -----------------------------------------------------------------------------------------------------

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """Take a change of the metadata. Operations go to new leaders at once."""
        topic = SHARE_STATE_TOPIC
        if old.topics.by_name.get(topic) is not new.topics.by_name.get(topic) or old.brokers is not new.brokers:
            self._machine.leaders_changed()
            self._pump_soon()

    def close(self) -> None:
        """Answer all operations with COORDINATOR_NOT_AVAILABLE, and refuse new ones."""
        self._machine.close()
        self._pump()
        self._timer.cancel()

    # -- within -------------------------------------------------------------------------------------------------------

    def _submit(self, operation: StateOperation, timeout_ms: int | None) -> Promise:
        if timeout_ms is not None:
            operation.deadline = self._loop.time() + timeout_ms / 1000
        promise = self._promises[operation] = Promise()
        promise.when_cancelled(partial(self._given_up, operation))
        self._machine.submit(operation)
        self._pump_soon()
        return promise

    def _given_up(self, operation: StateOperation) -> None:
        del self._promises[operation]
        self._machine.give_up(operation)
        self._pump_soon()

    def _pump_soon(self) -> None:
        if self._turn is None and not self._is_pumping:
            self._turn = self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Send everything that can be sent, deliver all answers, and set the timer."""
        self._is_pumping = True
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        machine = self._machine
        while True:
            sends = machine.take_sends(self._loop.time())
            answers = machine.take_answers()
            if not sends and not answers:
                break
            for sent in sends:
                self._request(sent)
            for operation, answer in answers:
                self._deliver(operation, answer)
        self._is_pumping = False
        self._timer.set(machine.next_wake())

    def _deliver(self, operation: StateOperation, answer: ShareStateAnswer) -> None:
        promise = self._promises.pop(operation, None)
        if promise is None:
            return
        try:
            promise.set_result(answer)
        except Exception:
            # The other answers must be delivered too.
            logger.exception("An answer for %s could not be used", operation.key)

    def _wake(self) -> None:
        self._machine.wake(self._loop.time())
        self._pump()

    # -- other brokers, and this one ----------------------------------------------------------------------------------

    def _request(self, sent: StateRequest | CoordinatorLookup) -> None:
        if isinstance(sent, StateRequest):
            future = self._send(sent.node_id, state_request(sent), REQUEST_TIMEOUT_MS)
        else:
            future = self._send(sent.node_id, lookup_request(sent), LOOKUP_TIMEOUT_MS)
        future.add_done_callback(partial(self._answered, sent))

    def _answered(self, sent: StateRequest | CoordinatorLookup, future: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        now = self._loop.time()
        if error is not None:
            self._machine.failed(sent, self._failure(sent, error), now)
        elif isinstance(sent, StateRequest):
            self._machine.answered(sent, state_answers(sent.call, future.result()), now)
        else:
            self._machine.found(sent, lookup_answers(future.result()), now)
        self._pump()

    def _failure(self, sent: StateRequest | CoordinatorLookup, error: BaseException) -> RequestFailure:
        if isinstance(error, UnsupportedVersion):
            return RequestFailure.NOT_SERVED
        if isinstance(error, TimeoutError):
            return RequestFailure.TIMED_OUT
        if isinstance(error, ConnectionError | asyncio.CancelledError):
            return RequestFailure.LOST
        logger.error("A request for share states to broker %d failed", sent.node_id, exc_info=error)
        return RequestFailure.BROKEN

    def _coordinator_of(self, key: SharePartitionKey) -> ShareCoordinatorNode | None:
        image = self._metadata.image
        topic = image.topics.by_name.get(SHARE_STATE_TOPIC)
        if topic is None or not topic.partitions:
            return None
        partition = topic.partitions.get(key.state_partition(len(topic.partitions)))
        if partition is None or node_on_listener(image, partition.leader, self._listener_name) is None:
            return None
        return ShareCoordinatorNode(partition.leader, partition.leader_epoch)

    def _brokers(self) -> list[int]:
        image = self._metadata.image
        return [each for each in image.brokers if node_on_listener(image, each, self._listener_name) is not None]
