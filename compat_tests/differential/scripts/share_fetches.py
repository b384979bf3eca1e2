"""ShareFetch and ShareAcknowledge: sessions, acquisition, acknowledgements, and what each refuses.

Most cases are those in which brokers may differ: the order of checks, ranges that are wrong, sessions that end.
"""

from __future__ import annotations

from compat_tests.differential.scripts.asking_shares import (
    ACCEPT,
    EMPTY_MS,
    LONG_MS,
    RELEASE,
    RENEW,
    ShareReader,
    make_share_group,
    write_batch,
)
from compat_tests.differential.session import Session
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker_wire.messages.share_acknowledge import AcknowledgementBatch, AcknowledgePartition, AcknowledgeTopic
from pykbroker_wire.messages.share_fetch import ForgottenTopic

_NO_SUCH_ID = bytes(range(16))


def share_sessions(s: Session) -> None:
    """Sessions of share groups: who may open one, epochs, incremental answers, the end."""
    topic = s.make_topic(partitions=2)
    new = make_share_group(s, topic, 2)
    write_batch(s, topic, 3)
    for version in (1, 2):
        other = new(f"v{version}")
        other.fetch("no group", 0, version=version, group_id=None)
        other.fetch("an empty member id", 0, version=version, share_session_epoch=0, member_id="")
        other.fetch("no member id", 0, version=version, share_session_epoch=0, member_id=None)
        other.fetch("a long member id", 0, version=version, share_session_epoch=0, member_id="m" * 37)
        other.fetch("no session", 0, version=version, share_session_epoch=3)
        other.fetch("nothing to close", version=version, share_session_epoch=-1)
        other.fetch("opens with acknowledgements", acks={0: [(0, 0, [1])]}, version=version, share_session_epoch=0)
        other.acknowledge("no session", {0: [(0, 0, [1])]}, version=version, share_session_epoch=1)
        other.acknowledge("epoch 0", {0: [(0, 0, [1])]}, version=version, share_session_epoch=0)
        other.acknowledge("nothing to close", {}, version=version, share_session_epoch=-1)
        other.acknowledge("no group", {}, version=version, share_session_epoch=1, group_id=None)
        other.acknowledge("an empty member id", {}, version=version, share_session_epoch=1, member_id="")
    member = new()
    member.fetch("asks for no record", 0, max_records=0)
    member.fetch("asks for no byte", max_bytes=0)
    # The leader may read the share state only now.
    member.fetch("opens anew", 0, share_session_epoch=0, max_wait_ms=5_000)
    member.fetch("reads another partition", 1, max_wait_ms=EMPTY_MS)
    member.fetch("nothing new", max_wait_ms=EMPTY_MS)
    member.fetch("a wrong epoch", share_session_epoch=7)
    member.acknowledge("a wrong epoch", {}, share_session_epoch=8)
    member.acknowledge("the right epoch", {0: [(0, 0, [ACCEPT])]})
    member.fetch("forgets", forgotten_topics_data=[ForgottenTopic(topic_id=s.topic_id(topic), partitions=[1])])
    write_batch(s, topic, 1, partition=1)
    member.fetch("does not read what it forgot", max_wait_ms=EMPTY_MS)
    member.fetch("reads it again", 1)
    other = new("n", link="other")
    other.fetch("another member", 0, max_wait_ms=EMPTY_MS)
    member.acknowledge("closes", {0: [(1, 1, [ACCEPT])]}, share_session_epoch=-1)
    other.fetch("gets what was released", max_wait_ms=LONG_MS)
    other.fetch("a partition that is not there", 5)
    # A fetch of an unknown topic id fails as a whole in 4.3.1, as it did not mean to: it is UNKNOWN_SERVER_ERROR.
    ranges = [AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])]
    partitions = [AcknowledgePartition(partition_index=0, acknowledgement_batches=ranges)]
    topics = [AcknowledgeTopic(topic_id=_NO_SUCH_ID, partitions=partitions)]
    other.acknowledge("an unknown topic", {}, topics=topics)


def share_acquisition(s: Session) -> None:
    """The records that a fetch acquires: limits, acquire modes, second and third deliveries, deleted records."""
    topic = s.make_topic(partitions=3)
    new = make_share_group(s, topic, 3)
    for count in (4, 4, 4, 10):
        write_batch(s, topic, count)
    member = new()
    member.fetch("fewer than a batch", 0, max_records=2, batch_size=2)
    member.fetch("a batch and a half", max_records=6, batch_size=3)
    member.fetch("by records", max_records=3, batch_size=2, share_acquire_mode=1)
    member.fetch("the rest", share_acquire_mode=1)
    member.acknowledge("gives all back", {0: [(0, 21, [RELEASE])]})
    member.fetch("a second time", max_records=6)
    member.acknowledge("gives these back", {0: [(0, 7, [RELEASE])]})
    member.fetch("a third time, and others a second", max_records=100)
    strange = new("s", link="strange")
    strange.fetch("an unknown acquire mode", 0, share_acquire_mode=2)
    write_batch(s, topic, 3, partition=1)
    s.ask(
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=1, offset=2)])],
            timeout_ms=10_000,
        )
    )
    deleted = new("d", link="deleted")
    deleted.fetch("the start of the log has moved", 1)
    deleted.fetch("the record that is left")
    deleted.acknowledge("before the start of the log", {1: [(0, 1, [ACCEPT])]})
    write_batch(s, topic, 2, partition=2)
    one_byte = new("b", link="bytes")
    one_byte.fetch("one byte", 2, max_bytes=1)


