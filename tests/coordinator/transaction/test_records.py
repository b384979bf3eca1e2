"""Values of `__transaction_state` are encoded by hand, with the same bytes as the generated writer's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.coordinator.transaction import records
from pykbroker.coordinator.transaction.records import Transaction, remembered, transaction_of, transaction_record
from pykbroker.coordinator.transaction.states import EMPTY, TransactionState
from pykbroker_wire.errors import DecodeError
from pykbroker_wire.stored.transaction.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from pykbroker_wire.stored_framing import encode_key, encode_value

ids = st.integers(-1, 2**63 - 1)
epochs = st.integers(-1, 2**15 - 1)
times = st.integers(-1, 2**62)
names = st.text(min_size=1, max_size=200)


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(TransactionState))
    partitions = frozenset() if state is EMPTY else draw(st.frozensets(st.tuples(names, st.integers(0, 2**31 - 1))))
    return Transaction(
        producer_id=draw(ids),
        previous_producer_id=draw(ids),
        next_producer_id=draw(ids),
        epoch=draw(epochs),
        last_epoch=-1,
        timeout_ms=draw(st.integers(0, 2**31 - 1)),
        state=state,
        partitions=partitions,
        start_ms=draw(times),
        update_ms=draw(times),
        client_version=draw(st.integers(0, 2)),
    )


@pytest.mark.slow
@given(names, transactions(), st.sampled_from([0, 1, 2]))
def test_what_is_written_by_hand(name: str, transaction: Transaction, transaction_version: int) -> None:
    record = transaction_record(name, transaction, transaction_version)
    assert record.value_version == min(transaction_version, 1)
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(index)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None
        if transaction.state is EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()],
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if record.value_version:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    key, stored = records.encode(record)
    assert stored == encode_value(value, record.value_version)
    assert key == encode_key(TransactionLogKey(transactional_id=name))
    read = records.decode(memoryview(key), memoryview(stored))
    assert read is not None
    assert isinstance(read.value, bytes)
    assert transaction_of(read.value) == remembered(transaction, record.value_version)


@given(st.binary(max_size=80))
def test_what_cannot_be_read_is_a_decode_error(data: bytes) -> None:
    try:
        transaction_of(data)
    except DecodeError:
        pass


def test_other_records_are_somebody_elses() -> None:
    assert records.decode(b"\0\7abc", b"") is None
    with pytest.raises(DecodeError):
        records.decode(None, b"")
    with pytest.raises(DecodeError, match="9 is not a valid"):
        transaction_of(encode_value(TransactionLogValue(transaction_status=9), 1))
