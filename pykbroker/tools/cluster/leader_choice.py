"""Elections of leaders on an operator's request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.failure import AskFailed, check, failed
from pykbroker.tools.cluster.reassignments import by_topic

PREFERRED: Final = 0
UNCLEAN: Final = 1


def elect(
    cluster: AskedCluster, kind: int, partitions: Iterable[PartitionName] | None
) -> dict[PartitionName, AskFailed | None]:
    """Elect leaders of these partitions, or of all; returns the error of each, or None if its leader was elected."""
    from pykbroker_wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

    wanted = None
    if partitions is not None:
        wanted = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in by_topic(partitions).items()]
    answer = cluster.ask_controller(
        ElectLeadersRequest(election_type=kind, topic_partitions=wanted), ElectLeadersResponse, least=kind
    )
    check(answer.error_code)
    return {
        (topic.topic, row.partition_id): failed(row.error_code, row.error_message) if row.error_code else None
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }
