"""A member of a share group, with a cluster whose answers are scripted: what it asks, and when it acknowledges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from pykbroker.tools.cluster import asked_cluster, share_group_reader
from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterSettings, PartitionName
from pykbroker.tools.cluster.failure import AskFailed, NoAnswer, failed, no_connection, timed_out
from pykbroker.tools.cluster.share_group_reader import ShareGroupReader, WantedShare
from pykbroker.tools.cluster.share_member_session import ACCEPT, REJECT, RENEW
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import metadata, share_acknowledge, share_fetch, share_group_heartbeat
from pykbroker_wire.records.batch import build_batch

TOPIC = b"t" * 16
COORDINATOR = 9


def partition(index: int, first: int, last: int, count: int = 1) -> share_fetch.PartitionData:
    data = build_batch([(None, b"%d" % at, (), at) for at in range(first, last + 1)], base_offset=first)
    acquired = [share_fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)]
    return share_fetch.PartitionData(partition_index=index, records=memoryview(data), acquired_records=acquired)


#: the partitions of an answer, a failure, or a function that returns the partitions
Fetched = list[share_fetch.PartitionData] | AskFailed | Callable[[], list[share_fetch.PartitionData]]


class Scripted(AskedCluster):
    """A cluster of brokers that answer fetches with `fetched[node]`, and everything else at once."""

    def __init__(self, leaders: Mapping[int, int]) -> None:
        self._gives_up = False
        self.leaders = dict(leaders)
        self.assigned = sorted(leaders)
        self.fetched: dict[int, list[Fetched]] = {}
        self.acknowledgement_error = 0
        self.heartbeat_error = 0
        self.metadata_error: Exception | None = None
        self.serves: dict[int, tuple[int, int]] = {ApiKey.SHARE_FETCH: (1, 2)}
        self.waits_until: list[float] = []
        #: node and message of each request but for metadata
        self.asked: list[tuple[int | None, Any]] = []

    def refresh(self) -> None:
        pass

    def give_up(self, seconds: float = 5.0) -> None:
        pass

    def wait_until(self, at: float) -> None:
        self.waits_until.append(at)

    def versions(self, node: int | None = None) -> Mapping[int, tuple[int, int]]:
        return self.serves

    def coordinators(self, keys: Iterable[str], *, of_transactions: bool = False) -> dict[str, int]:
        return dict.fromkeys(keys, COORDINATOR)

    def settled(self, attempt: Callable[[], Any]) -> Any:
        return attempt()

    def ask(self, message: Any, answer: Any, *, node: int | None = None, **limits: Any) -> Any:
        if isinstance(message, metadata.MetadataRequest):
            if self.metadata_error is not None:
                raise self.metadata_error
            leaders = [
                metadata.MetadataResponsePartition(partition_index=index, leader_id=leader)
                for index, leader in self.leaders.items()
            ]
            return metadata.MetadataResponse(
                topics=[metadata.MetadataResponseTopic(name="t", topic_id=TOPIC, partitions=leaders)]
            )
        self.asked.append((node, message))
        if isinstance(message, share_group_heartbeat.ShareGroupHeartbeatRequest):
            return self._beaten(message)
        if isinstance(message, share_acknowledge.ShareAcknowledgeRequest):
            rows = [
                share_acknowledge.PartitionData(
                    partition_index=one.partition_index, error_code=self.acknowledgement_error
                )
                for topic in message.topics
                for one in topic.partitions
            ]
            topic = share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=TOPIC, partitions=rows)
            return share_acknowledge.ShareAcknowledgeResponse(responses=[topic])
        found: Fetched = self.fetched[node or 0].pop(0) if self.fetched.get(node or 0) else []
        if isinstance(found, AskFailed):
            raise found
        partitions = found() if callable(found) else found
        fetched = share_fetch.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=partitions)
        return share_fetch.ShareFetchResponse(responses=[fetched])

    def _beaten(self, message: share_group_heartbeat.ShareGroupHeartbeatRequest) -> Any:
        if self.heartbeat_error and message.member_epoch > 0:
            code, self.heartbeat_error = self.heartbeat_error, 0
            return share_group_heartbeat.ShareGroupHeartbeatResponse(error_code=code)
        partitions = share_group_heartbeat.TopicPartitions(topic_id=TOPIC, partitions=self.assigned)
        return share_group_heartbeat.ShareGroupHeartbeatResponse(
            member_epoch=message.member_epoch + 1,
            heartbeat_interval_ms=0,
            assignment=share_group_heartbeat.Assignment(topic_partitions=[partitions]),
        )

    def acknowledged(self) -> list[tuple[int | None, int, list[tuple[int, int, list[int]]]]]:
        """Return the node, the epoch and the ranges of each ShareAcknowledge."""
        return [
            (
                node,
                message.share_session_epoch,
                [
                    (each.first_offset, each.last_offset, each.acknowledge_types)
                    for topic in message.topics
                    for one in topic.partitions
                    for each in one.acknowledgement_batches
                ],
            )
            for node, message in self.asked
            if isinstance(message, share_acknowledge.ShareAcknowledgeRequest)
        ]

    def fetch_epochs(self, node: int) -> list[int]:
        return [
            message.share_session_epoch
            for at, message in self.asked
            if at == node and isinstance(message, share_fetch.ShareFetchRequest)
        ]


def reader(
    cluster: Scripted,
    *,
    count: int | None = None,
    kind: int = ACCEPT,
    refused: list[Any] | None = None,
    follows: bool = True,
) -> ShareGroupReader:
    def on_acknowledged(place: PartitionName, offsets: Sequence[int], error: AskFailed | None) -> None:
        if error is not None:
            assert refused is not None, error
            refused.append((place, error.code))

    return ShareGroupReader(cluster, WantedShare("g", ["t"], kind, count=count, follows=follows), on_acknowledged)


class Time:
    """A clock that only `sleep` and fetches advance."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        self.now += 0.01
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(share_group_reader, "time", clock)
    return clock


