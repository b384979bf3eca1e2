"""The guards with which one request appends to partitions of a transaction, from the first question to the append.

A log gives a guard for the first batch of a transaction. The broker asks the transaction's coordinator whether the
partition takes part in the transaction, or asks it to add the partition. Then it appends the batch with the guard
(log/pykbroker_log/verification.py). A marker that reaches the log in the meantime takes the guard away, because the
coordinator's answer may then be about the transaction that this marker has ended.

Responsible for taking new guards before each question, even when the verifier asks again by itself, and for noticing
guards that became invalid before the append. Not responsible for how the coordinator is asked
(transaction/verifier.py), nor for appending.

Invariant: the append follows in the same turn of the loop as the check that the guards are still valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from pykbroker.runtime.later import Later, then
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykbroker.replica.table import ReplicaTable

TopicPartition = tuple[str, int]
#: By partition: the guard to append with, or the error if nothing may be appended. A missing partition needs no guard.
GuardsByPartition = dict[TopicPartition, "object | KafkaError"]

#: Each question after the first means that a transaction of this producer has ended since the question before.
ASKED_AT_MOST: Final = 8


class Verifier(Protocol):
    """transaction/verifier.py. `enabled`: transaction.partition.verification.enable, as it is now."""

    @property
    def enabled(self) -> bool: ...

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        *,
        add: bool,
        before_again: Callable[[], object],
    ) -> Later[dict[TopicPartition, ErrorCode]]: ...


class NotVerified(KafkaError):
    """The coordinator's error code for a partition."""


class RequestVerification:
    """Call `ask`, then `must_ask_again` right before the append, and append with `guards`."""

    __slots__ = ("_add", "_batches", "_producer", "_questions", "_replicas", "_transactional_id", "_verifier", "guards")

    def __init__(
        self,
        replicas: ReplicaTable,
        verifier: Verifier,
        transactional_id: str,
        producer: tuple[int, int],
        batches: Sequence[tuple[TopicPartition, int]],
        *,
        add: bool,
    ) -> None:
        """`producer` is its id and epoch. `batches` has the partition and the base sequence of each batch. `add` is
        True if the coordinator adds the partitions to the transaction (transaction.version 2), False if they must have
        been added before."""
        self._replicas = replicas
        self._verifier = verifier
        self._transactional_id = transactional_id
        self._producer = producer
        self._batches = batches
        self._add = add
        self._questions = 0
        self.guards: GuardsByPartition = {}

    def ask(self) -> Later[None]:
        """Take guards, and ask the coordinator about the partitions that have one. `guards` are complete when this is
        done."""
        self._take_guards()
        asked = [place for place, guard in self.guards.items() if not isinstance(guard, KafkaError)]
        if not asked:
            return None
        self._questions += 1
        verdicts = self._verifier.verify(
            self._transactional_id, *self._producer, asked, add=self._add, before_again=self._take_guards
        )
        return then(verdicts, self._judge)

    def must_ask_again(self) -> bool:
        """Return True if a guard has become invalid since `ask`. If the request has already asked too often, it gets a
        retriable error for that partition instead."""
        stale = [place for place, guard in self.guards.items() if self._is_stale(place, guard)]
        if stale and self._questions < ASKED_AT_MOST:
            return True
        for place in stale:
            self.guards[place] = NotVerified(ErrorCode.CONCURRENT_TRANSACTIONS)
        return False

    def _take_guards(self) -> None:
        self.guards = {}
        for place, sequence in self._batches:
            try:
                guard = self._replicas.get(*place).start_verification(
                    *self._producer, sequence, supports_epoch_bump=self._add
                )
            except KafkaError as error:
                self.guards[place] = error
                continue
            if guard is not None:
                self.guards[place] = guard

    def _judge(self, verdicts: dict[TopicPartition, ErrorCode]) -> None:
        for place, code in verdicts.items():
            if code:
                self.guards[place] = NotVerified(code)

    def _is_stale(self, place: TopicPartition, guard: object | KafkaError) -> bool:
        if isinstance(guard, KafkaError):
            return False
        partition = self._replicas.find(*place)
        # If this broker no longer leads the partition, the append itself is refused.
        return partition is not None and not partition.takes_guard(*self._producer, guard)
