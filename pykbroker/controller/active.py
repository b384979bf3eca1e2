"""The only writer of the metadata log: runs operations one after another while this node leads the quorum.

An operation is a function `(state, now_ms) -> Result`. The order is: decide, append to the quorum as one batch, replay
at once so that the next operation sees it, answer when it is committed. An operation without records is a read and is
answered when everything before it is committed. When leadership is lost, all uncommitted changes are dropped from the
state and their callers get NOT_CONTROLLER.

On nodes that do not lead, it replays the log, so that it can take over at once. It is also responsible for its timers:
silent brokers, idle records, leader balancing. Not responsible for decisions (the other modules of this folder make
them).

`now_ms` here is the loop's clock, which does not jump. It measures sessions and is in no record.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pykbroker.config.typed_config import Config
from pykbroker.controller.brokers import elect_held_leaders, fence_gone_broker, fence_stale_broker, stale_broker
from pykbroker.controller.elections import balance_leaders, elect_unclean_leaders
from pykbroker.controller.eligible import cluster_min_isr
from pykbroker.controller.heartbeats import BrokerSession
from pykbroker.controller.offset_control import OffsetControl
from pykbroker.controller.restoration import restoration_records
from pykbroker.controller.result import Result
from pykbroker.controller.state import Checkpoint, ControllerState
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.features import ELR_VERSION, METADATA_VERSION, METADATA_VERSION_DEFAULT
from pykbroker.metadata.image import EMPTY_IMAGE
from pykbroker.metadata.records import decode_record, encode_records
from pykbroker.metadata.restored import Restored
from pykbroker_log.log_config import StorageError
from pykbroker_raft.raft_node import NotLeader
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)

if TYPE_CHECKING:
    from pykbroker.plugins.topic_policies import Policies
from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: The first metadata.version with KIP-868, and the first with NoOpRecord.
TRANSACTIONS_FROM = 14
NO_OP_FROM = 5

#: As in Apache Kafka. An operation of a user never has more records (RecordList).
MAX_RECORDS_PER_BATCH = 10_000


class Quorum(Protocol):
    """The part of the QuorumDriver that the controller uses."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def kraft_version(self) -> int: ...

    @property
    def is_short_of_room(self) -> bool: ...

    def append(self, records: list[bytes]) -> int: ...

    def raise_kraft_version(self, version: int, *, validate_only: bool) -> None: ...


@dataclass(slots=True)
class _Pending:
    """An operation that waits for `offset` to be committed."""

    offset: int
    future: asyncio.Future[Any]
    response: Any


