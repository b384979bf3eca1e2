"""Share sessions of a member: epochs, partitions that come and go, and what is acknowledged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykbroker.tools.cluster.share_member_session import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    MemberSession,
    SharedPlace,
    acknowledgements,
)
from pykbroker_wire.messages.share_acknowledge import ShareAcknowledgeRequest
from pykbroker_wire.messages.share_fetch import AcquiredRecords, ShareFetchRequest

A, B = b"a" * 16, b"b" * 16


def acquired(first: int, last: int, count: int = 1) -> AcquiredRecords:
    return AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)


def fetch(session: MemberSession, *places: SharedPlace) -> ShareFetchRequest:
    return session.fetch(places, max_records=10, exactly=True, max_wait_ms=200)


def added(request: ShareFetchRequest) -> set[SharedPlace]:
    return {(topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions}


def forgotten(request: ShareFetchRequest) -> set[SharedPlace]:
    return {(topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions}


def acknowledged(request: ShareAcknowledgeRequest) -> dict[SharedPlace, list[tuple[int, int, list[int]]]]:
    return {
        (topic.topic_id, one.partition_index): [
            (each.first_offset, each.last_offset, each.acknowledge_types) for each in one.acknowledgement_batches
        ]
        for topic in request.topics
        for one in topic.partitions
    }


def test_the_first_fetch_has_all_partitions_and_later_ones_only_changes() -> None:
    session = MemberSession("g", "m")
    first = fetch(session, (A, 0), (A, 1), (B, 0))
    assert (first.group_id, first.member_id, first.share_session_epoch) == ("g", "m", 0)
    assert (first.max_records, first.batch_size, first.share_acquire_mode, first.max_wait_ms) == (10, 10, 1, 200)
    assert (added(first), forgotten(first)) == ({(A, 0), (A, 1), (B, 0)}, set())
    assert not session.is_open
    session.answered()
    assert session.is_open
    second = fetch(session, (A, 1), (B, 0), (B, 1))
    assert second.share_session_epoch == 1
    assert (added(second), forgotten(second)) == ({(B, 1)}, {(A, 0)})
    session.answered()
    third = fetch(session, (A, 1), (B, 0), (B, 1))
    assert (added(third), forgotten(third)) == (set(), set())


def test_a_fetch_of_whole_batches() -> None:
    assert MemberSession("g", "m").fetch([], max_records=5, exactly=False, max_wait_ms=0).share_acquire_mode == 0


def test_an_acknowledgement_has_the_next_epoch_too() -> None:
    session = MemberSession("g", "m")
    fetch(session, (A, 0))
    session.answered()
    request = session.acknowledge({(A, 0): [(3, 5, ACCEPT), (6, 6, GAP)]})
    assert request.share_session_epoch == 1
    assert acknowledged(request) == {(A, 0): [(3, 5, [ACCEPT]), (6, 6, [GAP])]}
    session.answered()
    assert fetch(session, (A, 0)).share_session_epoch == 2
    session.answered()
    closing = session.acknowledge({}, closes=True)
    assert (closing.share_session_epoch, closing.topics) == (-1, [])


def test_a_lost_session_begins_again_with_all_partitions() -> None:
    session = MemberSession("g", "m")
    fetch(session, (A, 0))
    session.answered()
    session.lost()
    assert not session.is_open
    again = fetch(session, (A, 0))
    assert (again.share_session_epoch, added(again), forgotten(again)) == (0, {(A, 0)}, set())


def test_epochs_begin_again_at_one() -> None:
    session = MemberSession("g", "m")
    session._epoch = 2**31 - 1
    session.answered()
    assert fetch(session).share_session_epoch == 1


def test_offsets_without_a_record_are_gaps() -> None:
    ranges = [acquired(0, 4), acquired(8, 9, 2)]
    assert acknowledgements(ranges, {0: REJECT, 1: REJECT, 4: RELEASE, 9: REJECT}) == [
        (0, 1, REJECT), (2, 3, GAP), (4, 4, RELEASE), (8, 8, GAP), (9, 9, REJECT)
    ]  # fmt: skip
    assert acknowledgements(ranges, {}) == [(0, 4, GAP), (8, 9, GAP)]


def test_nothing_after_the_last_record_is_acknowledged() -> None:
    ranges = [acquired(0, 4), acquired(5, 9)]
    assert acknowledgements(ranges, {0: ACCEPT, 1: ACCEPT}, last=1) == [(0, 1, ACCEPT)]
    assert acknowledgements(ranges, dict.fromkeys(range(5), ACCEPT), last=4) == [(0, 4, ACCEPT)]


@given(st.data())
def test_every_acquired_offset_is_acknowledged_once(data: st.DataObject) -> None:
    bounds = sorted(data.draw(st.sets(st.integers(0, 60), min_size=2)))
    ranges = [acquired(first, last - 1) for first, last in zip(bounds[::2], bounds[1::2], strict=False)]
    offsets = [offset for one in ranges for offset in range(one.first_offset, one.last_offset + 1)]
    records = sorted(data.draw(st.sets(st.sampled_from(offsets))))
    last = data.draw(st.none() | st.sampled_from(offsets))
    if last is not None:
        records = [offset for offset in records if offset <= last]
    found = [
        (offset, kind)
        for first, end, kind in acknowledgements(ranges, dict.fromkeys(records, ACCEPT), last)
        for offset in range(first, end + 1)
    ]
    assert found == [
        (offset, ACCEPT if offset in records else GAP) for offset in offsets if last is None or offset <= last
    ]
