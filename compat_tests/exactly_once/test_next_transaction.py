"""A producer that has begun its next transaction while the last one cannot end, because a node is paused.

Java producers send up to five batches at once. The first of a transaction is refused with CONCURRENT_TRANSACTIONS while
the markers of the last one wait for a partition's leader. Batches that arrive after the markers are refused with
OUT_OF_ORDER_SEQUENCE_NUMBER, because the first is missing. The client sends all of them again, in order. So a
producer's log may contain both codes if nodes are killed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from compat_tests.mixed_cluster.members import Cluster, Kind, Member
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker_wire.messages.end_txn import EndTxnRequest
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from testkit.nodes.nodes import TRANSACTION, eventually
from testkit.nodes.wire import Wire, batch
from testkit.oracle.kafka import kafka_libs

pytestmark = pytest.mark.slow

#: One coordinates and leads HERE, the other leads THERE and is paused.
COORDINATOR, STANDS = 1, 2
HERE, THERE = "here", "there"
_LATER = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Producer:
    def __init__(self, wire: Wire, name: str) -> None:
        self._wire, self._name = wire, name
        asked = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)

        def given() -> Any:
            answer = wire.call(asked)
            return None if answer.error_code in _LATER else answer

        self._take(eventually("the coordinator gives an id", given))

    def _take(self, answer: Any) -> None:
        assert not answer.error_code, answer
        self._id, self._epoch = answer.producer_id, answer.producer_epoch

    def send(self, wire: Wire, topic: str, sequence: int) -> ErrorCode:
        records = batch(
            b"%d" % sequence,
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        request = ProduceRequest(transactional_id=self._name, acks=-1, timeout_ms=30_000, topic_data=[data])
        return ErrorCode(wire.call(request, 12).responses[0].partition_responses[0].error_code)

    def is_taken(self, wire: Wire, topic: str) -> bool:
        """Return True if the first record of a transaction is written, or was written before."""
        return self.send(wire, topic, 0) is ErrorCode.NONE

    def commit(self) -> None:
        """Commit; the next transaction has the next epoch (KIP-890)."""
        request = EndTxnRequest(
            transactional_id=self._name, producer_id=self._id, producer_epoch=self._epoch, committed=True
        )
        self._take(self._wire.call(request, 5))

    def has_ended(self) -> bool:
        asked = DescribeTransactionsRequest(transactional_ids=[self._name])
        return bool(self._wire.call(asked).transaction_states[0].transaction_state == "CompleteCommit")


@pytest.mark.parametrize("kind", ["kafka", "pykbroker"])
def test_batches_after_a_refused_first_one_are_out_of_order_until_it_comes_again(kind: Kind) -> None:
    kafka_libs()
    settings = {"transaction.state.log.replication.factor": "1", "transaction.state.log.num.partitions": "6"}
    with Cluster({number: Member(kind) for number in (1, 2, 3)}, settings=settings, directories=1) as cluster:
        cluster.format()
        cluster.start_all()
        cluster.serving(1, 2, 3)
        cluster.create(HERE, (COORDINATOR,))
        cluster.create(THERE, (STANDS,))
        name = cluster.keys_by_coordinator(TRANSACTION)[COORDINATOR]
        with Wire(cluster.address(COORDINATOR), timeout=60) as wire:
            producer = Producer(wire, name)
            for number, topic in ((COORDINATOR, HERE), (STANDS, THERE)):
                with Wire(cluster.address(number), timeout=60) as leader:
                    eventually(f"{topic} takes a record", partial(producer.is_taken, leader, topic))
            with cluster.paused(STANDS):
                producer.commit()
                assert producer.send(wire, HERE, 0) is ErrorCode.CONCURRENT_TRANSACTIONS
            eventually("the transaction has ended", producer.has_ended)
            assert producer.send(wire, HERE, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert [producer.send(wire, HERE, sequence) for sequence in (0, 1)] == [ErrorCode.NONE, ErrorCode.NONE]
            producer.commit()
