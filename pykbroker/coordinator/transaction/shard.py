"""One partition of `__transaction_state`: its transactional ids, and the decisions of each operation about them.

Pure: an operation takes its inputs as arguments and returns a `Result`; refusals are `KafkaError`, answers `ErrorCode`,
`Identity` or values. `replay` is the only mutator. Not responsible for sending markers (markers.py), for noticing
timeouts (service.py), nor for authorization (api/).

Pending: Apache Kafka answers CONCURRENT_TRANSACTIONS while a transition is being written and while markers are on their
way. Here a transition counts as soon as it is in the local log, because all later transitions are written and answered
after it. So only the second case is left: the two PREPARED states. No soft state has to be undone when an append fails
or a leader dies.

Invariants:
* a decision (PrepareCommit, PrepareAbort) becomes the effect `Decided` when it is committed, and again when a load
  finds it. So no marker is sent before the decision is in the log (T8);
* the producer epoch of an id never falls, except to 0 with a new producer id;
* each prepared id is completed by `complete`, and by nothing else.

There are two versions. `client_version` is the client's transaction.version (from 2 on the epoch rises with each end,
KIP-890). The transaction.version of the cluster chooses the record's format and how the coordinator itself aborts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple

from pykbroker.coordinator.result import CoordinatorRecord, Result, TimerKey, Token
from pykbroker.coordinator.transaction.records import (
    NO_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER_ID,
    TopicPartition,
    Transaction,
    remembered,
    tombstone,
    transaction_of,
    transaction_record,
)
from pykbroker.coordinator.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    IDLE,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TransactionState,
    check_transition,
)
from pykbroker_log.jumps import Jumps
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.stored.transaction.transaction_log import TransactionLogKey

MAX_EPOCH: Final = 2**15 - 1
#: A client never gets the greatest epoch, because the coordinator needs it to fence the client.
EXHAUSTED_EPOCH: Final = MAX_EPOCH - 1
#: A transaction with this timeout is never aborted for its age, because an external coordinator decides it (KIP-939).
NO_TIMEOUT_MS: Final = 2**31 - 1
EPOCH_BUMP_FROM: Final = 2


class Producer(NamedTuple):
    """The producer of a transaction, as its requests name it."""

    transactional_id: str
    producer_id: int
    epoch: int


class Identity(NamedTuple):
    """An answer to InitProducerId and EndTxn."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class Decided(NamedTuple):
    """The effect of a decision: these partitions must get their markers."""

    producer: Producer
    commit: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]


class NeedsProducerId(Exception):  # a request to the caller and not an error
    """The operation can be decided only with a new producer id. Call it again with one. Nothing was done."""


def is_exhausted(epoch: int) -> bool:
    return epoch >= EXHAUSTED_EPOCH


