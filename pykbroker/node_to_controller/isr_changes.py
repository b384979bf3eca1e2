"""Asks the controller to change the ISRs of partitions that this broker leads (KIP-497; Kafka's AlterPartitionManager).

Keeps at most one request in flight, which carries all changes that wait, and at most one change of each partition.
Sends a change again if an answer does not decide it. Not responsible for which change is due, nor for the effect of an
answer on the partition (replica/isr_updates.py).

A change is sent until the controller has decided it. The partition's leader checks whether the answer still applies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pykbroker.metrics.registry import Counter
from pykbroker.node_to_controller.controller_channel import Channel
from pykbroker.node_to_controller.controller_sender import ControllerSender, KnownLeader
from pykbroker.node_to_controller.keyed_queue import KeyedQueue, Second, Superseded
from pykbroker.runtime import Runtime
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)

if TYPE_CHECKING:
    from pykbroker.replica.isr_updates import Answered

logger = logging.getLogger(__name__)

#: As in Apache Kafka: the pauses before a change that was not decided is sent again.
FIRST_PAUSE_MS = 50
LAST_PAUSE_MS = 1_000

#: Topic id and partition.
_Place = tuple[bytes, int]

#: Final answers of the controller about one partition. After any other error the change is sent again.
_FINAL = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class IsrChanges:
    """`broker_epoch` returns this broker's present epoch."""

    def __init__(
        self,
        runtime: Runtime,
        broker_id: int,
        broker_epoch: Callable[[], int],
        channel: Channel,
        leadership: KnownLeader,
        failures: Counter,
    ) -> None:
        """`failures` counts the changes that an answer does not decide."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._failures = failures
        #: the number of changes in the last request
        self._asked = 0
        self._untold: KeyedQueue[_Place, RequestPartitionData, ResponsePartitionData] = KeyedQueue(Second.REFUSE)
        self._sender = ControllerSender(
            runtime,
            channel,
            leadership,
            "Changes of ISRs:",
            self._next_request,
            self._answered,
            first_pause_ms=FIRST_PAUSE_MS,
            last_pause_ms=LAST_PAUSE_MS,
        )

    def submit(self, topic_id: bytes, change: RequestPartitionData, answered: Answered) -> None:
        """Ask for the change. `answered` is called once with the controller's answer. If an earlier change of the
        partition is not answered yet, `answered` is called at once with OPERATION_NOT_ATTEMPTED."""
        place = topic_id, change.partition_index

        def done(answer: ResponsePartitionData | Superseded) -> None:
            assert not isinstance(answer, Superseded)
            answered(answer)

        if self._untold.offer(place, change, done):
            # Other changes that are due in this turn of the loop go into the same request.
            self._sender.wake()
        else:
            refused = ErrorCode.OPERATION_NOT_ATTEMPTED
            answered(ResponsePartitionData(partition_index=change.partition_index, error_code=refused))

    def close(self) -> None:
        self._sender.close()

    def _next_request(self) -> AlterPartitionRequest | None:
        asking = self._untold.take(len(self._untold))
        self._asked = len(asking)
        if not asking:
            return None
        topics: dict[bytes, list[RequestPartitionData]] = {}
        for (topic_id, _), change in asking.items():
            topics.setdefault(topic_id, []).append(change)
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=[
                RequestTopicData(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()
            ],
        )

    def _answered(self, response: AlterPartitionResponse) -> None:
        answers: dict[_Place, ResponsePartitionData] = {}
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code in _FINAL:
                    answers[topic.topic_id, answer.partition_index] = answer
        undecided = self._asked - len(answers)
        if undecided:
            self._failures.value += undecided
            logger.warning(
                "The controller has answered only %d of %d changes of ISRs, and the others are sent again",
                len(answers),
                self._asked,
            )
        self._untold.answered(answers)
        if self._untold:
            self._sender.wake(FIRST_PAUSE_MS if undecided else 0)
