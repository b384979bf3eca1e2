"""Asks the transaction coordinator whether partitions belong to a transaction, or asks it to add them (KIP-890).

Responsible for finding the coordinator and asking it, directly if it is this node, otherwise with AddPartitionsToTxn of
version 4 and later. One request at a time goes to each broker, with the questions that came in the meantime. Not
responsible for guards and appends (replica/), nor for what an error means to a client (api/).

Answers are those of the coordinator with two translations that all callers need. PRODUCER_FENCED, which producers do
not expect here, becomes INVALID_PRODUCER_EPOCH. Errors between the two brokers become NETWORK_EXCEPTION (no connection)
or INVALID_TXN_STATE (no authorization). CONCURRENT_TRANSACTIONS is the state between two transactions: with `add` the
coordinator is asked again for a while (add.partitions.to.txn.retry.backoff.*), which spares the client's retries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from pykbroker.coordinator.transaction.records import TopicPartition
from pykbroker.coordinator.transaction.sender import SendToBroker
from pykbroker.coordinator.transaction.shard import EPOCH_BUMP_FROM, Producer
from pykbroker.metadata.topic_names import TRANSACTION_STATE_TOPIC
from pykbroker.runtime.later import Later, then
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config
    from pykbroker.coordinator.transaction.service import TransactionService
    from pykbroker.metadata.view import MetadataView
    from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)

PartitionVerdicts = dict[TopicPartition, ErrorCode]

_TRANSLATION: Final = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}


class _Question:
    """Partitions of one transaction that a caller waits for."""

    __slots__ = ("add", "future", "partitions", "producer")

    def __init__(
        self, producer: Producer, partitions: list[TopicPartition], add: bool, future: asyncio.Future[PartitionVerdicts]
    ) -> None:
        self.producer = producer
        self.partitions = partitions
        self.add = add
        self.future = future

    def answer(self, verdicts: PartitionVerdicts) -> None:
        if not self.future.done():
            self.future.set_result(
                {partition: verdicts.get(partition, ErrorCode.NETWORK_EXCEPTION) for partition in self.partitions}
            )


class Verifier:
    """The verifier of one broker. Produce and TxnOffsetCommit use it as `ctx.services.verifier`."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        node_id: int,
        metadata: MetadataView,
        transactions: TransactionService,
        send: SendToBroker,
    ) -> None:
        self._runtime = runtime
        self._node_id = node_id
        self._metadata = metadata
        self._transactions = transactions
        self._send = send
        self._timeout_ms = config.int("request.timeout.ms")
        self._backoff = config.int("add.partitions.to.txn.retry.backoff.ms") / 1000
        self._patience = min(config.int("add.partitions.to.txn.retry.backoff.max.ms"), self._timeout_ms) / 1000
        self.enabled = True
        self.reconfigure(config)
        self._queued: dict[int, list[_Question]] = {}
        self._busy: set[int] = set()

    def reconfigure(self, config: Config) -> None:
        """Apply a new configuration. `enabled` is True if the partitions of clients that add them themselves are
        checked."""
        self.enabled = config.bool("transaction.partition.verification.enable")

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        *,
        add: bool,
        before_again: Callable[[], object] = lambda: None,
    ) -> Later[PartitionVerdicts]:
        """Return the error code of each partition; its records may be appended if it is NONE. `before_again` is called
        before the coordinator is asked again."""
        producer = Producer(transactional_id, producer_id, producer_epoch)
        answer = self._ask(producer, partitions, add)
        if not add or (not isinstance(answer, asyncio.Future) and not _between_transactions(answer)):
            return answer
        outer: asyncio.Future[PartitionVerdicts] = self._runtime.loop.create_future()
        give_up = self._runtime.loop.time() + self._patience

        def arrived(verdicts: PartitionVerdicts) -> None:
            if outer.done():
                return
            if _between_transactions(verdicts) and self._runtime.loop.time() < give_up:
                self._runtime.loop.call_later(self._backoff, again)
            else:
                outer.set_result(verdicts)

        def again() -> None:
            if not outer.done():
                before_again()
                listen(self._ask(producer, partitions, add))

        def answered(future: asyncio.Future[PartitionVerdicts]) -> None:
            if future.cancelled():
                outer.cancel()  # the node is stopping
            else:
                arrived(future.result())

        def listen(answer: Later[PartitionVerdicts]) -> None:
            if isinstance(answer, asyncio.Future):
                answer.add_done_callback(answered)
            else:
                arrived(answer)

        listen(answer)
        return outer

    def verify_at_once(self, producer: Producer, partition: TopicPartition, *, add: bool) -> bool:
        """Return True if this node is the coordinator and accepts the partition now. Otherwise call `verify`, which
        gives the reason or waits. If this call has added the partition, `verify` does not add it again."""
        transactions = self._transactions
        if transactions.coordinator.leader_epoch(transactions.partition_of(producer.transactional_id)) is None:
            return False
        if add:
            return transactions.add_partitions(producer, (partition,), EPOCH_BUMP_FROM) is ErrorCode.NONE
        verdicts = transactions.verify_partitions(producer, (partition,))
        return not isinstance(verdicts, asyncio.Future) and not verdicts[partition]

    def _ask(self, producer: Producer, partitions: list[TopicPartition], add: bool) -> Later[PartitionVerdicts]:
        index = self._transactions.partition_of(producer.transactional_id)
        image = self._metadata.image.topics.partition(TRANSACTION_STATE_TOPIC, index)
        if image is None or image.leader < 0:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if image.leader == self._node_id:
            return self._ask_here(producer, partitions, add)
        question = _Question(producer, partitions, add, self._runtime.loop.create_future())
        self._queued.setdefault(image.leader, []).append(question)
        self._send_next(image.leader)
        return question.future

    def _ask_here(self, producer: Producer, partitions: list[TopicPartition], add: bool) -> Later[PartitionVerdicts]:
        if not add:
            return then(
                self._transactions.verify_partitions(producer, partitions),
                lambda verdicts: {partition: _TRANSLATION.get(code, code) for partition, code in verdicts.items()},
            )
        known = self._metadata.image.topics.partition
        for partition in partitions:
            if known(*partition) is None:
                return dict.fromkeys(partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        added = self._transactions.add_partitions(producer, partitions, EPOCH_BUMP_FROM)
        return then(added, lambda code: dict.fromkeys(partitions, _TRANSLATION.get(code, code)))

    # -- another broker -----------------------------------------------------------------------------------------------

    def _send_next(self, broker: int) -> None:
        if broker in self._busy:
            return
        batch = self._take(broker)
        if not batch:
            return
        self._busy.add(broker)
        request = AddPartitionsToTxnRequest(transactions=[_message(questions) for questions in batch.values()])
        self._send(broker, request, self._timeout_ms).add_done_callback(partial(self._answered, broker, batch))

    def _take(self, broker: int) -> dict[str, list[_Question]]:
        """Return the questions of the next request by transactional id. An id may occur once in a request, so questions
        about it that differ wait for the next request."""
        batch: dict[str, list[_Question]] = {}
        left: list[_Question] = []
        for question in self._queued.pop(broker, ()):
            if question.future.done():
                continue
            together = batch.setdefault(question.producer.transactional_id, [])
            if together and (together[0].producer, together[0].add) != (question.producer, question.add):
                left.append(question)
            else:
                together.append(question)
        if left:
            self._queued[broker] = left
        return batch

    def _answered(
        self, broker: int, batch: dict[str, list[_Question]], future: asyncio.Future[AddPartitionsToTxnResponse]
    ) -> None:
        self._busy.discard(broker)
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        verdicts: dict[str, PartitionVerdicts] = {}
        code = ErrorCode.NONE
        if error is None:
            code, verdicts = _read(future.result())
        else:
            code = ErrorCode.NETWORK_EXCEPTION
            if not isinstance(error, ConnectionError | TimeoutError | asyncio.CancelledError):
                logger.error("Transactions could not be verified by broker %d", broker, exc_info=error)
        for transactional_id, questions in batch.items():
            for question in questions:
                if code:
                    question.answer(dict.fromkeys(question.partitions, code))
                else:
                    question.answer(verdicts.get(transactional_id, {}))
        self._send_next(broker)


def _between_transactions(verdicts: PartitionVerdicts) -> bool:
    return ErrorCode.CONCURRENT_TRANSACTIONS in verdicts.values()


def _message(questions: list[_Question]) -> AddPartitionsToTxnTransaction:
    by_topic: dict[str, dict[int, None]] = {}
    for question in questions:
        for topic, index in question.partitions:
            by_topic.setdefault(topic, {})[index] = None
    producer = questions[0].producer
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=not questions[0].add,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes)) for topic, indexes in by_topic.items()],
    )


def _read(response: AddPartitionsToTxnResponse) -> tuple[ErrorCode, dict[str, PartitionVerdicts]]:
    if response.error_code:
        code = _code(response.error_code)
        if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            code = ErrorCode.INVALID_TXN_STATE
        return code, {}
    return ErrorCode.NONE, {
        result.transactional_id: {
            (topic.name, answer.partition_index): _code(answer.partition_error_code)
            for topic in result.topic_results
            for answer in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }


def _code(number: int) -> ErrorCode:
    code = ErrorCode.received(number)
    return _TRANSLATION.get(code, code)
