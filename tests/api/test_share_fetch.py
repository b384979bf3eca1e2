"""ShareFetch over real leaders of share partitions: sessions, acquisition, waits, errors, answers.

Numbers of edge cases are those of Apache Kafka's behaviour that was measured with 4.3.1.
"""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.api import share_fetch
from pykbroker.net.promise import Promise
from pykbroker.replica.partition import Partition
from pykbroker.security.authorizer import Operation, Resource
from pykbroker.share_partitions.delivery_states import AVAILABLE, ShareLimits
from pykbroker.share_partitions.share_sessions import SessionMember
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.read_share_group_state import StateBatch
from pykbroker_wire.messages.share_fetch import FetchPartition, FetchTopic
from pykbroker_wire.records.batch import build_batch, iter_batches
from testkit.share_requests import ACCEPT, GROUP, MEMBER, RELEASE, RENEW, acquired, codes, outcomes
from tests.api.broker_half import Denied
from tests.api.share_half import ShareHalf, acknowledges, came, fetches, forgets
from tests.log.regions import BrokenRegion
from tests.replica.world import NOW_MS, topic_id

NONE = ErrorCode.NONE
UNKNOWN = b"no such topic id"


@pytest.fixture
def half() -> ShareHalf:
    return ShareHalf()


def waits(answer: Any) -> Promise:
    assert isinstance(answer, Promise)
    assert not answer.done()
    return answer


# -- acquiring --------------------------------------------------------------------------------------------------------


def test_a_member_acquires_what_the_log_has(half: ShareHalf) -> None:
    half.write(half.create(), 3, 2)
    answer = half.fetch(fetches(0))
    assert acquired(answer) == {0: [(0, 4, 1)]}
    assert answer.acquisition_lock_timeout_ms == 30_000
    assert answer.responses[0].topic_id == topic_id("t")
    assert half.fetch(fetches(0, epoch=1)).responses == []


def test_another_member_gets_the_records_that_follow(half: ShareHalf) -> None:
    partition = half.create()
    half.write(partition, 2)
    half.fetch(fetches(0))
    half.write(partition, 3)
    assert acquired(half.fetch(fetches(0, member_id="n"))) == {0: [(2, 4, 1)]}


def test_a_batch_is_acquired_as_a_whole_and_the_next_is_not_sent(half: ShareHalf) -> None:
    half.write(half.create(), 4, 4, 4)
    answer = half.fetch(fetches(0, max_records=5, batch_size=5))
    assert acquired(answer) == {0: [(0, 7, 1)]}
    assert [header.last_offset for _, header in iter_batches(answer.responses[0].partitions[0].records)] == [3, 7]


def test_a_limit_of_records_divides_a_batch(half: ShareHalf) -> None:
    half.write(half.create(), 4, 4)
    asked: dict[str, Any] = {"max_records": 5, "batch_size": 5, "share_acquire_mode": 1}
    assert acquired(half.fetch(fetches(0, **asked))) == {0: [(0, 4, 1)]}
    assert acquired(half.fetch(fetches(0, epoch=1, **asked))) == {0: [(5, 7, 1)]}


def test_an_unknown_acquire_mode_is_refused_as_a_whole(half: ShareHalf) -> None:
    half.write(half.create(), 1)
    answer = half.fetch(fetches(0, share_acquire_mode=2))
    assert (answer.error_code, answer.acquisition_lock_timeout_ms) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0)
    assert acquired(half.fetch(fetches(0))) == {0: [(0, 0, 1)]}, "nothing was locked"


def test_the_records_of_a_request_are_counted_over_its_partitions(half: ShareHalf) -> None:
    half.create(partitions=3)
    for index in range(3):
        half.write(half.replicas.get("t", index), 2, 2)
    found = acquired(half.fetch(fetches(0, 1, 2, max_records=5)))
    assert found == {0: [(0, 3, 1)], 1: [(0, 1, 1)], 2: []}