class ActiveController:
    """A MetadataListener of the quorum, active while this node leads."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        quorum: Quorum,
        config: Config,
        node_id: int,
        cluster_id: str,
        bootstrap: Sequence[TopLevel] | None = None,
        own_incarnation: bytes | None = None,
        policies: Policies | None = None,
        restored: Restored | None = None,
    ) -> None:
        """`bootstrap` has the first records of a new cluster. Without it the first leader writes the metadata.version
        of new clusters, as Apache Kafka does for a directory without such records. `own_incarnation` is the incarnation
        id of the broker half in this process, if there is one. `restored`: the limits of a cluster that was put back to
        an earlier state."""
        self.state = ControllerState(node_id, cluster_id, config, runtime.random, policies, restored)
        self.is_active = False
        self.epoch = -1
        self._runtime = runtime
        self._quorum = quorum
        self._config = config
        self._bootstrap = (
            [FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_DEFAULT)]
            if bootstrap is None
            else list(bootstrap)
        )
        self._own_incarnation = own_incarnation
        self._node_id = node_id
        self._offsets = OffsetControl(self.state.checkpoint())
        self._pending: deque[_Pending] = deque()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._last_append_ms = 0
        self._stopped = False
        # The error for which a batch of this leader could not be replayed. The batch is in the log but not in the
        # state.
        self._fault: Exception | None = None

    # Operations.

    @property
    def next_offset(self) -> int:
        """The offset at which the next batch begins, which is the epoch of a broker that registers now."""
        return self._quorum.log_end_offset

    @property
    def committed_offset(self) -> int:
        """The offset of the last committed record, -1 before there is one."""
        return self._offsets.committed_offset

    @property
    def kraft_version(self) -> int:
        """The level that the quorum itself finalises, not a metadata record."""
        return self._quorum.kraft_version

    def raise_kraft_version(self, version: int, *, validate_only: bool) -> None:
        """Raise the level as part of an operation. The quorum's records come before those of the operation."""
        try:
            self._quorum.raise_kraft_version(version, validate_only=validate_only)
        except NotLeader:
            raise KafkaError(ErrorCode.NOT_CONTROLLER) from None

    def submit(
        self, name: str, operation: Callable[[ControllerState, int], Result[T]], *, takes_room: bool = False
    ) -> asyncio.Future[T]:
        """Run an operation now. Its response comes once it is committed, or the future fails with KafkaError.

        `takes_room`: True if brokers will need room on their disks for the operation. It is then refused while this
        node's disk is full.
        """
        future: asyncio.Future[T] = self._runtime.loop.create_future()
        if not self.is_active or self._fault is not None:
            future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))
            return future
        if takes_room and self._quorum.is_short_of_room:
            future.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk of the controller is full."))
            return future
        try:
            result = operation(self.state, self._now_ms())
            # The state is consistent after each batch, even if an operation has several (a broker with very many
            # partitions stops).
            for first in range(0, len(result.records), MAX_RECORDS_PER_BATCH):
                self._append(result.records[first : first + MAX_RECORDS_PER_BATCH])
            result.appended()
        except KafkaError as error:
            future.set_exception(error)
            return future
        except Exception:
            logger.exception("[Controller id=%d] %s failed", self._node_id, name)
            future.set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return future
        if self._offsets.is_committed:
            future.set_result(result.response)
        else:
            self._pending.append(_Pending(self._offsets.replayed_offset, future, result.response))
        self._arm_session_timer()
        return future

    def read(self, name: str, question: Callable[[ControllerState], T]) -> asyncio.Future[T]:
        """Return an answer from the state, once everything that it shows is committed."""
        return self.submit(name, lambda state, _: Result(question(state)))

    def _append(self, records: list[TopLevel]) -> None:
        state = self.state
        # A change of metadata.version is written in the version before the change.
        version = state.metadata_version or self._bootstrap_version()
        base_offset, epoch = self.next_offset, self.epoch
        try:
            last_offset = self._quorum.append(encode_records(records, version))
        except NotLeader:
            raise KafkaError(ErrorCode.NOT_CONTROLLER) from None
        except StorageError as error:
            # The disk is full and nothing was appended. The quorum has logged this, and logs again when there is room.
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
        if last_offset != base_offset + len(records) - 1:
            raise AssertionError(f"batch of {len(records)} records expected at {base_offset} ended at {last_offset}")
        if not self.is_active or self.epoch != epoch:
            # In the append the quorum noticed that its leadership is over (for example, this node was paused).
            # `_renounce` has reset the state, and these records may never be committed.
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        try:
            state.replay(records, base_offset, epoch)
        except Exception as error:
            # No more decisions are based on this state. When the batch is committed the node ends (`handle_commit`).
            self._fault = error
            raise
        self._offsets.appended(last_offset, state.checkpoint())
        self._last_append_ms = self._now_ms()

    def _run(self, name: str, operation: Callable[[ControllerState, int], Result[Any]]) -> asyncio.Future[Any]:
        """Run an operation that the controller itself starts. No client waits for its answer."""
        future = self.submit(name, operation)
        future.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return future

    # MetadataListener.

    def handle_commit(self, base_offset: int, epoch: int, timestamp_ms: int, values: list[bytes]) -> None:
        last_offset = base_offset + len(values) - 1
        offsets = self._offsets
        if last_offset > offsets.replayed_offset:
            if self._fault is not None:
                raise RuntimeError(f"the batch at {base_offset} could not be replayed") from self._fault
            self.state.replay([decode_record(value) for value in values], base_offset, epoch)
            offsets.appended(last_offset, self.state.checkpoint())
        offsets.committed(last_offset)
        while self._pending and self._pending[0].offset <= last_offset:
            pending = self._pending.popleft()
            if not pending.future.done():
                pending.future.set_result(pending.response)

    def handle_snapshot(self, offset: int, epoch: int, values: Iterator[bytes]) -> None:
        delta = MetadataDelta(EMPTY_IMAGE)
        for value in values:
            delta.replay(decode_record(value))
        checkpoint = Checkpoint(delta.apply(offset, epoch))
        self.state.registration_offsets.clear()
        self.state.reset(checkpoint)
        self._offsets.begin(offset, checkpoint)

    def handle_leader(self, leader_id: int | None, epoch: int) -> None:
        if self._stopped:
            return
        if leader_id == self._node_id:
            self._claim(epoch)
        elif self.is_active:
            self._renounce()
        self.epoch = epoch

    def _claim(self, epoch: int) -> None:
        self.epoch = epoch
        if self.is_active:
            return
        self.is_active = True
        logger.info(
            "[Controller id=%d] Becoming the active controller at epoch %d, next write offset %d.",
            self._node_id,
            epoch,
            self.next_offset,
        )
        self.state.restart_sessions(self._now_ms(), self._own_incarnation)
        self._last_append_ms = self._now_ms()
        records = self._activation_records()
        if records:
            self._run("activation", lambda state, now_ms: Result(None, records))
        self._start_timers()

    def _renounce(self) -> None:
        logger.info("[Controller id=%d] No longer the active controller.", self._node_id)
        self.is_active = False
        self._stop_timers()
        pending, self._pending = self._pending, deque()
        # The next leader may overwrite all uncommitted records. A metadata transaction whose committed part has no end
        # stays open. The next leader aborts it, and that may be this node.
        self.state.reset(self._offsets.revert())
        self._fault = None
        self.state.stop_sessions()
        for waiting in pending:
            if not waiting.future.done():
                waiting.future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))

    def stop(self) -> None:
        """Stop. Operations that wait fail with NOT_CONTROLLER, and no more records are written."""
        self._stopped = True
        if self.is_active:
            self._renounce()

    # Activation.

    def _bootstrap_version(self) -> int:
        return _level_of(METADATA_VERSION, self._bootstrap)

    def _activation_records(self) -> list[TopLevel]:
        state = self.state
        records: list[TopLevel] = []
        half_done = state.transaction_offset >= 0
        if half_done:
            records.append(AbortTransactionRecord(reason="Controller failover"))
        restoration = restoration_records(state)
        if state.metadata_version:
            return records + restoration
        bootstrap = self._bootstrap
        if _level_of(ELR_VERSION, bootstrap):
            # All brokers have the same minimum from the first record on (eligible.py).
            bootstrap = [*bootstrap, cluster_min_isr(state)]
        if self._bootstrap_version() < TRANSACTIONS_FROM:
            return [*records, *bootstrap, *restoration]
        begin, end = BeginTransactionRecord(name="Bootstrap records"), EndTransactionRecord()
        return [*records, begin, *bootstrap, end, *restoration]

    # Timers.

    def _now_ms(self) -> int:
        return int(self._runtime.loop.time() * 1000)

    def _start_timers(self) -> None:
        config = self._config
        idle_ms = config.int("metadata.max.idle.interval.ms")
        if idle_ms > 0:
            self._after("idle", idle_ms, self._write_idle_record)
        if config.bool("auto.leader.rebalance.enable"):
            interval_ms = config.int("leader.imbalance.check.interval.seconds") * 1000
            self._every("balance leaders", interval_ms, balance_leaders)
        interval_ms = config.int("unclean.leader.election.interval.ms")
        self._every("elect unclean leaders", interval_ms, elect_unclean_leaders)
        self._arm_session_timer()

    def _stop_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _after(self, name: str, delay_ms: int, callback: Callable[[], None]) -> None:
        previous = self._timers.pop(name, None)
        if previous is not None:
            previous.cancel()
        self._timers[name] = self._runtime.loop.call_later(delay_ms / 1000, callback)

    def _every(self, name: str, interval_ms: int, operation: Callable[[ControllerState], Result[bool]]) -> None:
        def run() -> None:
            def again(done: asyncio.Future[Any]) -> None:
                if self.is_active:
                    more = not done.cancelled() and done.exception() is None and done.result()
                    self._after(name, 10 if more else interval_ms, run)

            self._run(name, lambda state, _: operation(state)).add_done_callback(again)

        self._after(name, interval_ms, run)

    def _write_idle_record(self) -> None:
        """Write a record if the log was idle. Followers and observers measure their lag by it, so the log is never idle
        for longer than the interval."""
        idle_ms = self._config.int("metadata.max.idle.interval.ms")
        due_ms = self._last_append_ms + idle_ms - self._now_ms()
        if due_ms <= 0:
            # When the disk is almost full, the last room is for changes.
            if self.state.metadata_version >= NO_OP_FROM and not self._quorum.is_short_of_room:
                self._run("no-op", lambda state, now_ms: Result(None, [NoOpRecord()]))
            due_ms = idle_ms
        if self.is_active:
            self._after("idle", due_ms, self._write_idle_record)

    def _arm_session_timer(self) -> None:
        """Check the sessions when the next session would be over. If a heartbeat comes before that, the check finds
        none."""
        if "sessions" in self._timers or not self.is_active:
            return
        deadlines = (self.state.sessions.next_deadline_ms(), self.state.held.next_deadline_ms())
        deadline_ms = min((deadline for deadline in deadlines if deadline is not None), default=None)
        if deadline_ms is not None:
            self._after("sessions", max(1, deadline_ms - self._now_ms()), self._check_sessions)

    def _check_sessions(self) -> None:
        self._timers.pop("sessions", None)
        state = self.state
        while (broker := stale_broker(state, self._now_ms())) is not None:
            logger.info(
                "[Controller id=%d] Fencing broker %d at epoch %d because its session has timed out.",
                self._node_id,
                broker.id,
                broker.epoch,
            )
            self._run("fence", fence_stale_broker)
            if stale_broker(state, self._now_ms()) is broker:
                # The broker could not be fenced because the log refused, so the next check tries again.
                break
        for broker_id in state.held.over(self._now_ms()):
            self._run("held elections", partial(_elect_held, broker_id))
        self._arm_session_timer()

    def fence_early(self, broker_id: int, broker_epoch: int, refused: Sequence[tuple[str, int]]) -> None:
        """Fence an incarnation of a broker whose process is gone, and end its session, so that the next incarnation may
        register at once. `refused` has the endpoints that refuse connections. It is empty if the broker has ended its
        connection and is not back."""
        fenced = self._run(
            "early fence", lambda state, now_ms: fence_gone_broker(state, broker_id, broker_epoch, now_ms)
        )
        if fenced.done() and fenced.exception() is not None:
            return
        logger.info(
            "[Controller id=%d] Fencing broker %d at epoch %d before its session has timed out: it has ended its "
            "connection, and %s.",
            self._node_id,
            broker_id,
            broker_epoch,
            "refuses new ones at " + ", ".join(f"{host}:{port}" for host, port in refused)
            if refused
            else "is not back",
        )
        self.state.sessions.end(BrokerSession(broker_id, broker_epoch))


def _elect_held(broker_id: int, state: ControllerState, now_ms: int) -> Result[None]:
    return elect_held_leaders(state, broker_id)


def _level_of(feature: str, records: Sequence[TopLevel]) -> int:
    """Return the level of a feature after these records, 0 if none of them names it."""
    level = 0
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == feature:
            level = record.feature_level
    return level
