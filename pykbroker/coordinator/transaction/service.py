"""Transactions as request handlers see them: one method per API, which returns an answer or a future of one.

Responsible for finding the partition of `__transaction_state` for a transactional id, for the checks that need no
transactional id, and for new producer ids. It also does the coordinator's own work (markers, aborts of transactions
that are open too long, ids that expire), and joins answers of many partitions. Not responsible for authorization and
topics (api/), nor for anything that a transaction decides (shard.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pykbroker.config.metric_windows import metric_windows
from pykbroker.coordinator.java import partition_for
from pykbroker.coordinator.kept_count import KeptCount
from pykbroker.coordinator.machine import CoordinatorRuntime
from pykbroker.coordinator.repeated_work import RepeatedWork
from pykbroker.coordinator.transaction import records
from pykbroker.coordinator.transaction.markers import MarkerJob
from pykbroker.coordinator.transaction.records import TopicPartition, Transaction
from pykbroker.coordinator.transaction.sender import MarkerSender, SendToBroker, WriteMarker
from pykbroker.coordinator.transaction.shard import (
    Decided,
    Identity,
    NeedsProducerId,
    Producer,
    TransactionShard,
)
from pykbroker.coordinator.transaction.states import TransactionState
from pykbroker.metadata.features import transaction_version
from pykbroker.metadata.topic_names import TRANSACTION_STATE_TOPIC
from pykbroker.runtime.later import CallWhenDone, Later, at_any_time, gather, then
from pykbroker.runtime.line_limit import LineLimit
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import NO_SEQUENCE

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config
    from pykbroker.metadata.delta import MetadataDelta
    from pykbroker.metadata.image import MetadataImage
    from pykbroker.metadata.view import MetadataView
    from pykbroker.node_to_controller.producer_ids import ProducerIds
    from pykbroker.replica.table import ReplicaTable
    from pykbroker.runtime import Runtime
    from pykbroker_log.jumps import Jumps

logger = logging.getLogger(__name__)

#: If the log refuses the record of a completion, it is tried again after this time.
RETRY_SECONDS: Final = 0.1

T = TypeVar("T")


@dataclass(slots=True, frozen=True, kw_only=True)
class TransactionSettings:
    """The configuration of the coordinator as plain numbers, read once. Defaults are Apache Kafka's."""

    partitions: int = 50
    max_timeout_ms: int = 900_000
    abort_interval_ms: int = 10_000
    expiration_ms: int = 604_800_000
    expiration_interval_ms: int = 3_600_000
    request_timeout_ms: int = 30_000

    @classmethod
    def from_config(cls, config: Config) -> TransactionSettings:
        return cls(
            partitions=config.int("transaction.state.log.num.partitions"),
            max_timeout_ms=config.int("transaction.max.timeout.ms"),
            abort_interval_ms=config.int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiration_ms=config.int("transactional.id.expiration.ms"),
            expiration_interval_ms=config.int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            request_timeout_ms=config.int("request.timeout.ms"),
        )


