"""The requests to share coordinators, for a topic that does not exist: what each refuses before it looks at any state.
And what becomes of the states when their own topic is deleted.

compat_tests/mixed_cluster/test_share_coordinator_answers.py asks for states that exist.
"""

from __future__ import annotations

from collections.abc import Callable

from compat_tests.differential.scripts.asking_shares import (
    ACCEPT,
    EMPTY_MS,
    make_share_group,
    share_summary,
    until_share_coordinator,
    write_batch,
)
from compat_tests.differential.session import Session
from pykbroker_wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.primitives import TopLevel

_STATES = "__share_group_state"
_NOBODYS_TOPIC = bytes(range(1, 17))


def _initialize(group: str, partitions: list[int]) -> TopLevel:
    api = initialize_share_group_state
    asked = [api.PartitionData(partition=index, state_epoch=1, start_offset=0) for index in partitions]
    topics = [api.InitializeStateData(topic_id=_NOBODYS_TOPIC, partitions=asked)]
    return api.InitializeShareGroupStateRequest(group_id=group, topics=topics)


def _read(group: str, partitions: list[int]) -> TopLevel:
    api = read_share_group_state
    asked = [api.PartitionData(partition=index, leader_epoch=1) for index in partitions]
    topics = [api.ReadStateData(topic_id=_NOBODYS_TOPIC, partitions=asked)]
    return api.ReadShareGroupStateRequest(group_id=group, topics=topics)


def _write(group: str, partitions: list[int]) -> TopLevel:
    api = write_share_group_state
    batch = api.StateBatch(first_offset=0, last_offset=4, delivery_state=2, delivery_count=1)
    asked = [
        api.PartitionData(partition=index, state_epoch=1, leader_epoch=1, start_offset=0, state_batches=[batch])
        for index in partitions
    ]
    topics = [api.WriteStateData(topic_id=_NOBODYS_TOPIC, partitions=asked)]
    return api.WriteShareGroupStateRequest(group_id=group, topics=topics)


def _delete(group: str, partitions: list[int]) -> TopLevel:
    api = delete_share_group_state
    asked = [api.PartitionData(partition=index) for index in partitions]
    topics = [api.DeleteStateData(topic_id=_NOBODYS_TOPIC, partitions=asked)]
    return api.DeleteShareGroupStateRequest(group_id=group, topics=topics)


def _summarize(group: str, partitions: list[int]) -> TopLevel:
    api = read_share_group_state_summary
    asked = [api.PartitionData(partition=index, leader_epoch=1) for index in partitions]
    topics = [api.ReadStateSummaryData(topic_id=_NOBODYS_TOPIC, partitions=asked)]
    return api.ReadShareGroupStateSummaryRequest(group_id=group, topics=topics)


def share_states_of_nobody(s: Session) -> None:
    """Each request without a group, without partitions, and for an unknown share partition."""
    makes: tuple[Callable[[str, list[int]], TopLevel], ...] = (_initialize, _read, _write, _delete, _summarize)
    for make in makes:
        s.each("no group", lambda v, make=make: make("", [0]))  # type: ignore[misc]
        s.each("no partitions", lambda v, make=make: make(s.name("g"), []))  # type: ignore[misc]
        s.each("an unknown topic", lambda v, make=make: make(s.name("g"), [0]))  # type: ignore[misc]


def deleted_share_states(s: Session) -> None:
    """The topic of the states is deleted while a member has acquired records. It runs last on its nodes."""
    topic = s.make_topic()
    member = make_share_group(s, topic)()
    topic_id, group = s.topic_id(topic), s.name("g")
    write_batch(s, topic, 4)
    member.fetch("acquires", 0)
    member.acknowledge("accepts", {0: [(0, 0, [ACCEPT])]})
    s.call("deleted", DeleteTopicsRequest(topics=[DeleteTopicState(name=_STATES)], timeout_ms=20_000))
    s.until_gone(_STATES)
    until_share_coordinator(s, topic_id, group)
    s.call("made again", share_summary(topic_id, group))
    member.acknowledge("accepts after the deletion", {0: [(1, 1, [ACCEPT])]})
    member.fetch("fetches", max_wait_ms=EMPTY_MS)
    member.fetch("opens anew", 0, share_session_epoch=0, max_wait_ms=EMPTY_MS)
    s.call("stored", share_summary(topic_id, group))


SCRIPTS = (share_states_of_nobody,)