def test_a_batch_is_acknowledged_when_the_next_one_is_asked_for() -> None:
    cluster = Scripted({0: 1, 1: 2})
    cluster.fetched = {1: [[partition(0, 0, 4)]], 2: [[partition(1, 7, 8, 3)]]}
    share = reader(cluster, kind=REJECT)
    batches = share.batches()
    assert [(one.partition, one.offset) for one in next(batches)] == [(0, offset) for offset in range(5)]
    assert cluster.acknowledged() == []
    assert [(one.partition, one.offset, one.delivery_count) for one in next(batches)] == [(1, 7, 3), (1, 8, 3)]
    assert cluster.acknowledged() == [(1, 1, [(0, 4, [REJECT])])]
    share.close()
    assert cluster.acknowledged()[1:] == [(2, 1, [(7, 8, [REJECT])]), (1, -1, []), (2, -1, [])]
    node, left = cluster.asked[-1]
    assert (node, left.member_epoch, left.subscribed_topic_names) == (COORDINATOR, -1, None)


def test_a_record_that_is_renewed_comes_again_without_a_fetch() -> None:
    cluster = Scripted({0: 1})
    cluster.fetched = {1: [[partition(0, 0, 3)], [partition(0, 4, 4)]]}
    share = reader(cluster)
    batches = share.batches()
    for record in next(batches)[1:3]:
        share.acknowledge_as(record, RENEW)
    again = next(batches)
    assert [record.offset for record in again] == [1, 2]
    share.acknowledge_as(again[0], RENEW)
    share.acknowledge_as(again[1], REJECT)
    assert [record.offset for record in next(batches)] == [1]
    assert cluster.fetch_epochs(1) == [0]
    assert [record.offset for record in next(batches)] == [4]
    share.close()
    ranges = [(0, 0, [ACCEPT]), (1, 2, [RENEW]), (3, 3, [ACCEPT])], [(1, 1, [RENEW]), (2, 2, [REJECT])]
    assert [found for _, _, found in cluster.acknowledged()] == [*ranges, [(1, 1, [ACCEPT])], [(4, 4, [ACCEPT])], []]
    sent = [each for _, each in cluster.asked if isinstance(each, share_acknowledge.ShareAcknowledgeRequest)]
    assert [each.is_renew_ack for each in sent] == [True, True, False, False, False]


def test_a_renewal_that_is_refused_or_stopped_brings_no_record() -> None:
    cluster = Scripted({0: 1})
    cluster.fetched = {1: [[partition(0, 0, 0)], [partition(0, 1, 1)], [partition(0, 2, 2)]]}
    refused: list[Any] = []
    share = reader(cluster, refused=refused)
    batches = share.batches()
    share.acknowledge_as(next(batches)[0], RENEW)
    cluster.acknowledgement_error = ErrorCode.INVALID_RECORD_STATE
    (record,) = next(batches)
    assert record.offset == 1
    assert refused == [(("t", 0), ErrorCode.INVALID_RECORD_STATE)]
    cluster.acknowledgement_error = 0
    share.acknowledge_as(record, RENEW)
    share.stop()
    assert list(batches) == []