class TransactionService:
    """The transactions of one broker. Handlers use them as `ctx.services.transactions`. `write` writes a marker on this
    node, `send` sends a request to a broker."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        node_id: int,
        replicas: ReplicaTable,
        metadata: MetadataView,
        producer_ids: ProducerIds,
        write: WriteMarker,
        send: SendToBroker,
        *,
        producer_ids_from: int = 0,
    ) -> None:
        """`producer_ids_from`: a transactional id with a lesser producer id gets another one before it gets another
        epoch."""
        self.settings = TransactionSettings.from_config(config)
        self._runtime = runtime
        self._metadata = metadata
        self._partitions = KeptCount(TRANSACTION_STATE_TOPIC, self.settings.partitions)
        self._producer_ids = producer_ids
        self._work = RepeatedWork(runtime.client_clock)
        self._started = False
        self._closed = False
        #: aborts that wait for a producer id, or for their commit
        self._aborting: set[Producer] = set()
        #: limits the lines about a log that refuses records (as on a full disk), because its writes are tried again and
        #: again
        self._lines = LineLimit(runtime.loop.time)
        self.coordinator: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            TRANSACTION_STATE_TOPIC,
            runtime,
            replicas,
            lambda index: TransactionShard(self._transaction_version, producer_ids_from),
            records,
            commit_timeout_ms=config.int("request.timeout.ms"),
            load_bytes=config.int("transaction.state.log.load.buffer.size"),
            base_sequence=NO_SEQUENCE,
            on_effect=self._decided,
            windows=metric_windows(config),
        )
        self.sender = MarkerSender(
            runtime,
            node_id,
            self._leader_of,
            write,
            send,
            is_current=self.coordinator.has_led_since,
            completed=self._completed,
            request_timeout_ms=self.settings.request_timeout_ms,
        )

    def start(self) -> None:
        """Begin to send markers, and to look for transactions that are open too long and for ids that no client uses.
        Call it when the metadata is complete."""
        self._started = True
        self._partitions.start(self._metadata.image)
        self.sender.leaders_changed()
        self._work.every(self.settings.abort_interval_ms, self._abort_overdue)
        self._work.every(self.settings.expiration_interval_ms, self._expire)

    def close(self) -> None:
        """Stop, and answer the requests that wait with NOT_COORDINATOR."""
        self._closed = True
        self._work.close()
        self.sender.close()
        self.coordinator.close()

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """Take a change of the metadata. Partitions whose markers wait for a leader may have one now."""
        self._partitions.look(new)
        if delta.topics.changed or delta.topics.deleted or delta.cluster.brokers_changed:
            self.sender.leaders_changed()

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition whose leader coordinates the transactional id."""
        return partition_for(transactional_id, self._partitions.of(self._metadata.image))

    def _transaction_version(self) -> int:
        return transaction_version(self._metadata.image)

    def _leader_of(self, partition: TopicPartition) -> int | None:
        if not self._started:
            # While the metadata log is replayed, the image is older than the transaction log. A topic that is not in it
            # yet must not count as deleted, or its marker would never be written.
            return -1
        image = self._metadata.image.topics.partition(*partition)
        return None if image is None else image.leader

    # -- producers ----------------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        when_done: CallWhenDone = at_any_time,
    ) -> Later[Identity]:
        """`when_done`, here and in `end`, runs the step between the wait for a producer id from the controller and the
        append."""
        if not transactional_id:
            return Identity(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            return Identity(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        index = self.partition_of(transactional_id)
        return self._with_producer_id(
            lambda new_id: self.coordinator.submit(
                index,
                lambda shard, token, now_ms: shard.init_producer_id(
                    transactional_id, timeout_ms, expected, new_id, token, now_ms
                ),
                Identity,
            ),
            Identity,
            when_done,
        )

    def add_partitions(
        self, producer: Producer, partitions: Collection[TopicPartition], client_version: int
    ) -> Later[ErrorCode]:
        if not producer.transactional_id:
            return ErrorCode.INVALID_REQUEST
        return self.coordinator.submit(
            self.partition_of(producer.transactional_id),
            lambda shard, token, now_ms: shard.add_partitions(producer, partitions, client_version, token, now_ms),
            _itself,
        )

    def verify_partitions(
        self, producer: Producer, partitions: Collection[TopicPartition]
    ) -> Later[dict[TopicPartition, ErrorCode]]:
        def refuse(code: ErrorCode) -> dict[TopicPartition, ErrorCode]:
            return dict.fromkeys(partitions, code)

        if not producer.transactional_id:
            return refuse(ErrorCode.INVALID_REQUEST)
        return self.coordinator.submit(
            self.partition_of(producer.transactional_id),
            lambda shard, token, now_ms: shard.verify_partitions(producer, partitions, token),
            refuse,
        )

    def end(
        self, producer: Producer, commit: bool, client_version: int, when_done: CallWhenDone = at_any_time
    ) -> Later[Identity]:
        if not producer.transactional_id:
            return Identity(ErrorCode.INVALID_REQUEST)
        index = self.partition_of(producer.transactional_id)
        return self._with_producer_id(
            lambda new_id: self.coordinator.submit(
                index,
                lambda shard, token, now_ms: shard.end(producer, commit, client_version, new_id, token, now_ms),
                Identity,
            ),
            Identity,
            when_done,
        )

    def _with_producer_id(
        self,
        attempt: Callable[[int | None], Later[T]],
        refusal: Callable[[ErrorCode], T],
        when_done: CallWhenDone = at_any_time,
    ) -> Later[T]:
        """Run `attempt` without a new producer id, because most operations need none. If it needs one, run it again
        with it."""
        try:
            return attempt(None)
        except NeedsProducerId:
            taken = self._producer_ids.take()
        if isinstance(taken, int):
            return attempt(taken)
        outer: asyncio.Future[T] = self._runtime.loop.create_future()

        def finish(answer: Later[T]) -> None:
            if isinstance(answer, asyncio.Future):
                answer.add_done_callback(lambda done: None if done.cancelled() else finish(done.result()))
            elif not outer.done():
                outer.set_result(answer)

        def arrived(future: asyncio.Future[int]) -> None:
            # This runs even if the client has closed its connection. The id is lost then, and the operation may be
            # repeated.
            if future.cancelled():
                outer.cancel()
                return
            error = future.exception()
            if error is None:
                finish(attempt(future.result()))
            elif isinstance(error, KafkaError):
                finish(refusal(error.code))
            elif not outer.done():
                outer.set_exception(error)

        when_done(taken, arrived)
        return outer

    # -- questions ----------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> Later[tuple[ErrorCode, Transaction | None]]:
        def refuse(code: ErrorCode) -> tuple[ErrorCode, Transaction | None]:
            return code, None

        if not transactional_id:
            return refuse(ErrorCode.INVALID_REQUEST)
        return self.coordinator.submit(
            self.partition_of(transactional_id),
            lambda shard, token, now_ms: shard.describe(transactional_id, token),
            refuse,
        )

    def list_transactions(
        self, states: Collection[TransactionState] | None, producer_ids: Collection[int], duration_ms: int
    ) -> Later[tuple[ErrorCode, list[tuple[str, Transaction]]]]:
        """List the transactions that this node coordinates. The code is an error while a partition is loading, because
        ids would be missing."""

        def refuse(code: ErrorCode) -> tuple[ErrorCode, list[tuple[str, Transaction]]]:
            return (ErrorCode.NONE if code is ErrorCode.NOT_COORDINATOR else code), []

        parts: list[Later[tuple[ErrorCode, list[tuple[str, Transaction]]]]] = [
            self.coordinator.submit(
                index,
                lambda shard, token, now_ms: shard.matching(
                    states, producer_ids, duration_ms, self._jumps, token, now_ms
                ),
                refuse,
            )
            for index in self.coordinator.led()
        ]
        answers: Later[list[tuple[ErrorCode, list[tuple[str, Transaction]]]]] = gather(parts)
        return then(answers, _joined)

    # -- what the coordinator does by itself --------------------------------------------------------------------------

    def _decided(self, index: int, epoch: int, effect: Decided) -> None:
        """Queue the markers of a committed decision. Before this no partition may get its marker (T8)."""
        self.sender.add(MarkerJob(index, epoch, effect))

    def _completed(self, job: MarkerJob) -> None:
        if self._closed or not self.coordinator.has_led_since(job.index, job.coordinator_epoch):
            return
        answer: Later[ErrorCode] = self.coordinator.submit(
            job.index, lambda shard, token, now_ms: shard.complete(job.decided.producer, token, now_ms), _itself
        )
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda done: None if done.cancelled() else self._completion(job, done.result()))
        else:
            self._completion(job, answer)

    def _completion(self, job: MarkerJob, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            return
        # NOT_COORDINATOR is retried too, because a full disk causes it on a broker that still leads the partition. If
        # this node no longer leads it, `_completed` gives up.
        if (left_out := self._lines.take(f"completion {code.name}")) is not None:
            logger.info(
                "The markers of %s are written, but the record that completes the transaction is not. "
                "It is tried again: %s%s",
                job.decided.producer,
                code.name,
                left_out,
            )
        self._runtime.loop.call_later(RETRY_SECONDS, self._completed, job)

    @property
    def _jumps(self) -> Jumps:
        return self._runtime.client_clock.jumps

    def _abort_overdue(self) -> None:
        for index in self.coordinator.led():
            found: Later[list[Producer]] = self.coordinator.submit(
                index, lambda shard, token, now_ms: shard.overdue(self._jumps, token, now_ms), lambda code: []
            )
            _soon(found, partial(self._abort, index))

    def _abort(self, index: int, overdue: list[Producer]) -> None:
        for producer in overdue:
            if producer in self._aborting:
                continue
            self._aborting.add(producer)
            answer = self._with_producer_id(partial(self._submit_abort, index, producer), _itself)
            _soon(answer, partial(self._aborted, producer))

    def _submit_abort(self, index: int, producer: Producer, new_id: int | None) -> Later[object]:
        return self.coordinator.submit(
            index, lambda shard, token, now_ms: shard.abort_overdue(producer, new_id, token, now_ms), _itself
        )

    def _aborted(self, producer: Producer, answer: object) -> None:
        self._aborting.discard(producer)
        if answer is True:
            logger.info("Transaction of %s was open for longer than its timeout and is aborted", producer)
        elif isinstance(answer, ErrorCode) and (left_out := self._lines.take(f"abort {answer.name}")) is not None:
            logger.warning(
                "Transaction of %s is open for longer than its timeout and cannot be aborted yet: %s%s",
                producer,
                answer.name,
                left_out,
            )

    def _expire(self) -> None:
        for index in self.coordinator.led():
            expired: Later[int | ErrorCode] = self.coordinator.submit(
                index,
                lambda shard, token, now_ms: shard.expire(self.settings.expiration_ms, self._jumps, token, now_ms),
                _itself,
            )
            _soon(expired, partial(self._expired, index))

    @staticmethod
    def _expired(index: int, answer: int | ErrorCode) -> None:
        if isinstance(answer, ErrorCode):
            logger.info("%s-%d: transactional ids cannot expire now: %s", TRANSACTION_STATE_TOPIC, index, answer.name)
        elif answer:
            logger.info("%s-%d: %d transactional ids have expired", TRANSACTION_STATE_TOPIC, index, answer)


def known_to(client_version: int, fenced_from: int, code: ErrorCode) -> ErrorCode:
    """Return the error code for a client. PRODUCER_FENCED is newer than these APIs (KIP-588), so older clients get
    INVALID_PRODUCER_EPOCH."""
    if code is ErrorCode.PRODUCER_FENCED and client_version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _itself(code: ErrorCode) -> Any:
    return code


def _soon(value: Later[T], callback: Callable[[T], None]) -> None:
    """Call back with the answer, now or when it comes."""
    if isinstance(value, asyncio.Future):
        value.add_done_callback(lambda done: None if done.cancelled() else callback(done.result()))
    else:
        callback(value)


def _joined(
    answers: Iterable[tuple[ErrorCode, list[tuple[str, Transaction]]]],
) -> tuple[ErrorCode, list[tuple[str, Transaction]]]:
    found: list[tuple[str, Transaction]] = []
    for code, part in answers:
        if code:
            return code, []
        found += part
    return ErrorCode.NONE, found
