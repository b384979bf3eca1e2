"""The fields of a follower's requests."""

from __future__ import annotations

from pykbroker.replica.fetching.follower_requests import FetchSettings, fetch_request, list_offsets_request
from pykbroker.replica.fetching.partition_fetch import PartitionFetch, Phase
from pykbroker.replica.fetching.session import Position, SessionRequest
from tests.replica.fetching.leader import ModelLog

SETTINGS = FetchSettings(
    max_wait_ms=500, min_bytes=1, partition_max_bytes=100, response_max_bytes=1000, backoff_seconds=1.0
)
ONE, TWO = b"1" * 16, b"2" * 16


def test_a_fetch_has_each_topic_once_and_the_partitions_in_the_order_of_the_session() -> None:
    content = SessionRequest(
        7,
        3,
        [((ONE, 1), Position(5, 4, 2, 1)), ((TWO, 0), Position(0, 9, -1, 0)), ((ONE, 0), Position(6, 4, 2, 0))],
        [],
    )
    request = fetch_request(1, 42, content, SETTINGS)
    assert (request.session_id, request.session_epoch) == (7, 3)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, 42)
    assert [(topic.topic_id, [each.partition for each in topic.partitions]) for topic in request.topics] == [
        (ONE, [1, 0]),
        (TWO, [0]),
    ]
    first = request.topics[0].partitions[0]
    assert (first.fetch_offset, first.current_leader_epoch, first.last_fetched_epoch) == (5, 4, 2)
    assert (first.log_start_offset, first.partition_max_bytes) == (1, 100)


def test_forgotten_partitions_are_named_by_topic() -> None:
    request = fetch_request(1, 42, SessionRequest(7, 3, [], [(ONE, 0), (ONE, 2), (TWO, 1)]), SETTINGS)
    assert [(each.topic_id, each.partitions) for each in request.forgotten_topics_data] == [(ONE, [0, 2]), (TWO, [1])]


def test_the_phase_of_a_partition_decides_between_the_end_and_the_start_of_the_leaders_log() -> None:
    end, start = (PartitionFetch("t", ONE, index, 4, ModelLog()) for index in range(2))
    end.enter(Phase.ASKING_END)
    start.enter(Phase.ASKING_END)
    start.enter(Phase.ASKING_START)
    (topic,) = list_offsets_request(1, [end, start]).topics
    assert topic.name == "t"
    assert [(each.partition_index, each.current_leader_epoch, each.timestamp) for each in topic.partitions] == [
        (0, 4, -1),
        (1, 4, -2),
    ]