def test_a_batch_that_was_not_printed_is_not_acknowledged() -> None:
    cluster = Scripted({0: 1})
    cluster.fetched = {1: [[partition(0, 0, 4)]]}
    share = reader(cluster)
    assert next(share.batches())
    share.close(printed_all=False)
    assert cluster.acknowledged() == [(1, -1, [])]


def test_no_more_than_the_count_is_acquired_and_acknowledged() -> None:
    cluster = Scripted({0: 1, 1: 1})
    cluster.fetched = {1: [[partition(0, 0, 9), partition(1, 0, 9)]]}
    share = reader(cluster, count=13)
    assert [len(batch) for batch in share.batches()] == [13]
    (fetch,) = (message for _, message in cluster.asked if isinstance(message, share_fetch.ShareFetchRequest))
    assert (fetch.max_records, fetch.share_acquire_mode) == (13, 1)
    assert cluster.acknowledged() == [(1, 1, [(0, 9, [ACCEPT]), (0, 2, [ACCEPT])])]


def test_a_lost_session_begins_again() -> None:
    cluster = Scripted({0: 1})
    lost = failed(ErrorCode.SHARE_SESSION_NOT_FOUND)
    cluster.fetched = {1: [[], [], lost, no_connection("gone"), [partition(0, 0, 0)]]}
    assert next(reader(cluster).batches())
    assert cluster.fetch_epochs(1) == [0, 1, 2, 0, 0]


def test_a_broker_that_left_the_cluster_has_lost_its_session() -> None:
    cluster = Scripted({0: 1})
    cluster.fetched = {1: [failed(ErrorCode.BROKER_NOT_AVAILABLE), [partition(0, 0, 0)]]}
    assert next(reader(cluster).batches())
    assert cluster.fetch_epochs(1) == [0, 0]


def test_a_coordinator_that_left_the_cluster_is_looked_for_again(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_cluster, "time", clock)
    cluster = AskedCluster(ClusterSettings(("127.0.0.1:1",)))
    cluster._coordinators = {(0, "g"): COORDINATOR}

    def attempt() -> str:
        if cluster._coordinators:
            raise failed(ErrorCode.BROKER_NOT_AVAILABLE)
        return "found"

    assert cluster.settled(attempt) == "found"

    def has_no_coordinator() -> None:
        raise failed(ErrorCode.BROKER_NOT_AVAILABLE)

    with pytest.raises(AskFailed, match="cannot be reached"):
        cluster.settled(has_no_coordinator)
    assert clock.now < 1001


def test_a_moved_leader_is_found_and_the_old_session_is_closed() -> None:
    cluster = Scripted({0: 1})

    def moves() -> list[share_fetch.PartitionData]:
        cluster.leaders = {0: 2}
        return [share_fetch.PartitionData(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)]

    cluster.fetched = {1: [moves], 2: [[], [partition(0, 0, 0)]]}
    assert [one.offset for one in next(reader(cluster).batches())] == [0]
    assert cluster.acknowledged() == [(1, -1, [])]


def test_a_refused_acknowledgement_is_reported() -> None:
    cluster = Scripted({0: 1})
    cluster.fetched = {1: [[partition(0, 0, 0)], [partition(0, 0, 0, 2)]]}
    cluster.acknowledgement_error = ErrorCode.INVALID_RECORD_STATE
    refused: list[Any] = []
    batches = reader(cluster, refused=refused).batches()
    assert [one.delivery_count for one in (*next(batches), *next(batches))] == [1, 2]
    assert refused == [(("t", 0), ErrorCode.INVALID_RECORD_STATE)]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_member_that_is_no_longer_known_joins_again(code: ErrorCode) -> None:
    cluster = Scripted({0: 1})
    cluster.fetched = {1: [[], [partition(0, 0, 0)]]}
    cluster.heartbeat_error = code
    assert next(reader(cluster).batches())
    beats = [
        (message.member_epoch, message.subscribed_topic_names)
        for _, message in cluster.asked
        if isinstance(message, share_group_heartbeat.ShareGroupHeartbeatRequest)
    ]
    assert beats[:3] == [(0, ["t"]), (1, None), (0, ["t"])]


