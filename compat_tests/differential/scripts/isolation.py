"""Transactions as readers see them: Fetch and ListOffsets of both levels, DescribeProducers, markers, timeouts."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.scripts.asking import (
    Producer,
    add_partitions,
    batch,
    end,
    init,
    producer,
    until_added,
    until_coordinator,
    until_ended,
    until_state,
    until_written,
    write,
)
from compat_tests.differential.scripts.fetch import _asker
from compat_tests.differential.session import NOW_MS, Session
from pykbroker_wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.list_transactions import ListTransactionsRequest
from pykbroker_wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

LEVELS = (0, 1)


def _offsets(topic: str, timestamp: int, level: int, partition: int = 0) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=level, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )


def _producers(topic: str, *partitions: int) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(partitions))])


def _mark(
    p: Producer, topic: str, partitions: list[int], *, commit: bool = True, epoch: int = 0, version: int = 0
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=p.id,
        producer_epoch=p.epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)],
        coordinator_epoch=epoch,
        transaction_version=version,
    )


def isolation_levels(s: Session) -> None:
    """Fetch and ListOffsets in a log with open, committed and aborted transactions."""
    until_coordinator(s)
    topic = s.make_topic()
    ask = _asker(s, topic)

    def seen(when: str, *offsets: int, versions: Any = (4, 11, 12, 18)) -> None:
        for level in LEVELS:
            for offset in offsets:
                s.each(
                    f"{when}: from {offset}, level {level}",
                    lambda v, n=offset, at=level: ask((topic, [(0, {"fetch_offset": n})]), isolation_level=at),  # type: ignore[misc]
                    versions,
                )
            for timestamp in (-1, -2, -3, NOW_MS, NOW_MS + 1):
                s.each(
                    f"{when}: time {timestamp}, level {level}",
                    lambda v, n=timestamp, at=level: _offsets(topic, n, at),  # type: ignore[misc]
                    (2, 6, 7, 11),
                )

    s.make_records(topic, [b"before"])
    one, two = producer(s, "one"), producer(s, "two")
    until_written(s, one, topic, (0, batch(one, values=(b"1", b"2"))))
    seen("one is open", 0, 1, 2, 3)
    until_written(s, two, topic, (0, batch(two)))
    s.make_records(topic, [b"between"])
    seen("both are open", 0, 1, 5)
    until_ended(s, two, commit=False)
    seen("the second is aborted", 0, 1, 4)
    until_written(s, two, topic, (0, batch(two)))
    until_ended(s, one, commit=True)
    seen("the first is committed", 0, 3, 4, 6, 8)
    until_ended(s, two, commit=False)
    seen("the second is aborted again", 0, 3, 5, 6, 7, 9, 10)
    until_written(s, one, topic, (0, batch(one)))
    until_ended(s, one, commit=False)
    s.make_records(topic, [b"after"])
    seen("at last", 0, 7, 8, 10, 12)
    for limit in (1, 200, 400):
        for offset in (0, 3, 6):
            asked = ask((topic, [(0, {"fetch_offset": offset, "partition_max_bytes": limit})]), isolation_level=1)
            s.call(f"{limit} bytes from {offset}", asked)
    # A level that does not exist: Kafka answers -1 (tests/badinput).


def waiting_readers(s: Session) -> None:
    """A Fetch of stable records waits for the last stable offset, not for the log's end."""
    until_coordinator(s)
    topic = s.make_topic()
    ask = _asker(s, topic)
    p = producer(s)
    until_written(s, p, topic, (0, batch(p)))
    s.call("in vain", ask((topic, [(0, {})]), isolation_level=1, max_wait_ms=50))
    waiting = ask((topic, [(0, {})]), isolation_level=1, max_wait_ms=5000)
    s.send(waiting, link="reader")
    until_ended(s, p)
    s.receive("until the end", waiting, link="reader")


def describe_producers(s: Session) -> None:
    """DescribeProducers: none, idempotent, in a transaction, after it; unknown topics and partitions."""
    until_coordinator(s)
    topic = s.make_topic(partitions=3)
    s.call("none", _producers(topic, 0, 1))
    plain = Producer("", s.ask(init(None)).producer_id, 0)
    s.know("producer", plain.id)
    s.call("idempotent", write(s, None, topic, (2, batch(plain, transactional=False))))
    p = producer(s)
    until_written(s, p, topic, (0, batch(p)), (1, batch(p)))
    s.call("open", _producers(topic, 0, 1, 2))
    until_written(s, p, topic, (0, batch(p, 1, values=(b"1", b"2", b"3"))))
    s.call("open, more", _producers(topic, 0))
    until_ended(s, p)
    s.call("ended", _producers(topic, 0, 1))
    until_written(s, p, topic, (0, batch(p)))
    s.call("the next", _producers(topic, 0))
    until_ended(s, p, commit=False)
    s.call("aborted", _producers(topic, 0))
    s.call("unknown", _producers("no-such-topic", 0))
    s.call("unknown partitions", _producers(topic, 7, -1, 0))
    s.call("bad name", _producers("a b", 0))
    s.call("no partitions", _producers(topic))
    s.call("no topics", DescribeProducersRequest(topics=[]))
    # A partition that is named twice is not requested: Apache Kafka answers each, and pykbroker bounds the answer
    # (tests/api/test_bounded_work.py).