def test_partitions_that_had_records_go_last(half: ShareHalf) -> None:
    half.create(partitions=2)
    for index in range(2):
        half.write(half.replicas.get("t", index), 2, 2)
    half.fetch(fetches(0, 1, max_records=0))
    assert acquired(half.fetch(fetches(epoch=1, max_records=1))) == {0: [(0, 1, 1)]}
    assert acquired(half.fetch(fetches(epoch=2, max_records=1))) == {1: [(0, 1, 1)]}
    assert acquired(half.fetch(fetches(epoch=3, max_records=1))) == {0: [(2, 3, 1)]}


def test_bytes_are_divided_among_the_partitions(half: ShareHalf) -> None:
    half.create(partitions=2)
    for index in range(2):
        half.write(half.replicas.get("t", index), 1, 1, 1, 1)
    answer = half.fetch(fetches(0, 1, max_bytes=800))
    sizes = [len(each.records) for each in answer.responses[0].partitions]
    assert len(set(sizes)) == 1
    assert 0 < sizes[0] <= 400
    assert half.replicas.topic_metrics.bytes_out.value == sum(sizes)


def test_the_first_batch_comes_whole_however_small_the_limit(half: ShareHalf) -> None:
    half.write(half.create(), 2, 2)
    assert acquired(half.fetch(fetches(0, max_bytes=1))) == {0: [(0, 1, 1)]}


@pytest.mark.parametrize("nothing", [{"max_records": 0}, {"max_bytes": 0}])
def test_a_request_for_nothing_is_answered_at_once(half: ShareHalf, nothing: dict[str, Any]) -> None:
    """Edge case 15. The session advances, and no share partition is loaded."""
    half.write(half.create(), 1)
    assert half.fetch(fetches(0, max_wait_ms=500, **nothing)).responses == []
    assert len(half.leaders) == 0
    assert acquired(half.fetch(fetches(epoch=1))) == {0: [(0, 0, 1)]}


def test_only_committed_records_are_acquired_if_the_group_wants_them(half: ShareHalf) -> None:
    """Edge case 33: of an aborted transaction only the marker is acquired."""
    half.group_config = half.group_config._replace(read_committed=True)
    partition = half.create()
    half.write(partition, 1)
    aborted_transaction(partition, 3)
    half.write(partition, 1)
    assert acquired(half.fetch(fetches(0))) == {0: [(0, 0, 1), (4, 5, 1)]}


def test_aborted_records_are_acquired_by_a_group_that_reads_uncommitted(half: ShareHalf) -> None:
    """Edge case 34."""
    partition = half.create()
    half.write(partition, 1)
    aborted_transaction(partition, 3)
    assert acquired(half.fetch(fetches(0))) == {0: [(0, 4, 1)]}


