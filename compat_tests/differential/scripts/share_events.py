"""Share groups whose records change without a request of a member: locks run out, records are deleted and compacted,
and transactions end. Fetches that wait, and requests that are sent together, are here too."""

from __future__ import annotations

from compat_tests.differential.scripts.asking import batch, producer, until_coordinator, until_ended, until_written
from compat_tests.differential.scripts.asking_shares import (
    ACCEPT,
    EMPTY_MS,
    GAP,
    LONG_MS,
    RELEASE,
    make_share_group,
    share_summary,
    write_batch,
)
from compat_tests.differential.session import Session
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from pykbroker_wire.records.batch import iter_batches


def _stored(s: Session, topic: str, group: str = "g") -> ReadShareGroupStateSummaryRequest:
    return share_summary(s.topic_id(topic), s.name(group))


def share_waiting_fetches(s: Session) -> None:
    """Events that a waiting fetch is answered for: new records, released ones, and each way in which a lock ends."""
    topic = s.make_topic(partitions=5)
    new = make_share_group(s, topic, 5)
    soon = make_share_group(s, topic, 5, what="soon", record_lock_duration_ms="1000")
    answer = new("produced", link="produced").wait(0)
    write_batch(s, topic, 2)
    answer("new records")

    # Apache Kafka answers these three at their max wait.
    events = {1: "released", 2: "closed", 3: "disconnected"}
    holders = {index: new(f"holds {event}", link=f"holds {event}") for index, event in events.items()}
    holders[4] = soon("holds run out", link="holds run out")
    for index, holder in holders.items():
        write_batch(s, topic, 2, partition=index)
        holder.fetch("acquires", index)
    answers = {
        index: new(f"waits {event}", link=f"waits {event}").wait(index, max_wait_ms=LONG_MS)
        for index, event in events.items()
    }
    answers[4] = soon("waits run out", link="waits run out").wait(4)
    holders[1].acknowledge("releases", {1: [(0, 1, [RELEASE])]})
    holders[2].acknowledge("closes", {}, share_session_epoch=-1)
    s.hang_up("holds disconnected")
    for index, event in (*events.items(), (4, "run out")):
        answers[index](f"records whose lock was {event}")
    holders[4].acknowledge("too late", {4: [(0, 1, [ACCEPT])]})


def share_deleted_records(s: Session) -> None:
    """Records are deleted while a member has acquired them."""
    topic = s.make_topic()
    new = make_share_group(s, topic)
    for count in (4, 4):
        write_batch(s, topic, count)
    member = new()
    member.fetch("acquires", 0)
    s.call("stored before", _stored(s, topic))
    partition = DeleteRecordsPartition(partition_index=0, offset=6)
    s.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=10_000))
    s.call("stored after", _stored(s, topic))
    member.acknowledge("deleted ones", {0: [(0, 2, [ACCEPT])]})
    s.call("stored after the deleted ones", _stored(s, topic))
    member.fetch("fetches", max_wait_ms=EMPTY_MS)
    member.acknowledge("deleted and kept ones", {0: [(4, 6, [RELEASE])]})
    s.call("stored after some were kept", _stored(s, topic))
    member.fetch("fetches again", max_wait_ms=EMPTY_MS)
    member.acknowledge("all others", {0: [(6, 7, [ACCEPT])]})
    s.call("stored at last", _stored(s, topic))
    write_batch(s, topic, 1)
    member.fetch("one more")
    member.acknowledge("one more", {0: [(8, 8, [ACCEPT])]})
    s.call("stored after one more", _stored(s, topic))


def share_compacted_records(s: Session) -> None:
    """Holes that compaction has left: they are acquired, and acknowledged as gaps."""
    topic = s.make_topic(
        cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0.001", delete_retention_ms="0"
    )
    new = make_share_group(s, topic)
    # Each batch is a segment of its own. All have one key, so only the last ones stay.
    s.make_records(topic, [b"0", b"1", b"2", b"3"])
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, topics=[FetchTopic(topic_id=s.topic_id(topic), partitions=[wanted])]
    )

    def first() -> int:
        records = s.ask(request).responses[0].partitions[0].records
        return min(header.base_offset for _, header in iter_batches(records))

    s.until(lambda: first() >= 2, "the first records are compacted away")
    member = new()
    member.fetch("acquires holes too", 0)
    member.acknowledge("the holes", {0: [(0, 1, [GAP])]})
    member.acknowledge("a hole twice", {0: [(0, 0, [GAP])]})
    member.acknowledge("the records", {0: [(2, 3, [GAP, ACCEPT])]})
    s.call("stored", _stored(s, topic))