class TransactionShard:
    """The ids of one partition (see the module's docstring). `transaction_version` returns the cluster's version, which
    may rise at any time. An id with a producer id less than `producer_ids_from` gets another one with its next
    epoch."""

    def __init__(self, transaction_version: Callable[[], int], producer_ids_from: int = 0) -> None:
        self._transaction_version = transaction_version
        self._producer_ids_from = producer_ids_from
        self.transactions: dict[str, Transaction] = {}
        #: ids in state Ongoing; the id that has not changed for longest is first
        self.ongoing: dict[str, None] = {}
        #: the value of the newest decision, and its Transaction. Unless the append is refused, `replay` gets this value
        #: next. Then it need not decode the value, and it keeps `last_epoch`, which no value holds.
        self._decision: tuple[bytes, Transaction] | None = None

    # -- replicated state ---------------------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord, at: int, producer_id: int = -1) -> None:
        assert isinstance(record.key, TransactionLogKey)
        transactional_id = record.key.transactional_id
        self.ongoing.pop(transactional_id, None)
        decision, self._decision = self._decision, None
        value = record.value
        if value is None:
            self.transactions.pop(transactional_id, None)
            return
        assert isinstance(value, bytes)
        transaction = decision[1] if decision is not None and decision[0] is value else transaction_of(value)
        self.transactions[transactional_id] = transaction
        if transaction.state is ONGOING:
            self.ongoing[transactional_id] = None

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Do nothing, because no producer writes to `__transaction_state` within a transaction."""

    def loaded(self, now_ms: int) -> Iterator[Result]:
        """Yield the decisions that are not complete, so that their markers are sent."""
        for transactional_id, transaction in self.transactions.items():
            if transaction.state in PREPARED:
                result = Result()
                result.effects.append(_decided(transactional_id, transaction))
                yield result

    def on_timer(self, key: TimerKey, event: Any, now_ms: int) -> Result:
        raise AssertionError(f"transactions have no timers of their own: {key}")

    def _write(self, result: Result, transactional_id: str, before: TransactionState, after: Transaction) -> None:
        check_transition(before, after.state)
        assert after.producer_id >= 0
        assert after.epoch >= 0
        record = transaction_record(transactional_id, after, self._transaction_version())
        assert isinstance(record.value, bytes)
        self._decision = record.value, remembered(after, record.value_version)
        result.records.append(record)

    def _check_version(self, client_version: int) -> None:
        """Raise UNSUPPORTED_VERSION if the cluster's records (version 0) cannot hold the state of a client of version
        2."""
        if client_version >= EPOCH_BUMP_FROM and self._transaction_version() == 0:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the client needs transaction.version {EPOCH_BUMP_FROM}, and that of the cluster is 0",
            )

    def _find(self, producer: Producer) -> Transaction:
        found = self.transactions.get(producer.transactional_id)
        if found is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{producer.transactional_id!r} has no producer id")
        return found

    # -- InitProducerId -----------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        new_producer_id: int | None,
        token: Token,
        now_ms: int,
    ) -> Result:
        """`expected` is the producer id and epoch with which a client continues (KIP-360). Raises NeedsProducerId."""
        result = Result()
        present = self.transactions.get(transactional_id)
        if present is None:
            if new_producer_id is None:
                raise NeedsProducerId
            present = _unborn(new_producer_id, timeout_ms, now_ms)
        elif present.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif expected is not None and not _may_go_on(present, *expected):
            raise KafkaError(
                ErrorCode.PRODUCER_FENCED, f"another producer uses the transactional id {transactional_id!r} now"
            )
        if present.state is ONGOING:
            # No client gets the epoch that fences the old producer. This client asks again and gets the next epoch.
            self._fence(result, transactional_id, present, new_producer_id, now_ms)
            result.reply(token, Identity(ErrorCode.CONCURRENT_TRANSACTIONS))
            return result
        after = self._initialised(transactional_id, present, timeout_ms, expected, new_producer_id, now_ms)
        self._write(result, transactional_id, present.state, after)
        result.reply(token, Identity(ErrorCode.NONE, after.producer_id, after.epoch))
        return result

    def _has_no_epoch_left(self, present: Transaction) -> bool:
        """Return True if the next epoch must belong to another producer id: all epochs are used up, or some of them
        were handed out before the cluster was put back to an earlier state."""
        return is_exhausted(present.epoch) or present.producer_id < self._producer_ids_from

    def _initialised(
        self,
        transactional_id: str,
        present: Transaction,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        new_producer_id: int | None,
        now_ms: int,
    ) -> Transaction:
        after = present._replace(
            previous_producer_id=present.producer_id,
            timeout_ms=timeout_ms,
            state=EMPTY,
            partitions=NO_PARTITIONS,
            start_ms=-1,
            update_ms=now_ms,
        )
        expected_epoch = None if expected is None else expected[1]
        if self._has_no_epoch_left(present):
            if expected_epoch is None or expected_epoch == present.epoch:
                if new_producer_id is None:
                    raise NeedsProducerId
                last_epoch = NO_EPOCH if expected_epoch is None else present.epoch
                return after._replace(producer_id=new_producer_id, epoch=0, last_epoch=last_epoch)
            if expected_epoch != present.last_epoch:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if expected_epoch is None:
            return after._replace(epoch=present.epoch + 1, last_epoch=NO_EPOCH)
        if present.epoch in (NO_EPOCH, expected_epoch):
            return after._replace(epoch=present.epoch + 1, last_epoch=present.epoch)
        if expected_epoch == present.last_epoch:
            # The client did not get the last answer. No other client has asked since, or there would be no last epoch.
            return after
        raise KafkaError(
            ErrorCode.PRODUCER_FENCED,
            f"{transactional_id!r} has epoch {present.epoch}, not {expected_epoch}",
        )

    # -- what belongs to a transaction --------------------------------------------------------------------------------

    def add_partitions(
        self,
        producer: Producer,
        partitions: Collection[TopicPartition],
        client_version: int,
        token: Token,
        now_ms: int,
    ) -> Result:
        """Add the partitions; the first partition begins the transaction. The answer is NONE. Raises KafkaError."""
        present = self._find(producer)
        if present.state in PREPARED:
            # The identity is checked later, because completion may be about to change it.
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        _check_identity(present, producer)
        result = Result()
        result.reply(token, ErrorCode.NONE)
        if present.state is ONGOING and present.partitions.issuperset(partitions):
            return result
        self._check_version(client_version)
        after = present._replace(
            previous_producer_id=present.producer_id,
            state=ONGOING,
            partitions=present.partitions.union(partitions),
            start_ms=present.start_ms if present.state is ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )
        self._write(result, producer.transactional_id, present.state, after)
        return result

    def verify_partitions(self, producer: Producer, partitions: Collection[TopicPartition], token: Token) -> Result:
        """The answer has an error code for each partition, which is NONE if the partition belongs to the open
        transaction."""
        present = self._find(producer)
        _check_identity(present, producer)
        if present.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        result = Result()
        result.reply(
            token,
            {
                partition: ErrorCode.NONE if partition in present.partitions else ErrorCode.TRANSACTION_ABORTABLE
                for partition in partitions
            },
        )
        return result

    # -- the end of a transaction -------------------------------------------------------------------------------------

    def end(
        self,
        producer: Producer,
        commit: bool,
        client_version: int,
        new_producer_id: int | None,
        token: Token,
        now_ms: int,
    ) -> Result:
        """EndTxn. The answer is an Identity. Raises KafkaError and NeedsProducerId."""
        present = self._find(producer)
        result = Result()
        if client_version < EPOCH_BUMP_FROM:
            if self._may_end(present, producer, commit):
                self._prepare(result, producer.transactional_id, present, commit, 0, None, now_ms)
            result.reply(token, Identity(ErrorCode.NONE))
        elif self._may_end_and_rise(present, producer, commit):
            self._check_version(client_version)
            after = self._prepare(
                result, producer.transactional_id, present, commit, client_version, new_producer_id, now_ms
            )
            result.reply(token, Identity(ErrorCode.NONE, *_identity_when_complete(after)))
        else:
            result.reply(token, Identity(ErrorCode.NONE, present.producer_id, present.epoch))
        return result

    @staticmethod
    def _may_end(present: Transaction, producer: Producer, commit: bool) -> bool:
        """Check an end with transaction.version 0 or 1. Return False if the transaction has already ended in this
        way."""
        _check_identity(present, producer)
        if present.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if present.state is ONGOING:
            return True
        if present.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT):
            return False
        raise _invalid_end(present, producer, commit)

    @staticmethod
    def _may_end_and_rise(present: Transaction, producer: Producer, commit: bool) -> bool:
        """Check an end with transaction.version 2. Return False if the client repeats it because the answer was lost.

        A repetition has the epoch before the present epoch. The present epoch means the next transaction.
        """
        if present.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        raised = present.epoch == producer.epoch + 1
        rolled_over = (
            present.previous_producer_id == producer.producer_id
            and producer.epoch == EXHAUSTED_EPOCH
            and present.epoch == 0
        )
        repeated = raised or rolled_over
        if present.producer_id != producer.producer_id and not rolled_over:
            raise _another_producer_id(present, producer)
        complete = present.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
        if producer.epoch != present.epoch and not (complete and repeated):
            raise _fenced(present, producer)
        if present.state is ONGOING:
            return True
        if repeated:
            if present.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT):
                return False
        elif not commit:
            # No transaction was begun, but the client cannot know that, so it may abort.
            return True
        raise _invalid_end(present, producer, commit)

    def abort_overdue(self, overdue: Producer, new_producer_id: int | None, token: Token, now_ms: int) -> Result:
        """The answer is True if the transaction was aborted, and False if it has changed since it was found overdue.
        Raises NeedsProducerId."""
        result = Result()
        present = self.transactions.get(overdue.transactional_id)
        same = (
            present is not None
            and present.state is ONGOING
            and (present.producer_id, present.epoch) == (overdue.producer_id, overdue.epoch)
        )
        if same:
            assert present is not None
            self._fence(result, overdue.transactional_id, present, new_producer_id, now_ms)
        result.reply(token, same)
        return result

    def _fence(
        self,
        result: Result,
        transactional_id: str,
        present: Transaction,
        new_producer_id: int | None,
        now_ms: int,
    ) -> None:
        """Abort the open transaction with an epoch that its producer does not have."""
        version = self._transaction_version()
        if version >= EPOCH_BUMP_FROM:
            self._prepare(result, transactional_id, present, False, version, new_producer_id, now_ms)
        else:
            fenced = present._replace(epoch=min(present.epoch + 1, MAX_EPOCH), last_epoch=NO_EPOCH)
            self._prepare(result, transactional_id, fenced, False, 0, None, now_ms)

    def _prepare(
        self,
        result: Result,
        transactional_id: str,
        present: Transaction,
        commit: bool,
        client_version: int,
        new_producer_id: int | None,
        now_ms: int,
    ) -> Transaction:
        epoch, last_epoch, next_producer_id = present.epoch, present.last_epoch, NO_PRODUCER_ID
        if client_version >= EPOCH_BUMP_FROM:
            if self._has_no_epoch_left(present):
                if new_producer_id is None:
                    raise NeedsProducerId
                next_producer_id = new_producer_id
            epoch, last_epoch = min(epoch + 1, MAX_EPOCH), epoch
        after = present._replace(
            previous_producer_id=present.producer_id,
            next_producer_id=next_producer_id,
            epoch=epoch,
            last_epoch=last_epoch,
            state=PREPARE_COMMIT if commit else PREPARE_ABORT,
            start_ms=present.start_ms if present.state is ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )
        self._write(result, transactional_id, present.state, after)
        result.effects.append(_decided(transactional_id, after))
        return after

    def complete(self, decided: Producer, token: Token, now_ms: int) -> Result:
        """Complete a transaction whose markers are all written. The answer is NONE, even if it is complete already."""
        result = Result()
        result.reply(token, ErrorCode.NONE)
        present = self.transactions.get(decided.transactional_id)
        if (
            present is None
            or present.state not in PREPARED
            or (present.producer_id, present.epoch) != (decided.producer_id, decided.epoch)
        ):
            return result
        producer_id, epoch = _identity_when_complete(present)
        after = present._replace(
            producer_id=producer_id,
            previous_producer_id=present.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            epoch=epoch,
            state=COMPLETE_COMMIT if present.state is PREPARE_COMMIT else COMPLETE_ABORT,
            partitions=NO_PARTITIONS,
            update_ms=now_ms,
        )
        self._write(result, decided.transactional_id, present.state, after)
        return result

    # -- time ---------------------------------------------------------------------------------------------------------

    def overdue(self, jumps: Jumps, token: Token, now_ms: int) -> Result:
        """The answer has the open transactions that have exceeded their timeout."""
        found = []
        for transactional_id in self.ongoing:
            transaction = self.transactions[transactional_id]
            age_ms = jumps.age_ms(now_ms, transaction.start_ms)
            if transaction.timeout_ms != NO_TIMEOUT_MS and age_ms > transaction.timeout_ms:
                found.append(Producer(transactional_id, transaction.producer_id, transaction.epoch))
        result = Result()
        result.reply(token, found)
        return result

    def expire(self, expiration_ms: int, jumps: Jumps, token: Token, now_ms: int) -> Result:
        """Remove ids that no client has used for `expiration_ms`. The answer is their number."""
        result = Result()
        result.atomic = False
        result.records += [
            tombstone(transactional_id)
            for transactional_id, transaction in self.transactions.items()
            if transaction.state in IDLE and jumps.age_ms(now_ms, transaction.update_ms) >= expiration_ms
        ]
        result.reply(token, len(result.records))
        return result

    # -- questions ----------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str, token: Token) -> Result:
        """The answer has an error code and the Transaction."""
        found = self.transactions.get(transactional_id)
        result = Result()
        result.reply(token, (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if found is None else ErrorCode.NONE, found))
        return result

    def matching(
        self,
        states: Collection[TransactionState] | None,
        producer_ids: Collection[int],
        duration_ms: int,
        jumps: Jumps,
        token: Token,
        now_ms: int,
    ) -> Result:
        """The answer has NONE, and (id, Transaction) for each transaction that passes all filters. None, an empty
        filter and -1 let all pass."""
        result = Result()
        found = [
            (transactional_id, transaction)
            for transactional_id, transaction in self.transactions.items()
            if (states is None or transaction.state in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (duration_ms < 0 or jumps.age_ms(now_ms, transaction.start_ms) > duration_ms)
        ]
        result.reply(token, (ErrorCode.NONE, found))
        return result


def _unborn(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    return Transaction(
        producer_id=producer_id,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=NO_PRODUCER_ID,
        epoch=NO_EPOCH,
        last_epoch=NO_EPOCH,
        timeout_ms=timeout_ms,
        state=EMPTY,
        partitions=NO_PARTITIONS,
        start_ms=-1,
        update_ms=now_ms,
        client_version=0,
    )


def _may_go_on(present: Transaction, producer_id: int, epoch: int) -> bool:
    """Return True for the present producer id, whose epoch is compared later, and for the previous id with its last
    epoch. A client comes back with that one if the answer with the new id was lost."""
    return producer_id == present.producer_id or (producer_id == present.previous_producer_id and is_exhausted(epoch))


def _check_identity(present: Transaction, producer: Producer) -> None:
    if present.producer_id != producer.producer_id:
        raise _another_producer_id(present, producer)
    if present.epoch != producer.epoch:
        raise _fenced(present, producer)


def _another_producer_id(present: Transaction, producer: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"{producer.transactional_id!r} has producer id {present.producer_id}, not {producer.producer_id}",
    )


def _fenced(present: Transaction, producer: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED, f"{producer.transactional_id!r} has epoch {present.epoch}, not {producer.epoch}"
    )


def _identity_when_complete(prepared: Transaction) -> tuple[int, int]:
    if prepared.client_version >= EPOCH_BUMP_FROM and prepared.next_producer_id != NO_PRODUCER_ID:
        return prepared.next_producer_id, 0
    return prepared.producer_id, prepared.epoch


def _invalid_end(present: Transaction, producer: Producer, commit: bool) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"the transaction of {producer.transactional_id!r} is in state {present.state.name}, so this request cannot "
        f"{'commit' if commit else 'abort'} it",
    )


def _decided(transactional_id: str, prepared: Transaction) -> Decided:
    return Decided(
        Producer(transactional_id, prepared.producer_id, prepared.epoch),
        prepared.state is PREPARE_COMMIT,
        prepared.client_version,
        prepared.partitions,
    )
