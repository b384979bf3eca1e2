"""The messages of the writer: from letters to a Produce, and from its answer to the error of each partition. Pure."""

from __future__ import annotations

from typing import Final

from pykbroker.dead_letters.letter_orders import SendLetters
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

#: The writer waits so long for the leader. Apache Kafka's number (ServerConfigs.REQUEST_TIMEOUT_MS_DEFAULT).
TIMEOUT_MS: Final = 30_000
#: The leader waits so long for its followers. It is less, so that the writer gets the answer REQUEST_TIMED_OUT, from
#: which it knows that the letters are appended.
_FOLLOWERS_TIMEOUT_MS: Final = 20_000
_ALL_REPLICAS: Final = -1


def produce_request(letters: SendLetters) -> ProduceRequest:
    """Return the Produce. It has names and ids of topics, because the versions differ in the one that they use."""
    topics: dict[bytes, TopicProduceData] = {}
    for target, batch in letters.batches.items():
        topic = topics.get(target.topic_id)
        if topic is None:
            topic = TopicProduceData(name=target.topic, topic_id=target.topic_id, partition_data=[])
            topics[target.topic_id] = topic
        topic.partition_data.append(PartitionProduceData(index=target.partition, records=batch))
    return ProduceRequest(acks=_ALL_REPLICAS, timeout_ms=_FOLLOWERS_TIMEOUT_MS, topic_data=list(topics.values()))


def produce_errors(letters: SendLetters, answer: ProduceResponse) -> dict[tuple[bytes, int], ErrorCode]:
    """Return the error of each partition by topic id and index. Before version 13 the answer names topics only."""
    ids = {target.topic: target.topic_id for target in letters.batches}
    return {
        (ids.get(topic.name, topic.topic_id), partition.index): ErrorCode.received(partition.error_code)
        for topic in answer.responses
        for partition in topic.partition_responses
    }