def share_deliveries(s: Session) -> None:
    """Deliveries up to the limit of a group, and the end of locks."""
    topic = s.make_topic()
    new = make_share_group(s, topic, delivery_count_limit="3")
    write_batch(s, topic, 4)
    member = new()
    member.fetch("a first time", 0)
    for number in range(2, 8):
        member.fetch(f"released and fetched {number}", acks={0: [(0, 3, [RELEASE])]} if number == 2 else None)
        member.acknowledge(f"releases the rest {number}", {0: [(0, 0, [RELEASE])]})


def share_acknowledgements(s: Session) -> None:
    """Acknowledgements: types, ranges, records of other members, renewals, both APIs."""
    topic = s.make_topic(partitions=3)
    new = make_share_group(s, topic, 3)
    write_batch(s, topic, 20)
    member = new()
    member.fetch("acquires", 0)
    for label, ranges in (
        ("type 5", [(0, 0, [5])]),
        ("type -1", [(0, 0, [-1])]),
        ("the last before the first", [(1, 0, [1])]),
        ("no type", [(0, 0, [])]),
        ("too few types", [(0, 2, [1, 1])]),
        ("too many types", [(0, 0, [1, 1])]),
        ("descending", [(4, 5, [1]), (0, 1, [1])]),
        ("two that meet", [(0, 1, [1]), (1, 2, [1])]),
        ("a negative offset", [(-1, 0, [1])]),
        ("after all", [(19, 20, [1])]),
        ("far after all", [(100, 101, [1])]),
        ("one of each", [(0, 3, [0, 1, 2, 3])]),
        ("once more", [(1, 1, [1])]),
        ("one of them is bad", [(3, 4, [1])]),
        ("the good one of them", [(4, 4, [1])]),
        ("a renewal without the flag", [(5, 5, [RENEW])]),
        ("nothing", []),
    ):
        member.acknowledge(label, {0: ranges})
    member.acknowledge("never fetched", {1: [(0, 0, [1])]})
    member.acknowledge("not there", {7: [(0, 0, [1])]})
    member.acknowledge("one without any", {0: [(5, 5, [1])]})
    member.acknowledge("a renewal in version 1", {0: [(6, 6, [RENEW])]}, version=1)
    member.acknowledge("a renewal", {0: [(6, 6, [RENEW])]}, is_renew_ack=True)
    member.acknowledge("a renewal and others", {0: [(6, 8, [RENEW, 1, 2])]}, is_renew_ack=True)
    other = new("n", link="other")
    other.fetch("gets what was released", 0)
    other.acknowledge("another's record", {0: [(9, 9, [1])]})
    none = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    member.fetch("a renewal in a fetch", acks={0: [(9, 9, [RENEW])]}, is_renew_ack=True, **none)
    member.fetch(
        "a renewal and a fetch",
        acks={0: [(9, 9, [RENEW])]},
        is_renew_ack=True,
        **{**none, "max_records": 1},
    )
    member.acknowledge("closes", {}, share_session_epoch=-1)
    again = new("a", link="again")
    again.fetch("opens", 0)
    write_batch(s, topic, 2)
    again.fetch("acquires")
    again.fetch("accepts and fetches", acks={0: [(20, 20, [1])]}, max_wait_ms=EMPTY_MS)
    again.fetch("releases and fetches", acks={0: [(21, 21, [2])]})
    again.fetch("wrong and fetches", acks={0: [(50, 51, [1])]}, max_wait_ms=EMPTY_MS)
    again.fetch("a partition that only acknowledges joins", acks={2: [(0, 0, [1])]}, max_wait_ms=EMPTY_MS)
    again.fetch("closes", acks={0: [(21, 21, [1])]}, share_session_epoch=-1)


def share_of_nobody(s: Session) -> None:
    """A fetch for a group that no coordinator knows."""
    topic = s.make_topic()
    write_batch(s, topic, 1)
    make_share_group(s, topic, what="other")
    member = ShareReader(s, s.topic_id(topic), s.name("nobody"))
    member.fetch("opens", 0)
    member.acknowledge("acknowledges", {0: [(0, 0, [1])]})


SCRIPTS = (
    share_sessions,
    share_acquisition,
    share_deliveries,
    share_acknowledgements,
    share_of_nobody,
)
