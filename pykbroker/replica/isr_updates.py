"""Passes the ISR changes of the partitions that this node leads to the controller, and its answers to the partitions.

Proposes changes after each fetch of a follower, and at intervals of half of replica.lag.time.max.ms. Responsible for
the effect of each answer on the leader, for the log lines and for the counters. Not responsible for the choice of a
change (leader.py), nor for sending to the controller until there is an answer (node_to_controller/isr_changes.py).

An answer is ignored if the partition has another leader epoch by then, or if the metadata has a newer ISR. If an answer
does not show whether the change was made, the change stays in flight until the metadata shows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from pykbroker.replica.containment import contained
from pykbroker.replica.isr import Direction, PendingIsr
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition import RequestPartitionData, ResponsePartitionData

if TYPE_CHECKING:
    from pykbroker.metadata.image import PartitionImage
    from pykbroker.metrics.registry import Metrics
    from pykbroker.replica.leader import PartitionLeader

logger = logging.getLogger(__name__)

#: Called with the controller's answer about one partition, or with OPERATION_NOT_ATTEMPTED if no request was sent.
Answered = Callable[[ResponsePartitionData], None]
#: Asks the controller for a change: (topic id, change of the partition, callback).
AlterPartition = Callable[[bytes, RequestPartitionData, Answered], None]

#: After these errors the controller has certainly not made the change and never will.
_WITHDRAWN = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_MANAGER = "kafka.server:type=ReplicaManager,name="
FAILED_UPDATES = _MANAGER + "FailedIsrUpdatesPerSec"
#: The number of partitions that are checked in one turn of the loop.
PER_TURN = 500


class LedPartition(Protocol):
    """The part of a partition that this module uses. Log lines name the partition by its `str`."""

    index: int

    @property
    def topic_id(self) -> bytes: ...

    @property
    def leader(self) -> PartitionLeader | None: ...

    def advance(self) -> None: ...

    def shrink_isr(self) -> None: ...


class IsrUpdates:
    """Proposes the ISR changes of all partitions that a node leads."""

    def __init__(self, alter_partition: AlterPartition, metrics: Metrics) -> None:
        self._alter_partition = alter_partition
        self._changes = {
            Direction.EXPAND: metrics.counter(_MANAGER + "IsrExpandsPerSec"),
            Direction.SHRINK: metrics.counter(_MANAGER + "IsrShrinksPerSec"),
        }
        self._failures = metrics.counter(FAILED_UPDATES)

    def expand(self, partition: LedPartition, leader: PartitionLeader, replica_id: int, high_watermark: int) -> None:
        """Propose that a follower joins the ISR, if its fetch allows that."""
        change = leader.expansion(replica_id, high_watermark)
        if change is not None:
            self._propose(partition, leader, change)

    def shrink(self, partition: LedPartition, leader: PartitionLeader, end_offset: int, steady_ms: int) -> None:
        """Propose that followers that have not kept up leave the ISR."""
        change = leader.shrinking(end_offset, steady_ms)
        if change is not None:
            leaving = [replica for replica in leader.isr.committed if replica not in change.replicas]
            logger.info(
                "Partition %s: asking to shrink the ISR from %s to %s. The log ends at offset %d. Out of sync: %s",
                partition,
                list(leader.isr.committed),
                list(change.replicas),
                end_offset,
                ", ".join(map(leader.describe, leaving)),
            )
            self._propose(partition, leader, change)

    def hear(self, partition: LedPartition, leader: PartitionLeader, image: PartitionImage) -> None:
        """Take changed metadata of the same leader epoch. If it shows that the change in flight was made, the later
        answer is ignored."""
        change = leader.isr.pending
        leader.change(image)
        if change is not None and leader.isr.pending is None and set(leader.isr.committed) == set(change.replicas):
            self._made(partition, leader, change)

    def _propose(self, partition: LedPartition, leader: PartitionLeader, change: PendingIsr) -> None:
        request = leader.request_for(partition.index, change)
        self._alter_partition(partition.topic_id, request, partial(self._answered, partition, leader, change))

    def _answered(
        self, partition: LedPartition, leader: PartitionLeader, change: PendingIsr, answer: ResponsePartitionData
    ) -> None:
        isr = leader.isr
        if partition.leader is not leader or isr.pending is not change:
            return
        code = answer.error_code
        if code in _WITHDRAWN:
            isr.withdraw()
            was_asked = code != ErrorCode.OPERATION_NOT_ATTEMPTED
            logger.log(
                logging.INFO if was_asked else logging.DEBUG,
                "Partition %s: the ISR stays %s and does not become %s, because %s",
                partition,
                list(isr.committed),
                list(change.replicas),
                "the controller refused the change" if was_asked else "an earlier change is not answered yet",
            )
            partition.advance()
        if (
            code != ErrorCode.NONE
            or answer.leader_epoch != leader.leader_epoch
            or answer.partition_epoch < isr.partition_epoch
        ):
            self._failures.value += 1
            return
        isr.settle(tuple(answer.isr), answer.partition_epoch)
        self._made(partition, leader, change)
        partition.advance()

    def _made(self, partition: LedPartition, leader: PartitionLeader, change: PendingIsr) -> None:
        isr = leader.isr
        self._changes[change.direction].value += 1
        logger.info(
            "Partition %s: the ISR is %s from partition epoch %d on",
            partition,
            list(isr.committed),
            isr.partition_epoch,
        )


class IsrExpiration:
    """Looks for followers that lag, at intervals of half of replica.lag.time.max.ms, some partitions per turn of the
    loop. So the change for a follower is proposed after at most one and a half times replica.lag.time.max.ms."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, partitions: Callable[[], Iterable[LedPartition]], max_lag_ms: int
    ) -> None:
        self._loop = loop
        self._partitions = partitions
        self._pause_seconds = max_lag_ms / 2 / 1000
        self._timer: asyncio.Handle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(self._pause_seconds, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._go_on(iter(list(self._partitions())))

    def _go_on(self, rest: Iterator[LedPartition]) -> None:
        looked = 0
        for partition in islice(rest, PER_TURN):
            looked += 1
            with contained(partition, "its ISR could not be checked"):
                partition.shrink_isr()
        if looked == PER_TURN:
            self._timer = self._loop.call_soon(self._go_on, rest)
        else:
            self.start()