def write_markers(s: Session) -> None:
    """WriteTxnMarkers by hand: hanging transactions ended, epochs of coordinators and producers, unknown places."""
    s.until_coordinator()
    until_coordinator(s)
    for version in (1, 2):
        for transaction_version in (0, 1, 2) if version == 2 else (0,):
            topic = s.make_topic(partitions=3)
            p = producer(s, f"t-{version}-{transaction_version}")

            def markers(*asked: WritableTxnMarker) -> WriteTxnMarkersRequest:
                return WriteTxnMarkersRequest(markers=list(asked))

            def mark(
                who: Producer,
                partitions: list[int],
                at: int = transaction_version,
                name: str = topic,
                **fields: Any,
            ) -> WriteTxnMarkersRequest:
                return markers(_mark(who, name, partitions, version=at, **fields))

            s.call("no transaction", mark(p, [2]), version)
            until_written(s, p, topic, (0, batch(p)), (1, batch(p)))
            s.call("open", _producers(topic, 0, 1, 2))
            s.call("older epoch", mark(p.older(), [0]), version)
            s.call("the same epoch", mark(p, [0]), version)
            s.call("after it", _producers(topic, 0, 1))
            s.call("newer epoch", mark(p.newer(), [1], commit=False, epoch=5), version)
            s.call("after the newer", _producers(topic, 0, 1))
            s.call("an older coordinator", mark(p.newer(), [1], epoch=4), version)
            s.call("an older epoch then", mark(p, [1], epoch=5), version)
            s.call("unknown partition", mark(p, [9]), version)
            s.call("negative partition", mark(p, [-1]), version)
            s.call("unknown topic", markers(_mark(p, "no-such-topic", [0])), version)
            s.call("bad name", markers(_mark(p, "a b", [0])), version)
            s.call("offsets", markers(_mark(p, "__consumer_offsets", [1])), version)
            s.call("coordinator epoch -1", mark(p, [0], epoch=-1), version)
            s.call("no topics", markers(WritableTxnMarker(producer_id=p.id, producer_epoch=9)), version)
            s.call("none", markers(), version)
            s.call("at last", _producers(topic, 0, 1, 2))
            for level in LEVELS:
                s.call(f"stable offset, level {level}", _offsets(topic, -1, level))


def transaction_timeouts(s: Session) -> None:
    """transaction.timeout.ms: the coordinator ends the transaction and fences its producer."""
    until_coordinator(s)
    for version in (4, 5):
        topic = s.make_topic(partitions=2)
        p = producer(s, f"t-{version}", timeout_ms=300)
        until_added(s, p, (topic, [0, 1]))
        until_written(s, p, topic, (0, batch(p)))
        until_state(s, p.name, "CompleteAbort")
        s.call("described", DescribeTransactionsRequest(transactional_ids=[p.name]))
        s.call("producers", _producers(topic, 0, 1))
        s.call("commit", end(p), version)
        s.call("abort", end(p, commit=False), version)
        s.call("add", add_partitions(p, (topic, [0])), 3)
        s.call("write", write(s, p, topic, (0, batch(p, 1))), 11 if version == 4 else 13)
        s.call("the new epoch ends it", end(p.newer()), version)
        s.call("asks who it is", init(p.name, producer_id=p.id, producer_epoch=p.epoch))
        s.call("asks again", init(p.name))
        s.call("described at last", DescribeTransactionsRequest(transactional_ids=[p.name]))


def list_transactions(s: Session) -> None:
    """ListTransactions and DescribeTransactions: every filter, several, none, unknown."""
    until_coordinator(s)
    topic = s.make_topic(partitions=2)
    s.know("producer", 0)  # the producer of an unknown transaction
    empty, ongoing = producer(s, "a-empty"), producer(s, "b-ongoing")
    committed, aborted = producer(s, "c-committed"), producer(s, "d-aborted")
    until_written(s, ongoing, topic, (0, batch(ongoing)), (1, batch(ongoing)))
    for each, commit in ((committed, True), (aborted, False)):
        until_written(s, each, topic, (0, batch(each)))
        until_ended(s, each, commit=commit)

    def listed(label: str, versions: Any = (0, 1, 2), **fields: Any) -> None:
        for version in versions:
            s.call(label, ListTransactionsRequest(**fields), version)
            s.only_mine()

    listed("all")
    for states in (
        ["Ongoing"],
        ["Empty", "CompleteCommit"],
        ["CompleteAbort"],
        ["PrepareCommit"],
        ["Dead"],
        ["ongoing"],
        ["NoSuchState"],
        ["", "Ongoing"],
        ["NoSuchState", "Other", "Ongoing"],
        ["PrepareEpochFence"],
    ):
        listed(f"states {states}", (0, 2), state_filters=states)
    listed("producers", (0, 2), producer_id_filters=[ongoing.id, aborted.id])
    listed("producers, unknown", (2,), producer_id_filters=[2**40, -1])
    listed("a producer and a state", (2,), producer_id_filters=[ongoing.id, empty.id], state_filters=["Ongoing"])
    for duration in (0, -1, -5, 3_600_000, 2**62):
        listed(f"longer than {duration}", (1, 2), duration_filter=duration)
    for pattern in (
        f"{s.name('b')}.*",
        "no-such.*",
        "",
        f"{s.name('(a|b)')}-.*",
        "(",
        "*",
        f"{s.name('a-empty')}",
        "ongoing",
    ):
        listed(f"pattern {pattern}", (2,), transactional_id_pattern=pattern)
    listed("no pattern", (2,), transactional_id_pattern=None)
    names = [empty.name, ongoing.name, committed.name, aborted.name]
    for name in [*names, s.name("none"), ""]:
        s.call(f"described {name!r}", DescribeTransactionsRequest(transactional_ids=[name]))
    s.call("described, several", DescribeTransactionsRequest(transactional_ids=[*names, s.name("none"), empty.name]))
    s.call("described, none", DescribeTransactionsRequest(transactional_ids=[]))


SCRIPTS = (
    isolation_levels,
    waiting_readers,
    describe_producers,
    write_markers,
    transaction_timeouts,
    list_transactions,
)
