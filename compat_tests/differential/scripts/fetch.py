"""Fetch: offsets, sizes, epochs, sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compat_tests.differential.session import Session
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

NO_SUCH_ID = bytes(range(16))
Partition = tuple[int, dict[str, Any]]


def _asker(s: Session, *names: str) -> Callable[..., FetchRequest]:
    ids = {name: s.topic_id(name) for name in names}

    def ask(*topics: tuple[str, list[Partition]], **fields: Any) -> FetchRequest:
        return FetchRequest(
            topics=[
                FetchTopic(
                    topic=name,
                    topic_id=ids.get(name, NO_SUCH_ID),
                    partitions=[
                        FetchPartition(partition=i, **{"partition_max_bytes": 100_000, **more})
                        for i, more in partitions
                    ],
                )
                for name, partitions in topics
            ],
            **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1_000_000, **fields},
        )

    return ask


def fetch(s: Session) -> None:
    """Fetch in every version: offsets, limits, epochs, unknown topics and partitions."""
    topic, other = s.make_topic(partitions=2), s.make_topic("other")
    s.make_records(topic, [b"a" * 100, b"b" * 300, b"c" * 50])
    s.make_records(other, [b"d" * 100])
    ask = _asker(s, topic, other)
    s.each("from 0", lambda v: ask((topic, [(0, {})])))
    s.each("from 2", lambda v: ask((topic, [(0, {"fetch_offset": 2})])))
    s.each("from the end", lambda v: ask((topic, [(0, {"fetch_offset": 3})])))
    s.each("empty partition", lambda v: ask((topic, [(1, {})])))
    for offset in (4, 10**9, -1, -2, 2**63 - 1):
        s.each(f"from {offset}", lambda v, n=offset: ask((topic, [(0, {"fetch_offset": n})])))  # type: ignore[misc]
    s.each("partitions that are not there", lambda v: ask((topic, [(5, {}), (-1, {}), (0, {"fetch_offset": 2})])))
    s.each("unknown topic", lambda v: ask(("no-such-topic", [(0, {})])))
    s.each(
        "bad name",
        lambda v: ask(
            ("a b", [(0, {})]),
        ),
        range(4, 13),
    )
    s.each("two topics", lambda v: ask((topic, [(0, {}), (1, {})]), (other, [(0, {})])))
    s.each("the same partition twice", lambda v: ask((topic, [(0, {}), (0, {"fetch_offset": 2})])))
    s.each("no topics", lambda v: ask())
    s.each("no partitions", lambda v: ask((topic, [])))
    for limit in (0, 1, 170, 171, 542):
        s.each(f"partition max bytes {limit}", lambda v, n=limit: ask((topic, [(0, {"partition_max_bytes": n})])))  # type: ignore[misc]
        s.each(f"max bytes {limit}", lambda v, n=limit: ask((topic, [(0, {})]), (other, [(0, {})]), max_bytes=n))  # type: ignore[misc]
    s.each(
        "both limits", lambda v: ask((topic, [(0, {"partition_max_bytes": 171})]), (other, [(0, {})]), max_bytes=250)
    )
    # Negative limits: Kafka answers -1 or not at all, pykbroker takes them for 0 (tests/badinput).
    for epoch in (0, 1, 99, -1, -2):
        s.each(
            f"leader epoch {epoch}",
            lambda v, n=epoch: ask((topic, [(0, {"current_leader_epoch": n, "fetch_offset": 2})])),  # type: ignore[misc]
            range(9, 19),
        )
        s.each(
            f"last fetched epoch {epoch}",
            lambda v, n=epoch: ask((topic, [(0, {"last_fetched_epoch": n, "fetch_offset": 2})])),  # type: ignore[misc]
            range(12, 19),
        )
    for level in (0, 1):
        s.each(
            f"isolation level {level}",
            lambda v, n=level: ask((topic, [(0, {"fetch_offset": 2})]), isolation_level=n),  # type: ignore[misc]
        )
    s.each("waits in vain", lambda v: ask((topic, [(0, {"fetch_offset": 3})]), max_wait_ms=20), [4, 12, 18])
    s.each("min bytes of 0", lambda v: ask((topic, [(0, {"fetch_offset": 3})]), max_wait_ms=5000, min_bytes=0))
    s.each(
        "an error ends the wait",
        lambda v: ask((topic, [(0, {"fetch_offset": 3}), (9, {})]), max_wait_ms=200),
        [4, 12, 13, 18],
    )
    s.each("min bytes are there", lambda v: ask((topic, [(0, {})]), max_wait_ms=5000, min_bytes=300), [4, 12, 18])
    s.each("a rack", lambda v: ask((topic, [(0, {"fetch_offset": 2})]), rack_id="r1"), range(11, 19))
    s.each("a replica that is none", lambda v: ask((topic, [(0, {})]), replica_id=5), [4, 8, 9, 12, 13, 14])
    s.each("log start offset", lambda v: ask((topic, [(0, {"log_start_offset": 0, "fetch_offset": 2})])), range(5, 19))
    s.each("negative wait", lambda v: ask((topic, [(0, {"fetch_offset": 3})]), max_wait_ms=-5), [4, 12, 18])
    s.each("a cluster id", lambda v: ask((topic, [(0, {"fetch_offset": 2})]), cluster_id="x" * 22), range(12, 19))


def fetch_pages(s: Session) -> None:
    """Fetch through a partition with batches of many records, step by step."""
    topic = s.make_topic(segment_bytes="1048576")
    s.make_records(topic, [b"%03d" % i * 100 for i in range(30)])
    ask = _asker(s, topic)
    for offset in range(0, 31, 3):
        for limit in (500, 1500, 100_000):
            s.call(
                f"from {offset}, {limit} bytes",
                ask((topic, [(0, {"fetch_offset": offset, "partition_max_bytes": limit})])),
                12,
            )


def fetch_sessions(s: Session) -> None:
    """Fetch sessions: made, used incrementally, forgotten, closed; wrong ids and epochs."""
    topic, other = s.make_topic(partitions=3), s.make_topic("other")
    s.make_records(topic, [b"a" * 100])
    ask = _asker(s, topic, other)
    for version in range(7, 19):
        made = s.call("made", ask((topic, [(0, {}), (1, {})]), session_epoch=0), version)
        if made is None:
            continue
        session = made.session_id
        s.call("nothing new asked", ask(session_id=session, session_epoch=1), version)
        s.call("caught up", ask((topic, [(0, {"fetch_offset": 1})]), session_id=session, session_epoch=2), version)
        s.call("nothing new there", ask(session_id=session, session_epoch=3), version)
        s.call("another topic", ask((other, [(0, {})]), session_id=session, session_epoch=4), version)
        s.call("an old epoch", ask(session_id=session, session_epoch=4), version)
        s.call("an epoch too far", ask(session_id=session, session_epoch=9), version)
        s.make_records(topic, [b"new"], 1)
        forgotten = [ForgottenTopic(topic=topic, topic_id=s.topic_id(topic), partitions=[0])]
        s.call(
            "forget one, and news", ask(session_id=session, session_epoch=5, forgotten_topics_data=forgotten), version
        )
        s.call("an unknown partition", ask((topic, [(9, {})]), session_id=session, session_epoch=6), version)
        s.call("an unknown topic", ask(("no-such-topic", [(0, {})]), session_id=session, session_epoch=7), version)
        s.call("and again", ask(session_id=session, session_epoch=8), version)
        s.call("made anew", ask((topic, [(0, {})]), session_id=session, session_epoch=0), version)
        s.call("the old one", ask(session_id=session, session_epoch=9), version)
        s.call("closed", ask(session_id=session, session_epoch=-1), version)
        s.call("unknown session", ask(session_id=123456, session_epoch=5), version)
        s.call("close an unknown session", ask((topic, [(0, {})]), session_id=123456, session_epoch=-1), version)
        s.call("epoch -2", ask((topic, [(0, {})]), session_epoch=-2), version)
        s.call("epoch 5 without a session", ask((topic, [(0, {})]), session_epoch=5), version)
        s.call("a session with no partitions", ask(session_epoch=0), version)


SCRIPTS = (fetch, fetch_pages, fetch_sessions)
