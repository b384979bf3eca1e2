"""Guards of a transaction's partitions: each partition belongs to the transaction before its first batch is appended
(KIP-890).

Responsible for everything that a Produce request with transactional batches needs before it appends. The request has
one producer, and takes a guard from each partition where the transaction has nothing open yet. The coordinator checks
those partitions (up to version 11 of Produce they must have been added, from version 12 on it adds them), and its error
code is translated to the client's version. A partition where the transaction is open costs one look-up in a dictionary.
Not responsible for the questions to the coordinator and for guards that become invalid (coordinator/request_guards.py),
nor for appending.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pykbroker.coordinator.request_guards import GuardsByPartition, NotVerified, RequestVerification
from pykbroker.coordinator.transaction.records import TopicPartition
from pykbroker.coordinator.transaction.shard import Producer
from pykbroker.coordinator.transaction.verifier import Verifier
from pykbroker.replica.partition import Partition
from pykbroker.replica.table import ReplicaTable
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.primitives import Buffer
from pykbroker_wire.records.batch import ATTRIBUTES_AT, HEADER_SIZE, PRODUCER, PRODUCER_AT, TRANSACTIONAL

#: From version 11 of Produce the client knows TRANSACTION_ABORTABLE. From version 12 the broker adds the client's
#: partitions.
_ABORTABLE_FROM: Final = 11
ADDS_FROM: Final = 12

#: Temporary errors. Clients get NOT_ENOUGH_REPLICAS for them, because old clients retry only errors that they know, and
#: NOT_ENOUGH_REPLICAS does not make them look for a new leader.
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Unverified(KafkaError):
    """Records that were not given to the log. The client gets the message, if there is one."""


def is_transactional(records: Buffer) -> bool:
    """Return True if the header of the batch marks it as transactional."""
    return len(records) > ATTRIBUTES_AT and bool(records[ATTRIBUTES_AT] & TRANSACTIONAL)


def producer_of(records: Buffer) -> tuple[int, int, int] | None:
    """Return producer id, epoch and base sequence, or None if this is no batch or names no producer. The log refuses
    such records."""
    if len(records) < HEADER_SIZE:
        return None
    found: tuple[int, int, int] = PRODUCER.unpack_from(records, PRODUCER_AT)
    return found if found[0] >= 0 else None


def verification_of(
    replicas: ReplicaTable,
    verifier: Verifier,
    transactional_id: str,
    batches: Iterable[tuple[TopicPartition, Buffer]],
    *,
    version: int,
) -> RequestVerification | GuardsByPartition:
    """Return the verification for which a request's batches must wait, or the guards if the coordinator need not be
    asked. `version` is that of the Produce request."""
    adds = version >= ADDS_FROM
    asked: list[tuple[TopicPartition, int]] = []
    identity: tuple[int, int] | None = None
    everything = list(batches)
    for place, records in everything:
        if not is_transactional(records) or (producer := producer_of(records)) is None:
            continue
        if identity is not None and identity != producer[:2]:
            mixed = Unverified(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
            )
            return {place: mixed for place, _ in everything}
        identity = producer[:2]
        asked.append((place, producer[2]))
    if identity is None or (not adds and not verifier.enabled):
        return {}
    return RequestVerification(replicas, verifier, transactional_id, identity, asked, add=adds)


def for_client(guards: GuardsByPartition, version: int) -> GuardsByPartition:
    """Return the guards, with each refusal of the coordinator as the error for a client of this version."""
    return {
        place: refusal(version, guard.code) if isinstance(guard, NotVerified) else guard
        for place, guard in guards.items()
    }


def guard_at_once(
    verifier: Verifier, partition: Partition, records: Buffer, transactional_id: str, *, version: int
) -> tuple[bool, object | None]:
    """Return whether the batch of a request for one partition may be appended now, and its guard. If it returns False,
    something is unusual or has to wait; then call `verification_of`."""
    if not is_transactional(records) or (producer := producer_of(records)) is None:
        return False, None
    adds = version >= ADDS_FROM
    if not adds and not verifier.enabled:
        return True, None
    try:
        guard = partition.start_verification(*producer, supports_epoch_bump=adds)
    except KafkaError:
        return False, None
    if guard is None:
        return True, None
    place = partition.topic, partition.index
    good = verifier.verify_at_once(Producer(transactional_id, producer[0], producer[1]), place, add=adds)
    return good, guard


def refusal(version: int, code: ErrorCode) -> Unverified:
    """Translate the coordinator's error code to a client's version."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return Unverified(code, "Partition was not added to the transaction")
    if code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_FROM):
        return Unverified(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    return Unverified(code, "")