def test_an_error_that_does_not_pass_ends_the_read() -> None:
    cluster = Scripted({0: 1})
    cluster.fetched = {1: [failed(ErrorCode.GROUP_AUTHORIZATION_FAILED)]}
    with pytest.raises(AskFailed, match="Group authorization failed"):
        next(reader(cluster).batches())
    denied = share_fetch.PartitionData(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    cluster.fetched = {1: [[denied]]}
    with pytest.raises(AskFailed, match="Topic authorization failed"):
        next(reader(cluster).batches())


def test_a_read_that_does_not_follow_ends_when_it_is_stopped() -> None:
    cluster = Scripted({0: 1})
    cluster.fetched = {1: [[partition(0, 0, 0)], [partition(0, 1, 1)]]}
    share = reader(cluster)
    batches = share.batches()
    next(batches)
    share.stop()
    assert list(batches) == []
    assert cluster.acknowledged() == [(1, 1, [(0, 0, [ACCEPT])])]


def test_a_member_that_loses_its_partitions_late_waits_for_others(clock: Time) -> None:
    cluster = Scripted({0: 1})

    def loses() -> list[share_fetch.PartitionData]:
        clock.now += 100
        cluster.heartbeat_error = ErrorCode.UNKNOWN_MEMBER_ID
        cluster.assigned = []
        return [partition(0, 0, 0)]

    cluster.fetched = {1: [loses, [partition(0, 1, 1)]]}
    share = reader(cluster)
    batches = share.batches()
    assert next(batches)

    def given_after_a_while(seconds: float) -> None:
        clock.now += seconds
        if clock.now > 1130:
            cluster.assigned = [0]

    clock.sleep = given_after_a_while  # type: ignore[method-assign]
    assert [one.offset for one in next(batches)] == [1]


def test_a_read_does_not_end_while_a_broker_does_not_answer(clock: Time) -> None:
    cluster = Scripted({0: 1})
    cluster.fetched = {1: [*[no_connection("gone")] * 50, [partition(0, 0, 0)]]}
    assert [len(batch) for batch in reader(cluster, follows=False).batches()] == [1]
    assert 1003 < clock.now < 1020
    cluster.fetched = {1: [no_connection("gone")] * 5000}
    with pytest.raises(AskFailed, match="gone"):
        list(reader(cluster, follows=False).batches())
    cluster.fetched, cluster.leaders = {}, {0: -1}
    with pytest.raises(AskFailed, match=r"."):
        list(reader(cluster, follows=False).batches())


def test_a_broker_that_serves_no_share_groups_is_named() -> None:
    cluster = Scripted({0: 1})
    cluster.serves = {}
    cluster.fetched = {1: [failed(ErrorCode.UNSUPPORTED_VERSION)]}
    with pytest.raises(AskFailed) as raised:
        next(reader(cluster, count=1).batches())
    assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_records_of_an_answer_whose_read_was_stopped_are_not_acknowledged() -> None:
    """The leaders of other partitions are looked up before the records are returned, which may fail."""
    cluster = Scripted({0: 1, 1: 1})
    share = reader(cluster)

    def stops() -> list[share_fetch.PartitionData]:
        share.stop()
        cluster.metadata_error = no_connection("gone")
        moved = share_fetch.PartitionData(partition_index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return [partition(0, 0, 4), moved]

    cluster.fetched = {1: [stops]}
    assert list(share.batches()) == []
    share.close()
    assert cluster.acknowledged() == [(1, -1, [])]


@pytest.mark.parametrize("error", [failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED), ValueError("a defect")])
def test_records_are_not_acknowledged_if_the_leaders_of_others_cannot_be_found(error: Exception) -> None:
    cluster = Scripted({0: 1, 1: 1})

    def moves() -> list[share_fetch.PartitionData]:
        cluster.metadata_error = error
        moved = share_fetch.PartitionData(partition_index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return [partition(0, 0, 4), moved]

    cluster.fetched = {1: [moves]}
    share = reader(cluster)
    with pytest.raises(type(error), match=str(error)):
        next(share.batches())
    share.close()
    assert cluster.acknowledged() == [(1, -1, [])]


def test_a_node_may_be_gone_by_the_question_for_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Scripted({0: 1})
    cluster.fetched = {1: [[partition(0, 0, 0)]]}
    cluster.metadata_error = no_connection("gone")

    def settled(attempt: Callable[[], Any]) -> Any:
        try:
            return attempt()
        except AskFailed:
            cluster.metadata_error = None
            return attempt()

    monkeypatch.setattr(cluster, "settled", settled)
    assert [one.topic for one in next(reader(cluster).batches())] == ["t"]


@pytest.mark.parametrize(
    "error", [no_connection("gone"), timed_out("late"), NoAnswer("silent"), failed(ErrorCode.BROKER_NOT_AVAILABLE)]
)
def test_a_member_that_shows_pauses_waits_for_brokers(
    error: AskFailed, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Scripted({0: 1})
    fails = ["join", "join", "leaders"]

    def settled(attempt: Callable[[], Any]) -> Any:
        name = "leaders" if attempt == cluster.refresh else "join"
        if fails and fails[0] == name:
            fails.pop(0)
            raise error
        return attempt()

    monkeypatch.setattr(cluster, "settled", settled)
    cluster.fetched = {1: [error, error, [partition(0, 0, 0)]]}
    wanted = WantedShare("g", ["t"], ACCEPT, follows=True, shows_pauses=True)
    batches = ShareGroupReader(cluster, wanted, lambda place, offsets, error: None).batches()
    sizes = [len(next(batches)) for _ in range(6)]
    assert (sizes[:2], sum(sizes), fails) == ([0, 0], 1, [])
    # A caller that gets no pauses could not end the read.
    cluster.fetched = {1: [timed_out("late")]}
    with pytest.raises(AskFailed, match="late"):
        next(reader(cluster).batches())


def test_records_are_delivered_if_the_leaders_of_others_are_found_later() -> None:
    cluster = Scripted({0: 1, 1: 1})

    def moves() -> list[share_fetch.PartitionData]:
        cluster.metadata_error = timed_out("late")
        moved = share_fetch.PartitionData(partition_index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return [partition(0, 0, 4), moved]

    cluster.fetched = {1: [moves]}
    wanted = WantedShare("g", ["t"], ACCEPT, follows=True, shows_pauses=True)
    share = ShareGroupReader(cluster, wanted, lambda place, offsets, error: None)
    assert len(next(share.batches())) == 5
    share.close()
    assert cluster.acknowledged()[0] == (1, 1, [(0, 4, [ACCEPT])])


@pytest.mark.parametrize("error", [BrokenPipeError, KeyboardInterrupt])
def test_a_member_leaves_if_its_caller_cannot_print_the_last_result_but_not_at_an_interrupt(
    error: type[BaseException],
) -> None:
    cluster = Scripted({0: 1})
    cluster.fetched = {1: [[partition(0, 0, 0)]]}

    def closed(place: PartitionName, offsets: Sequence[int], failure: AskFailed | None) -> None:
        raise error

    share = ShareGroupReader(cluster, WantedShare("g", ["t"], ACCEPT), closed)
    assert next(share.batches())
    with pytest.raises(error):
        share.close()
    leaves = error is BrokenPipeError
    assert (cluster.acknowledged()[-1] == (1, -1, [])) is leaves
    assert (getattr(cluster.asked[-1][1], "member_epoch", None) == -1) is leaves


def test_no_broker_is_waited_for_after_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asked_cluster, "time", clock)
        cluster = AskedCluster(ClusterSettings(("127.0.0.1:1",)))
        cluster.give_up()
        with pytest.raises(AskFailed, match="Timed out waiting for a node assignment"):
            cluster.versions()
    assert clock.now < 1001


def test_a_read_has_the_time_limit_of_its_caller(clock: Time) -> None:
    cluster = Scripted({0: 1})
    cluster.fetched = {1: [[partition(0, 0, 0)], [partition(0, 1, 1)]]}
    wanted = WantedShare("g", ["t"], ACCEPT, follows=True, shows_pauses=True, silence_ms=5000)
    batches = ShareGroupReader(cluster, wanted, lambda place, offsets, error: None).batches()
    assert next(batches)
    assert cluster.waits_until == [pytest.approx(1005, abs=1)]
    # The caller prints for a minute.
    clock.sleep(60)
    assert next(batches) == []
    assert cluster.waits_until[1:] == [pytest.approx(1065, abs=1)]


def test_no_request_is_repeated_after_the_end() -> None:
    cluster = AskedCluster(ClusterSettings(("127.0.0.1:1",)))
    tries: list[int] = []

    def attempt() -> None:
        tries.append(1)
        ShareGroupReader(cluster, WantedShare("g", ["t"], ACCEPT), lambda place, offsets, error: None).stop()
        raise failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    with pytest.raises(AskFailed):
        cluster.settled(attempt)
    assert tries == [1]