def share_transactions(s: Session) -> None:
    """Open, aborted and committed transactions, as a group of each isolation level acquires them."""
    until_coordinator(s)
    topic = s.make_topic()
    committed = make_share_group(s, topic, what="committed", isolation_level="read_committed")
    uncommitted = make_share_group(s, topic, what="uncommitted")
    one, two = producer(s, "one"), producer(s, "two")
    until_written(s, one, topic, (0, batch(one, values=(b"1", b"2"))))
    stable, every = committed(), uncommitted(link="every")
    every.fetch("an open transaction", 0)
    stable.fetch("an open transaction, read_committed", 0, max_wait_ms=EMPTY_MS)
    answer = stable.wait()
    until_ended(s, one, commit=False)
    answer("it is aborted, read_committed")
    every.fetch("it is aborted")
    until_written(s, two, topic, (0, batch(two, values=(b"3", b"4"))))
    write_batch(s, topic, 1)
    stable.fetch("another one is open, read_committed", max_wait_ms=EMPTY_MS)
    every.fetch("another one is open")
    until_ended(s, two, commit=True)
    stable.fetch("it is committed, read_committed")
    every.fetch("it is committed")
    stable.acknowledge("the records and the markers, read_committed", {0: [(2, 2, [GAP]), (3, 6, [1, 1, 1, 0])]})
    every.acknowledge("the records and the markers", {0: [(0, 2, [1, 1, 0]), (3, 6, [1, 1, 1, 0])]})
    # Until here Apache Kafka has stored no start after the aborted records, because the start follows the next write.
    write_batch(s, topic, 1)
    for member, group in ((stable, "committed"), (every, "uncommitted")):
        member.fetch(f"one more, {group}")
        member.acknowledge(f"one more, {group}", {0: [(7, 7, [ACCEPT])]})
        s.call(f"stored, {group}", _stored(s, topic, group))


def share_topic_deleted(s: Session) -> None:
    """Acknowledgements and fetches of a topic that was deleted. A fetch that waits meanwhile is not asked for: Apache
    Kafka answers it at its max wait, and pykbroker with the error at once."""
    topic = s.make_topic()
    new = make_share_group(s, topic)
    write_batch(s, topic, 2)
    member = new()
    member.fetch("acquires", 0)
    s.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=20_000))
    s.until_gone(topic)
    member.acknowledge("of a topic that is gone", {0: [(0, 1, [ACCEPT])]})
    member.fetch("of a topic that is gone")
    member.fetch("once more")


def share_pipelines(s: Session) -> None:
    """Requests of one session that are sent in one write, after a fetch that waits.

    A release is not among them: it wakes the fetch in pykbroker, and Apache Kafka reads it when the fetch is answered.
    """
    topic = s.make_topic()
    new = make_share_group(s, topic)
    write_batch(s, topic, 6)
    member = new()
    member.fetch("acquires", 0)
    member.together(
        "accepts after a fetch", member.fetching(max_wait_ms=EMPTY_MS), member.acknowledging({0: [(0, 1, [ACCEPT])]})
    )
    member.together(
        "two fetches",
        member.fetching(max_wait_ms=EMPTY_MS),
        member.fetching(acks={0: [(2, 2, [ACCEPT])]}, max_wait_ms=EMPTY_MS),
    )
    closing = member.acknowledging({0: [(4, 4, [ACCEPT])]}, share_session_epoch=-1)
    member.together("closes after a fetch", member.fetching(max_wait_ms=EMPTY_MS), closing)
    other = new("n", link="other")
    other.fetch("gets what is left", 0)


SCRIPTS = (
    share_waiting_fetches,
    share_deleted_records,
    share_compacted_records,
    share_transactions,
    share_topic_deleted,
    share_pipelines,
)