def aborted_transaction(partition: Any, records: int) -> None:
    data = build_batch(
        [(None, b"t", (), NOW_MS)] * records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    guard = partition.start_verification(7, 0, 0, supports_epoch_bump=True)
    partition.append(bytearray(data), required_acks=1, now_ms=NOW_MS, verification=guard)
    partition.append_marker(
        producer_id=7, producer_epoch=1, commit=False, coordinator_epoch=0, transaction_version=2, now_ms=NOW_MS
    )


def test_batches_of_an_aborted_transaction_before_all_others_are_not_sent(half: ShareHalf) -> None:
    half.group_config = half.group_config._replace(read_committed=True)
    partition = half.create()
    aborted_transaction(partition, 3)
    half.write(partition, 1)
    answer = half.fetch(fetches(0))
    assert acquired(answer) == {0: [(3, 4, 1)]}
    assert next(iter_batches(answer.responses[0].partitions[0].records))[1].base_offset == 3


def test_a_start_after_the_end_of_the_log_is_waited_for(half: ShareHalf) -> None:
    """An unclean election can cut off records that the group has passed."""
    partition = half.create()
    half.write(partition, 1)
    half.keeper.start = 3
    waiting = waits(half.fetch(fetches(0, max_wait_ms=500)))
    half.write(partition, 2)
    assert not waiting.done()
    half.write(partition, 2)
    assert acquired(came(waiting)) == {0: [(3, 4, 1)]}


@pytest.mark.parametrize("most", [1, 500])
@pytest.mark.parametrize("is_acknowledged", [True, False])
def test_a_hole_that_is_larger_than_the_limit_of_records_is_passed(
    half: ShareHalf, most: int, is_acknowledged: bool
) -> None:
    """Compaction has removed the records between two batches. Apache Kafka acquires the records that follow, too."""
    partition = half.create()
    half.write(partition, 2)
    append_behind_a_hole(partition, 5000, 10)
    assert acquired(half.fetch(fetches(0, max_records=most))) == {0: [(0, 1, 1)]}
    acks = {0: [(0, 1, ACCEPT)]} if is_acknowledged else {}
    found = half.fetch(fetches(epoch=1, acks=acks, max_records=most))
    assert acquired(found) == {0: [(5000, 5009, 1)]}


def test_a_hole_in_released_records_is_passed(half: ShareHalf) -> None:
    """Compaction has removed them after their first delivery."""
    partition = half.create()
    append_behind_a_hole(partition, 5000, 10)
    half.keeper.stored = [StateBatch(last_offset=999, delivery_state=AVAILABLE, delivery_count=1)]
    assert acquired(half.fetch(fetches(0))) == {0: [(5000, 5009, 1)]}


def append_behind_a_hole(partition: Partition, offset: int, records: int) -> None:
    log = partition.log
    data = build_batch([(None, b"v", (), NOW_MS)] * records, base_offset=offset)
    log.append_as_follower(data, now_ms=NOW_MS)
    partition.advance()
    assert log.high_watermark == log.log_end_offset == offset + records


def test_deleted_records_are_passed_by_and_that_fetch_is_empty(half: ShareHalf) -> None:
    """Edge case 31."""
    partition = half.create()
    half.write(partition, 2)
    half.fetch(fetches(0))
    half.write(partition, 4)
    half.fetch(fetches(0, epoch=1, acks={0: [(0, 1, RELEASE)]}, max_records=0))
    partition.delete_records_before(3)
    assert half.fetch(fetches(epoch=2, max_wait_ms=500)).responses == []
    assert acquired(half.fetch(fetches(epoch=3))) == {0: [(3, 5, 1)]}


def test_a_cold_read_comes_before_any_acquisition(half: ShareHalf) -> None:
    half.create(partitions=2)
    for index in range(2):
        half.write(half.replicas.get("t", index), 2)
    half.fetch(fetches(0, 1, max_records=0))
    half.world.disk.make_cold()
    ctx = half.context(fetches(epoch=1))
    answer = share_fetch.handle(ctx, fetches(epoch=1))
    assert isinstance(answer, Promise)
    assert not answer.done()
    assert all(not list(leader.machine.locks()) for leader in half.leaders)
    half.loop.settle()
    assert acquired(came(answer)) == {0: [(0, 1, 1)], 1: [(0, 1, 1)]}


def test_a_client_that_goes_during_a_cold_read_acquires_nothing(half: ShareHalf) -> None:
    half.write(half.create(), 2)
    half.fetch(fetches(0, max_records=0))
    half.fetch(fetches(0, member_id="n", max_records=0), connection=2)
    half.world.disk.make_cold()
    answer = share_fetch.handle(half.context(fetches(epoch=1)), fetches(epoch=1))
    assert isinstance(answer, Promise)
    half.leaders.disconnected(1)
    answer.cancel()
    half.loop.settle()
    assert acquired(half.fetch(fetches(epoch=1, member_id="n"), connection=2)) == {0: [(0, 1, 1)]}


def test_headers_that_cannot_be_read_take_the_directory_offline(
    half: ShareHalf, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = half.create()
    half.write(partition, 2)
    whole = partition.log.read(0, 1_000_000, 2)
    whole.slices = [BrokenRegion(whole.joined())]
    monkeypatch.setattr(Partition, "read", lambda *_, **__: whole)
    assert codes(half.fetch(fetches(0, max_wait_ms=500))) == {0: (ErrorCode.KAFKA_STORAGE_ERROR, NONE)}
    assert partition.offline


# -- waiting ----------------------------------------------------------------------------------------------------------


def test_a_fetch_waits_for_records(half: ShareHalf) -> None:
    partition = half.create()
    answer = waits(half.fetch(fetches(0, max_wait_ms=500)))
    half.write(partition, 2)
    assert acquired(came(answer)) == {0: [(0, 1, 1)]}
    assert half.replicas.purgatory.count == 0


def test_a_fetch_waits_no_longer_than_it_asks_for(half: ShareHalf) -> None:
    half.create()
    answer = waits(half.fetch(fetches(0, max_wait_ms=500)))
    half.loop.advance(0.49)
    assert not answer.done()
    half.loop.advance(0.02)
    assert acquired(came(answer)) == {0: []}, "the answer that opens a session has every partition"


def test_a_fetch_waits_for_its_bytes(half: ShareHalf) -> None:
    partition = half.create()
    answer = waits(half.fetch(fetches(0, max_wait_ms=500, min_bytes=250)))
    half.write(partition, 1)
    assert not answer.done()
    half.write(partition, 1)
    assert acquired(came(answer)) == {0: [(0, 1, 1)]}


def test_the_first_fetch_that_waits_gets_the_records(half: ShareHalf) -> None:
    partition = half.create()
    first = waits(half.fetch(fetches(0, max_wait_ms=500)))
    second = waits(half.fetch(fetches(0, member_id="n", max_wait_ms=500)))
    half.write(partition, 2)
    assert acquired(came(first)) == {0: [(0, 1, 1)]}
    assert not second.done()
    half.write(partition, 1)
    assert acquired(came(second)) == {0: [(2, 2, 1)]}


def test_a_release_wakes_a_fetch_that_waits(half: ShareHalf) -> None:
    half.write(half.create(), 2)
    half.fetch(fetches(0))
    waiting = waits(half.fetch(fetches(0, member_id="n", max_wait_ms=500)))
    assert outcomes(half.acknowledge(acknowledges({0: [(0, 1, RELEASE)]}))) == {0: NONE}
    assert acquired(came(waiting)) == {0: [(0, 1, 2)]}


def test_a_lock_that_times_out_wakes_a_fetch_that_waits(half: ShareHalf) -> None:
    """Edge case 28."""
    half.write(half.create(), 2)
    half.fetch(fetches(0))
    waiting = waits(half.fetch(fetches(0, member_id="n", max_wait_ms=60_000)))
    half.loop.advance(29.9)
    assert not waiting.done()
    half.loop.advance(0.2)
    assert acquired(came(waiting)) == {0: [(0, 1, 2)]}


def test_at_the_limit_of_locks_a_fetch_waits(half: ShareHalf) -> None:
    half.group_config = half.group_config._replace(limits=ShareLimits(record_locks=4))
    half.write(half.create(), 4, 4)
    half.fetch(fetches(0))
    waiting = waits(half.fetch(fetches(epoch=1, max_wait_ms=500, min_bytes=0)))
    half.acknowledge(acknowledges({0: [(0, 3, ACCEPT)]}, epoch=2))
    assert waiting.done()


def test_a_fetch_waits_for_the_load(half: ShareHalf) -> None:
    half.keeper.waits = True
    half.write(half.create(), 2)
    waiting = waits(half.fetch(fetches(0, max_wait_ms=500)))
    half.keeper.answer()
    half.loop.settle()
    assert acquired(came(waiting)) == {0: [(0, 1, 1)]}


def test_an_error_of_the_load_is_the_answer(half: ShareHalf) -> None:
    """Edge case 10: nobody has joined the group, so the share coordinator does not know the partition."""
    half.keeper.waits = True
    half.write(half.create(), 2)
    waiting = waits(half.fetch(fetches(0, max_wait_ms=500)))
    half.keeper.error = ErrorCode.INVALID_REQUEST
    half.keeper.answer()
    half.loop.settle()
    assert codes(came(waiting)) == {0: (ErrorCode.UNKNOWN_SERVER_ERROR, NONE)}


def test_a_leader_that_moves_ends_the_wait_and_is_named(half: ShareHalf) -> None:
    partition = half.create(replicas=(1, 2))
    half.with_broker(2)
    waiting = waits(half.fetch(fetches(0, max_wait_ms=500)))
    half.world.change(partition, leader=2)
    half.loop.settle()
    answer = came(waiting)
    assert codes(answer) == {0: (ErrorCode.NOT_LEADER_OR_FOLLOWER, NONE)}
    named = answer.responses[0].partitions[0].current_leader
    assert (named.leader_id, named.leader_epoch) == (2, 1)
    assert [(each.node_id, each.host) for each in answer.node_endpoints] == [(2, "host2")]


def test_a_client_that_has_gone_acquires_nothing(half: ShareHalf) -> None:
    partition = half.create()
    waiting = waits(half.fetch(fetches(0, max_wait_ms=500)))
    half.leaders.disconnected(1)
    waiting.cancel()
    half.loop.settle()
    half.write(partition, 2)
    assert half.replicas.purgatory.count == 0
    assert acquired(half.fetch(fetches(0, member_id="n"))) == {0: [(0, 1, 1)]}


def test_what_was_acquired_for_a_client_that_has_gone_is_given_back(half: ShareHalf) -> None:
    """Its session lives on, because another connection has opened it."""
    partition = half.create()
    half.write(partition, 2)
    half.fetch(fetches(0))
    half.fetch(fetches(0, member_id="n"))
    half.write(partition, 2)
    half.keeper.waits = True
    waiting = waits(half.fetch(fetches(epoch=1, acks={0: [(0, 1, ACCEPT)]}), connection=2))
    half.leaders.disconnected(2)
    waiting.cancel()
    half.keeper.answer()
    assert acquired(half.fetch(fetches(epoch=1, member_id="n"))) == {0: [(2, 3, 1)]}


def test_a_cold_read_of_a_client_that_has_gone_acquires_nothing(half: ShareHalf) -> None:
    """As above."""
    half.write(half.create(), 2)
    half.fetch(fetches(0, max_records=0))
    half.fetch(fetches(0, member_id="n", max_records=0))
    half.world.disk.make_cold()
    waiting = share_fetch.handle(half.context(fetches(epoch=1)), fetches(epoch=1))
    assert isinstance(waiting, Promise)
    waiting.cancel()
    half.loop.settle()
    assert acquired(half.fetch(fetches(epoch=1, member_id="n"))) == {0: [(0, 1, 1)]}


def test_a_wait_ends_with_its_request(half: ShareHalf) -> None:
    half.create()
    waits(half.fetch(fetches(0, max_wait_ms=500))).cancel()
    half.loop.settle()
    assert half.replicas.purgatory.count == 0
    assert not any(leader.fetch_waiters for leader in half.leaders)


def test_what_was_acquired_for_a_session_that_has_ended_is_given_back(half: ShareHalf) -> None:
    """The acknowledgements of its request are answered."""
    partition = half.create()
    half.write(partition, 2)
    half.fetch(fetches(0))
    half.fetch(fetches(0, member_id="n"))
    half.write(partition, 2)
    half.keeper.waits = True
    earlier = waits(half.fetch(fetches(epoch=1, acks={0: [(0, 1, ACCEPT)]})))
    half.fetch(fetches(0, max_records=0))
    half.keeper.answer()
    answer = came(earlier)
    assert answer.error_code == NONE
    assert acquired(answer) == {0: []}
    assert answer.responses[0].partitions[0].acknowledge_error_code == NONE
    assert acquired(half.fetch(fetches(epoch=1, member_id="n"))) == {0: [(2, 3, 1)]}


def test_two_fetches_of_a_session_that_wait_are_both_answered(half: ShareHalf) -> None:
    """As in Apache Kafka, the earlier one gets the records."""
    partition = half.create()
    half.fetch(fetches(0))
    earlier = waits(half.fetch(fetches(epoch=1, max_wait_ms=500)))
    later = waits(half.fetch(fetches(epoch=2, max_wait_ms=500)))
    half.write(partition, 2)
    assert acquired(came(earlier)) == {0: [(0, 1, 1)]}
    half.loop.advance(0.6)
    answer = came(later)
    assert (answer.error_code, acquired(answer)) == (NONE, {})


def test_a_fetch_that_waits_stays_when_its_session_acknowledges(half: ShareHalf) -> None:
    partition = half.create()
    half.write(partition, 2)
    half.fetch(fetches(0))
    waiting = waits(half.fetch(fetches(epoch=1, max_wait_ms=500)))
    assert half.acknowledge(acknowledges({0: [(0, 1, ACCEPT)]}, epoch=2)).error_code == NONE
    assert not waiting.done()
    half.write(partition, 2)
    assert acquired(came(waiting)) == {0: [(2, 3, 1)]}


def test_a_fetch_that_waits_while_its_session_is_closed_is_empty(half: ShareHalf) -> None:
    half.create()
    half.fetch(fetches(0))
    waiting = waits(half.fetch(fetches(epoch=1, max_wait_ms=500)))
    half.fetch(fetches(epoch=-1))
    half.loop.advance(0.6)
    answer = came(waiting)
    assert (answer.error_code, answer.responses) == (NONE, [])


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_the_checks_come_in_their_order(half: ShareHalf) -> None:
    """Edge case 14."""

    def code(**fields: Any) -> ErrorCode:
        answer = half.fetch(fetches(0, **fields))
        assert answer.acquisition_lock_timeout_ms == 0
        assert answer.responses == []
        return ErrorCode(answer.error_code)

    half.create()
    assert code(group_id=None) == ErrorCode.INVALID_REQUEST
    for member in ("", None, "m" * 37):
        assert code(member_id=member) == ErrorCode.INVALID_REQUEST
    assert code(is_renew_ack=True) == ErrorCode.INVALID_REQUEST
    assert code(epoch=5) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code(epoch=-1) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code(acks={0: [(0, 0, ACCEPT)]}) == ErrorCode.INVALID_REQUEST
    half.services.authorizer = Denied((Operation.READ, Resource.GROUP, GROUP))
    assert code(member_id="") == ErrorCode.GROUP_AUTHORIZATION_FAILED
    half.share_version(0)
    assert code(group_id=None) == ErrorCode.UNSUPPORTED_VERSION
    assert len(half.leaders.sessions) == 0


def test_a_wrong_epoch_is_refused(half: ShareHalf) -> None:
    half.create()
    half.fetch(fetches(0))
    assert half.fetch(fetches(epoch=2)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert half.fetch(fetches(epoch=1)).error_code == NONE


def test_a_full_cache_is_answered_after_the_max_wait() -> None:
    half = ShareHalf(most_sessions=1)
    half.create()
    half.fetch(fetches(0))
    waiting = waits(half.fetch(fetches(0, member_id="n", max_wait_ms=500)))
    half.loop.advance(0.51)
    assert came(waiting).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert half.fetch(fetches(0, member_id="n")).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_a_broker_that_shuts_down_opens_no_session() -> None:
    """Its leaderships have not moved yet when clients come back for the records that it has released."""
    half = ShareHalf()
    half.write(half.create(), 2)
    half.fetch(fetches(0))
    half.leaders.close()
    assert half.keeper.writes[-1] == [(0, 1, AVAILABLE, 1)]
    assert half.fetch(fetches(epoch=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    waiting = waits(half.fetch(fetches(0, max_wait_ms=500)))
    half.loop.advance(0.51)
    assert came(waiting).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert len(half.leaders) == 0


def test_refused_members_are_bounded_by_the_number_of_parked_requests() -> None:
    half = ShareHalf(most_sessions=1)
    half.create()
    half.fetch(fetches(0))
    purgatory = half.replicas.purgatory
    purgatory.most = 2
    waiting = [waits(half.fetch(fetches(0, member_id=name, max_wait_ms=500))) for name in "no"]
    assert half.fetch(fetches(0, member_id="p", max_wait_ms=500)).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    waiting.pop().cancel()
    waits(half.fetch(fetches(0, member_id="p", max_wait_ms=500))).cancel()
    assert purgatory.count == 1
    half.loop.advance(0.51)
    assert came(waiting[0]).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert purgatory.count == 0


def test_an_incremental_answer_has_news_only(half: ShareHalf) -> None:
    half.create(partitions=2)
    assert acquired(half.fetch(fetches(0, 1))) == {0: [], 1: []}
    half.write(half.replicas.get("t", 1), 1)
    assert acquired(half.fetch(fetches(epoch=1))) == {1: [(0, 0, 1)]}
    assert half.fetch(fetches(epoch=2)).responses == []


def test_a_forgotten_partition_is_no_longer_read_and_is_released_at_the_end(half: ShareHalf) -> None:
    half.create(partitions=2)
    for index in range(2):
        half.write(half.replicas.get("t", index), 1)
    half.fetch(fetches(0, 1))
    half.fetch(fetches(0, 1, member_id="n"))
    half.write(half.replicas.get("t", 0), 1)
    assert half.fetch(fetches(epoch=1, forgotten_topics_data=forgets(0))).responses == []
    assert half.fetch(fetches(epoch=-1)).responses == []
    found = acquired(half.fetch(fetches(epoch=1, member_id="n")))
    assert found == {0: [(0, 0, 2), (1, 1, 1)], 1: [(0, 0, 2)]}


def test_partitions_that_do_not_exist_are_not_remembered(half: ShareHalf) -> None:
    half.create()
    half.fetch(fetches(0))
    half.fetch(fetches(7, epoch=1))
    half.fetch(fetches(epoch=2, forgotten_topics_data=forgets(0, 7)))
    session = half.leaders.sessions.peek(SessionMember(GROUP, MEMBER))
    assert session is not None
    assert session.all_partitions() == ((topic_id("t"), 0),)


def test_a_session_that_is_opened_anew_keeps_its_locks(half: ShareHalf) -> None:
    """Edge case 30."""
    half.write(half.create(), 2)
    half.fetch(fetches(0))
    assert acquired(half.fetch(fetches(0))) == {0: []}
    assert outcomes(half.acknowledge(acknowledges({0: [(0, 1, ACCEPT)]}))) == {0: NONE}


def test_a_session_that_is_opened_anew_releases_what_it_no_longer_reads(half: ShareHalf) -> None:
    half.write(half.create(), 2)
    half.fetch(fetches(0))
    half.fetch(fetches(0, member_id="n"))
    half.fetch(fetches())
    assert acquired(half.fetch(fetches(epoch=1, member_id="n"))) == {0: [(0, 1, 2)]}


def test_an_unknown_topic_id_and_a_topic_that_was_deleted(half: ShareHalf) -> None:
    """Edge cases 23 and 38."""
    half.create()
    topics = [
        FetchTopic(topic_id=UNKNOWN, partitions=[FetchPartition(partition_index=7)]),
        FetchTopic(topic_id=topic_id("t"), partitions=[FetchPartition(partition_index=index) for index in (0, 5)]),
    ]
    assert codes(half.fetch(fetches(topics=topics))) == {
        7: (ErrorCode.UNKNOWN_TOPIC_ID, NONE),
        0: (NONE, NONE),
        5: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE),
    }
    half.world.delete("t")
    half.share_version(1)
    answer = codes(half.fetch(fetches(epoch=1, max_wait_ms=500)))
    assert answer[0] == answer[5] == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE)


def test_a_topic_that_may_not_be_read(half: ShareHalf) -> None:
    half.write(half.create(), 2)
    half.services.authorizer = Denied((Operation.READ, Resource.TOPIC, "t"))
    assert codes(half.fetch(fetches(0, max_wait_ms=500))) == {0: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NONE)}
    assert len(half.leaders) == 0


# -- acknowledgements in a fetch --------------------------------------------------------------------------------------


def test_a_release_and_a_fetch_in_one_request(half: ShareHalf) -> None:
    """Edge case 25: the same fetch returns the released records."""
    half.write(half.create(), 2)
    half.fetch(fetches(0))
    answer = half.fetch(fetches(epoch=1, acks={0: [(0, 1, RELEASE)]}, max_wait_ms=500))
    assert acquired(answer) == {0: [(0, 1, 2)]}
    assert codes(answer) == {0: (NONE, NONE)}


def test_acknowledgements_are_answered_together_with_the_fetch(half: ShareHalf) -> None:
    half.write(half.create(), 2)
    half.fetch(fetches(0))
    waiting = waits(half.fetch(fetches(epoch=1, acks={0: [(0, 5, ACCEPT)]}, max_wait_ms=500)))
    half.loop.advance(0.51)
    assert codes(came(waiting)) == {0: (NONE, ErrorCode.INVALID_REQUEST)}


def test_an_answer_waits_for_the_write_of_its_acknowledgements(half: ShareHalf) -> None:
    partition = half.create()
    half.write(partition, 2)
    half.fetch(fetches(0))
    half.write(partition, 1)
    half.keeper.waits = True
    waiting = waits(half.fetch(fetches(epoch=1, acks={0: [(0, 1, ACCEPT)]})))
    assert half.keeper.writes == [[(0, 1, 2, 1)]]
    half.keeper.answer()
    assert acquired(came(waiting)) == {0: [(2, 2, 1)]}


def test_partitions_without_acknowledgements_are_named_with_those_that_have_some(half: ShareHalf) -> None:
    half.create(partitions=2)
    half.write(half.replicas.get("t", 0), 2)
    half.fetch(fetches(0, 1))
    answer = half.fetch(fetches(1, epoch=1, acks={0: [(0, 1, ACCEPT)]}))
    assert codes(answer) == {0: (NONE, NONE), 1: (NONE, NONE)}


def test_a_renewal_fetches_nothing(half: ShareHalf) -> None:
    partition = half.create()
    half.write(partition, 2)
    half.fetch(fetches(0))
    half.write(partition, 2)
    limits: dict[str, Any] = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    half.fetch(fetches(epoch=1, topics=[FetchTopic(topic_id=UNKNOWN, partitions=[FetchPartition(partition_index=7)])]))
    answer = half.fetch(fetches(epoch=2, acks={0: [(0, 1, RENEW)]}, is_renew_ack=True, **limits))
    assert acquired(answer) == {0: []}, "nothing is answered about the other partition of the session"
    assert codes(answer) == {0: (NONE, NONE)}


def test_the_request_that_closes_a_session_acknowledges_and_then_releases(half: ShareHalf) -> None:
    """Edge case 27."""
    half.write(half.create(), 4)
    half.fetch(fetches(0))
    half.fetch(fetches(0, member_id="n"))
    assert codes(half.fetch(fetches(epoch=-1, acks={0: [(0, 1, ACCEPT)]}))) == {0: (NONE, NONE)}
    assert len(half.leaders.sessions) == 1
    assert acquired(half.fetch(fetches(epoch=1, member_id="n"))) == {0: [(2, 3, 2)]}
    assert half.fetch(fetches(epoch=-1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_session_that_is_opened_anew_meanwhile_is_not_closed(half: ShareHalf) -> None:
    half.write(half.create(), 2)
    half.fetch(fetches(0))
    half.keeper.waits = True
    closing = waits(half.fetch(fetches(epoch=-1, acks={0: [(0, 1, ACCEPT)]})))
    half.fetch(fetches(0))
    half.keeper.answer()
    assert codes(came(closing)) == {0: (NONE, NONE)}
    assert len(half.leaders.sessions) == 1
