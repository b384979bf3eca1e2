"""Transactions: of coordinators, and those that are open in partitions; and requests that abort a transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.failure import AskFailed, check, failed
from pykbroker.tools.cluster.leader_requests import Outcomes, of_leaders
from pykbroker.tools.cluster.reassignments import by_topic
from pykbroker_wire.errors import ErrorCode

_TIMEOUT_MS = 30_000


@dataclass(slots=True, frozen=True)
class ListedTransaction:
    id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(slots=True, frozen=True)
class DescribedTransaction:
    id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    #: None if no transaction is open
    started_ms: int | None
    partitions: tuple[PartitionName, ...]


@dataclass(slots=True, frozen=True)
class ProducerInPartition:
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    #: the first offset of the open transaction, or -1 if none is open
    started_at: int


def listed(
    cluster: AskedCluster,
    *,
    longer_than_ms: int = -1,
    pattern: str | None = None,
    producer_ids: Iterable[int] = (),
) -> list[ListedTransaction]:
    """Return the transactions of every coordinator."""
    from pykbroker_wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

    least = 2 if pattern is not None else 1 if longer_than_ms >= 0 else 0
    request = ListTransactionsRequest(
        duration_filter=longer_than_ms, transactional_id_pattern=pattern, producer_id_filters=list(producer_ids)
    )

    def attempt() -> list[ListedTransaction]:
        found = []
        for node in cluster.nodes():
            answer = cluster.ask(request, ListTransactionsResponse, node=node.id, least=least)
            check(answer.error_code)
            found += [
                ListedTransaction(row.transactional_id, node.id, row.producer_id, row.transaction_state)
                for row in answer.transaction_states
            ]
        return found

    return cluster.settled(attempt)


def described(cluster: AskedCluster, transactional_id: str) -> DescribedTransaction:
    from pykbroker_wire.messages.describe_transactions import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
    )

    def attempt() -> DescribedTransaction:
        node = cluster.coordinators([transactional_id], of_transactions=True)[transactional_id]
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (row,) = cluster.ask(request, DescribeTransactionsResponse, node=node).transaction_states
        if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise failed(
                row.error_code,
                f"DescribeTransactions request for transactionalId `{transactional_id}` failed because the ID could "
                "not be found",
            )
        check(row.error_code)
        return DescribedTransaction(
            row.transactional_id,
            node,
            row.producer_id,
            row.producer_epoch,
            row.transaction_state,
            row.transaction_timeout_ms,
            row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
            tuple((topic.topic, number) for topic in row.topics for number in topic.partitions),
        )

    return cluster.settled(attempt)


def producers(
    cluster: AskedCluster, partitions: Iterable[PartitionName], broker: int | None = None
) -> Outcomes[list[ProducerInPartition]]:
    """Return the producers of each partition, from the state of its leader, or of its replica on `broker`."""
    from pykbroker_wire.messages.describe_producers import (
        DescribeProducersRequest,
        DescribeProducersResponse,
        TopicRequest,
    )

    def ask(node: int, places: list[PartitionName]) -> Outcomes[list[ProducerInPartition]]:
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=numbers) for name, numbers in by_topic(places).items()]
        )
        answer = cluster.ask(request, DescribeProducersResponse, node=node)
        return {
            (topic.name, row.partition_index): failed(row.error_code, row.error_message)
            if row.error_code
            else [
                ProducerInPartition(
                    one.producer_id,
                    one.producer_epoch,
                    one.coordinator_epoch,
                    one.last_sequence,
                    one.last_timestamp,
                    one.current_txn_start_offset,
                )
                for one in row.active_producers
            ]
            for topic in answer.topics
            for row in topic.partitions
        }

    if broker is None:
        return of_leaders(cluster, partitions, ask)
    # The state of this replica is wanted, so no other broker is asked.
    places = list(partitions)
    return ask(broker, places) if places else {}


def open_at(cluster: AskedCluster, place: PartitionName, offset: int) -> ProducerInPartition | None:
    """Return the producer whose open transaction begins at an offset of a partition, or None. Raises AskFailed."""
    found = producers(cluster, [place])[place]
    if isinstance(found, AskFailed):
        raise found
    return next((one for one in found if one.started_at == offset), None)


@dataclass(slots=True, frozen=True)
class HangingTransaction:
    """A transaction that is open in a partition and that no coordinator will end."""

    place: PartitionName
    producer: ProducerInPartition


@dataclass(slots=True, frozen=True)
class HangingSearch:
    """The transactions that hang, and the partitions whose producers could not be read, in which others may hang."""

    found: list[HangingTransaction]
    unread: dict[PartitionName, AskFailed]


def hanging(
    cluster: AskedCluster, places: Iterable[PartitionName], quiet_since_ms: int, broker: int | None = None
) -> HangingSearch:
    """Search these partitions for hanging transactions whose producers have not written since `quiet_since_ms`."""
    outcomes = producers(cluster, places, broker)
    return HangingSearch(
        [
            HangingTransaction(place, one)
            for place, outcome in outcomes.items()
            if not isinstance(outcome, AskFailed)
            for one in outcome
            if one.started_at >= 0 and one.last_timestamp_ms < quiet_since_ms and _hangs(cluster, place, one)
        ],
        {place: outcome for place, outcome in outcomes.items() if isinstance(outcome, AskFailed)},
    )


def _hangs(cluster: AskedCluster, place: PartitionName, producer: ProducerInPartition) -> bool:
    """Return True if no coordinator has the partition in a transaction of this producer."""
    for one in listed(cluster, producer_ids=[producer.producer_id]):
        if one.producer_id == producer.producer_id:
            try:
                return place not in described(cluster, one.id).partitions
            except AskFailed as error:
                # Any other failure leaves open whether the transaction hangs, and an abort of one that does not would
                # lose its records.
                if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                return True
    return True


def abort(
    cluster: AskedCluster, place: PartitionName, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Write an abort marker into one partition, without regard to the state of the transaction at its coordinator."""
    from pykbroker.tools.cluster.topics import leaders
    from pykbroker_wire.messages.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

    node = leaders(cluster, [place[0]]).get(place, -1)
    if node < 0:
        raise failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=place[0], partition_indexes=[place[1]])],
        coordinator_epoch=max(0, coordinator_epoch),
    )
    answer = cluster.ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, node=node)
    for one in answer.markers:
        for topic in one.topics:
            for row in topic.partitions:
                check(row.error_code)


def fence(cluster: AskedCluster, transactional_id: str) -> None:
    """Abort the open transaction of a transactional id: this gives its producer a new epoch."""
    from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

    def attempt() -> None:
        node = cluster.coordinators([transactional_id], of_transactions=True)[transactional_id]
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_TIMEOUT_MS)
        answer = cluster.ask(request, InitProducerIdResponse, node=node)
        check(answer.error_code)

    cluster.settled(attempt)
