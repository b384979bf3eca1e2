"""AddRaftVoter, RemoveRaftVoter and kraft.version with one real leader; the test plays its followers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykbroker_raft import rpc
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.log_view import LogView, OffsetAndEpoch
from pykbroker_raft.raft_node import Inbound, RaftConfig, RaftNode
from pykbroker_raft.ready import Destination, Now, Outgoing
from pykbroker_raft.states import Prospective, Resigned
from pykbroker_raft.voters import Endpoint, Endpoints, ReplicaKey, VoterHistory, VoterNode, VoterSet
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.add_raft_voter import AddRaftVoterRequest
from pykbroker_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from pykbroker_wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from pykbroker_wire.messages.remove_raft_voter import RemoveRaftVoterRequest

REQUEST_TIMEOUT_MS = 2000


def key(id: int) -> ReplicaKey:
    return ReplicaKey(id, bytes([id]) * 16)


def endpoints(id: int) -> Endpoints:
    return (Endpoint("CONTROLLER", f"c{id}", 9093),)


def voter(id: int) -> VoterNode:
    return VoterNode(key(id), endpoints(id))


def static(*ids: int) -> VoterSet:
    return VoterSet.of(VoterNode(ReplicaKey(id), endpoints(id), 0, 0) for id in ids)


class Quorum:
    """Node 1, which leads `ids`, with the messages of the others."""

    def __init__(self, *ids: int, kraft_version: int = 1, alone_because: str | None = None) -> None:
        self.now_ms = 1_000_000
        self.tokens = 0
        history = VoterHistory(VoterSet() if kraft_version else static(*ids))
        history.reset(-1, VoterSet.of(voter(id) for id in ids) if kraft_version else None, kraft_version)
        config = RaftConfig(
            1,
            key(1).directory_id,
            "c",
            endpoints=endpoints(1),
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            alone_because=alone_because,
        )
        self.node = RaftNode(config, random.Random(1), LogView(), history, None)
        self.node.start(self.now)
        self.sent: list[Outgoing] = []
        self.replies: dict[int, Any] = {}
        for pre_vote in (True, False) if len(ids) > 1 else ():
            self.pass_time(2000 if pre_vote else 0)
            for outgoing in self.take():
                self.answer(outgoing, rpc.vote_response(2, ErrorCode.NONE, -1, self.node.epoch, None, True))
        assert self.node.is_leader
        self.flush()
        for id in ids:
            self.fetch(id)
        assert self.node.high_watermark == self.node.log.end_offset
        self.take()

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.node.tick(self.now)

    def take(self) -> list[Outgoing]:
        ready = self.node.ready()
        for reply in ready.replies:
            self.replies[reply.token] = reply.response
        self.sent = ready.requests
        return self.sent

    def answer(self, outgoing: Outgoing, response: Any | None) -> None:
        self.node.response(outgoing.correlation_id, outgoing.destination, response, self.now)

    def flush(self) -> None:
        self.node.flushed(self.node.log.end_offset, self.now)

    def receive(self, request: Any, version: int) -> int:
        self.tokens += 1
        self.node.receive(Inbound(self.tokens, request, version, "CONTROLLER"), self.now)
        self.take()
        return self.tokens

    def fetch(self, id: int, behind: int = 0, replica: ReplicaKey | None = None) -> None:
        """Let a replica fetch from the log's end, or from so many records before it."""
        if id == 1:
            return
        log = self.node.log
        end = OffsetAndEpoch(log.end_offset - behind, log.end.epoch)
        self.receive(rpc.fetch_request("c", replica or key(id), self.node.epoch, end, -1, 0, 1000), 17)

    def add(self, id: int, *, ack_when_committed: bool = True, version: int = 1, cluster: str = "c") -> int:
        request = rpc.add_voter_request(cluster, voter(id), 1000, ack_when_committed=ack_when_committed)
        return self.receive(request, version)

    def remove(self, id: int, directory: ReplicaKey | None = None) -> int:
        return self.receive(rpc.remove_voter_request("c", directory or key(id)), 0)

    def answer_versions(self, low: int = 0, high: int = 1, error: ErrorCode = ErrorCode.NONE) -> None:
        asked = next(outgoing for outgoing in self.sent if isinstance(outgoing.request, ApiVersionsRequest))
        features = [SupportedFeatureKey(name="kraft.version", min_version=low, max_version=high)]
        self.answer(asked, ApiVersionsResponse(error_code=error, supported_features=features))
        self.take()

    def error(self, token: int) -> tuple[ErrorCode, str | None]:
        reply = self.replies[token]
        return ErrorCode(reply.error_code), reply.error_message

    def ids(self) -> tuple[int, ...]:
        return self.node.voters.ids()


def test_voter_is_asked_what_it_speaks_and_then_added() -> None:
    quorum = Quorum(1)
    quorum.fetch(2)
    token = quorum.add(2)
    (asked,) = quorum.sent
    assert isinstance(asked.request, ApiVersionsRequest)
    assert asked.destination == Destination(2, "c2", 9093)
    assert quorum.ids() == (1,)
    quorum.answer_versions(0, 1)
    # Both voters count from now on, so the new voter must have the record too.
    assert quorum.ids() == (1, 2)
    quorum.flush()
    quorum.take()
    assert token not in quorum.replies
    quorum.fetch(2)
    assert quorum.error(token) == (ErrorCode.NONE, None)
    assert quorum.node.high_watermark == quorum.node.log.end_offset


@pytest.mark.parametrize(("version", "waits"), [(0, True), (1, False)])
def test_answer_without_waiting_for_the_commit(version: int, waits: bool) -> None:
    """AckWhenCommitted is false; version 0 does not have the field."""
    quorum = Quorum(1)
    quorum.fetch(2)
    token = quorum.add(2, ack_when_committed=False, version=version)
    quorum.answer_versions()
    assert (token not in quorum.replies) == waits
    # The change is still under way: no other one begins, and this one is answered once.
    quorum.fetch(3)
    assert quorum.error(quorum.add(3))[0] is ErrorCode.REQUEST_TIMED_OUT
    quorum.flush()
    quorum.fetch(2)
    assert quorum.error(token) == (ErrorCode.NONE, None)


def test_what_is_wrong_with_an_addition() -> None:
    quorum = Quorum(1, 2)
    assert quorum.error(quorum.add(3, cluster="other")) == (
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        'The given id "other" doesn\'t match the cluster id "c"',
    )
    code, text = quorum.error(quorum.add(2))
    assert code is ErrorCode.DUPLICATE_VOTER
    assert text is not None
    assert text.startswith("The voter id for ReplicaKey(id=2, directoryId=AgICAgICAgICAgICAgICAg) is already part")
    unnamed = rpc.add_voter_request("c", VoterNode(ReplicaKey(3), endpoints(3)), 1000, ack_when_committed=True)
    assert quorum.error(quorum.receive(unnamed, 1))[0] is ErrorCode.INVALID_REQUEST
    elsewhere = VoterNode(key(3), (Endpoint("OTHER", "c3", 1),))
    request = rpc.add_voter_request("c", elsewhere, 1000, ack_when_committed=True)
    assert quorum.error(quorum.receive(request, 1))[0] is ErrorCode.INVALID_REQUEST
    for hostless in ((Endpoint("CONTROLLER", "", 9093),), (*endpoints(3), Endpoint("OTHER", " ", 1))):
        request = rpc.add_voter_request("c", VoterNode(key(3), hostless), 1000, ack_when_committed=True)
        code, text = quorum.error(quorum.receive(request, 1))
        assert code is ErrorCode.INVALID_REQUEST
        assert text is not None
        assert "has an endpoint without a host" in text
    assert not [outgoing for outgoing in quorum.sent if isinstance(outgoing.request, ApiVersionsRequest)]
    assert quorum.ids() == (1, 2)


def test_a_leader_that_must_stay_alone_adds_no_voter() -> None:
    quorum = Quorum(1, alone_because="it has its reasons")
    quorum.fetch(2)
    assert quorum.error(quorum.add(2)) == (
        ErrorCode.INVALID_REQUEST,
        "New voter ReplicaKey(id=2, directoryId=AgICAgICAgICAgICAgICAg) is refused: it has its reasons",
    )
    assert quorum.error(quorum.add(1))[0] is ErrorCode.DUPLICATE_VOTER
    assert not [outgoing for outgoing in quorum.sent if isinstance(outgoing.request, ApiVersionsRequest)]
    assert quorum.ids() == (1,)


def test_voter_that_never_fetched_is_not_added() -> None:
    quorum = Quorum(1)
    token = quorum.add(2)
    quorum.answer_versions()
    assert quorum.error(token) == (
        ErrorCode.REQUEST_TIMED_OUT,
        "Aborted add voter operation for ReplicaKey(id=2, directoryId=AgICAgICAgICAgICAgICAg) since it is lagging "
        "behind",
    )
    assert quorum.ids() == (1,)


def test_voter_with_another_disk_than_the_one_that_fetched_is_not_added() -> None:
    quorum = Quorum(1)
    quorum.fetch(2, replica=ReplicaKey(2, b"x" * 16))
    token = quorum.add(2)
    quorum.answer_versions()
    assert quorum.error(token)[0] is ErrorCode.REQUEST_TIMED_OUT


def test_voter_that_lags_or_went_away_is_not_added() -> None:
    quorum = Quorum(1)
    quorum.fetch(2, behind=1)
    token = quorum.add(2)
    quorum.answer_versions()
    assert quorum.error(token)[0] is ErrorCode.REQUEST_TIMED_OUT
    quorum.fetch(2)
    quorum.pass_time(3_600_000)
    token = quorum.add(2)
    quorum.answer_versions()
    assert quorum.error(token)[0] is ErrorCode.REQUEST_TIMED_OUT
    assert quorum.ids() == (1,)


@pytest.mark.parametrize(
    ("versions", "error"),
    [((0, 0), ErrorCode.INVALID_REQUEST), ((2, 3), ErrorCode.INVALID_REQUEST), ((0, 1), ErrorCode.NONE)],
)
def test_voter_has_to_speak_kraft_version(versions: tuple[int, int], error: ErrorCode) -> None:
    quorum = Quorum(1)
    quorum.fetch(2)
    token = quorum.add(2, ack_when_committed=False)
    quorum.answer_versions(*versions)
    assert quorum.error(token)[0] is error


def test_voter_that_does_not_answer_is_not_added() -> None:
    quorum = Quorum(1)
    quorum.fetch(2)
    token = quorum.add(2)
    quorum.answer(quorum.sent[0], None)
    quorum.take()
    assert quorum.error(token)[0] is ErrorCode.REQUEST_TIMED_OUT
    # The voter may be tried again after its backoff, and may not answer.
    assert quorum.error(quorum.add(2))[0] is ErrorCode.REQUEST_TIMED_OUT
    quorum.pass_time(50)
    silent = quorum.add(2)
    asked = quorum.sent[0]
    quorum.pass_time(REQUEST_TIMEOUT_MS)
    quorum.take()
    assert quorum.error(silent)[0] is ErrorCode.REQUEST_TIMED_OUT
    # The answer comes too late.
    quorum.answer(asked, ApiVersionsResponse())
    assert quorum.ids() == (1,)


def test_removal_counts_at_once_and_is_answered_at_commit() -> None:
    quorum = Quorum(1, 2, 3)
    token = quorum.remove(3)
    assert quorum.ids() == (1, 2)
    # Only one change at a time.
    assert quorum.error(quorum.remove(2))[0] is ErrorCode.REQUEST_TIMED_OUT
    quorum.fetch(4)
    assert quorum.error(quorum.add(4))[0] is ErrorCode.REQUEST_TIMED_OUT
    quorum.flush()
    quorum.fetch(3)
    assert token not in quorum.replies, "the removed voter does not count"
    quorum.fetch(2)
    assert quorum.error(token) == (ErrorCode.NONE, None)


def test_what_is_wrong_with_a_removal() -> None:
    quorum = Quorum(1, 2)
    code, text = quorum.error(quorum.remove(3))
    assert code is ErrorCode.VOTER_NOT_FOUND
    assert text is not None
    assert text.startswith("Cannot remove voter ReplicaKey(id=3, directoryId=AwMDAwMDAwMDAwMDAwMDAw) from the set of")
    assert quorum.error(quorum.remove(2, ReplicaKey(2, b"x" * 16)))[0] is ErrorCode.VOTER_NOT_FOUND
    assert quorum.error(quorum.remove(2, ReplicaKey(2)))[0] is ErrorCode.INVALID_REQUEST
    alone = Quorum(1)
    assert alone.error(alone.remove(1))[0] is ErrorCode.VOTER_NOT_FOUND


def test_change_that_is_not_committed_in_time() -> None:
    """The response is an error, but the change goes on: no other one begins before it is committed."""
    quorum = Quorum(1, 2, 3)
    token = quorum.remove(3)
    quorum.flush()
    quorum.pass_time(REQUEST_TIMEOUT_MS)
    quorum.take()
    assert quorum.error(token)[0] is ErrorCode.REQUEST_TIMED_OUT
    code, text = quorum.error(quorum.remove(2))
    assert code is ErrorCode.REQUEST_TIMED_OUT
    assert text is not None
    assert "waiting for voters to commit the latest voter change at Optional[" in text
    quorum.fetch(2)
    assert quorum.ids() == (1, 2)
    quorum.remove(2)
    assert quorum.ids() == (1,)


def test_nothing_changes_before_the_epoch_is_committed() -> None:
    history = VoterHistory()
    history.reset(-1, VoterSet.of([voter(1)]), 1)
    node = RaftNode(
        RaftConfig(1, key(1).directory_id, "c", endpoints=endpoints(1)), random.Random(1), LogView(), history, None
    )
    node.start(Now(1, 1))
    node.ready()
    node.receive(Inbound(1, rpc.remove_voter_request("c", key(1)), 0, "CONTROLLER"), Now(2, 2))
    (reply,) = node.ready().replies
    assert ErrorCode(reply.response.error_code) is ErrorCode.REQUEST_TIMED_OUT
    assert "establish HWM" in reply.response.error_message


def test_leader_that_is_removed_leads_until_it_is_committed_and_resigns() -> None:
    quorum = Quorum(1, 2, 3)
    token = quorum.remove(1)
    quorum.flush()
    assert quorum.ids() == (2, 3)
    quorum.fetch(2)
    assert quorum.node.is_leader, "its own copy does not count"
    assert token not in quorum.replies
    quorum.fetch(3)
    assert quorum.error(token) == (ErrorCode.NONE, None)
    quorum.pass_time(1)
    assert isinstance(quorum.node.state, Resigned)
    ends = [outgoing for outgoing in quorum.take() if isinstance(outgoing.request, EndQuorumEpochRequest)]
    assert {outgoing.destination.id for outgoing in ends} == {2, 3}
    for outgoing in ends:
        assert [c.candidate_id for c in outgoing.request.topics[0].partitions[0].preferred_candidates] == [2, 3]


def test_leader_that_is_removed_resigns_even_when_its_answer_came_too_late() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.remove(1)
    quorum.flush()
    quorum.pass_time(REQUEST_TIMEOUT_MS)
    quorum.fetch(2)
    quorum.fetch(3)
    quorum.pass_time(1)
    assert isinstance(quorum.node.state, Resigned)


def test_leader_that_was_alone_for_long_waits_for_its_new_voter() -> None:
    quorum = Quorum(1)
    quorum.pass_time(60_000)
    quorum.fetch(2)
    quorum.add(2)
    quorum.answer_versions()
    quorum.pass_time(2_999)
    assert quorum.node.is_leader
    quorum.fetch(2)
    quorum.pass_time(2_999)
    assert quorum.node.is_leader
    quorum.pass_time(1)
    assert isinstance(quorum.node.state, Resigned)


def test_removed_leader_of_two_steps_down_when_the_other_is_silent() -> None:
    quorum = Quorum(1, 2)
    quorum.remove(1)
    quorum.flush()
    quorum.pass_time(3000)
    assert isinstance(quorum.node.state, Resigned)


@pytest.mark.parametrize(("committed", "stands"), [(None, True), (3, True), (4, False)])
def test_leader_that_alone_knows_of_its_removal_stands_again(committed: int | None, stands: bool) -> None:
    """Its log is ahead, so no other replica can be elected, and it finishes its own removal (Ongaro's thesis,
    4.2.2)."""
    quorum = Quorum(1, 2)
    quorum.remove(1)
    quorum.flush()
    log, history = quorum.node.log, quorum.node.history
    assert history.voters_offset == 3
    stored = ElectionState(quorum.node.epoch, None, None, (), 1)
    config = RaftConfig(1, key(1).directory_id, "c", endpoints=endpoints(1))
    again = RaftNode(config, random.Random(1), log, history, stored)
    again.start(quorum.now)
    if committed is not None:
        begin = rpc.begin_request("c", 2, again.epoch, key(1), endpoints(2))
        again.receive(Inbound(1, begin, 1, "CONTROLLER"), quorum.now)
        (outgoing,) = [o for o in again.ready().requests if o.destination.id == 2]
        response = rpc.fetch_response(17, ErrorCode.NONE, 2, again.epoch, endpoints(2)[0], 0, committed)
        again.response(outgoing.correlation_id, outgoing.destination, response, quorum.now)
    quorum.now_ms += 2_001
    again.tick(quorum.now)
    assert isinstance(again.state, Prospective) == stands


def test_change_under_way_ends_with_the_leadership() -> None:
    quorum = Quorum(1, 2, 3)
    removal = quorum.remove(3)
    quorum.receive(rpc.begin_request("c", 2, quorum.node.epoch + 1, key(1), endpoints(2)), 1)
    assert quorum.error(removal)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert quorum.error(quorum.remove(3))[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
    # The next leader never had the record.
    follower = quorum.node
    quorum.flush()
    (outgoing,) = quorum.take()
    response = rpc.fetch_response(
        17,
        ErrorCode.NONE,
        2,
        follower.epoch,
        Endpoint("CONTROLLER", "c2", 9093),
        0,
        -1,
        diverging=OffsetAndEpoch(3, 1),
    )
    assert quorum.ids() == (1, 2)
    quorum.answer(outgoing, response)
    assert quorum.ids() == (1, 2, 3), "an uncommitted voter set is taken back"


def test_configured_voters_cannot_be_changed() -> None:
    quorum = Quorum(1, 2, kraft_version=0)
    quorum.fetch(3)
    assert quorum.error(quorum.add(3)) == (
        ErrorCode.UNSUPPORTED_VERSION,
        "Cluster doesn't support adding voter because the kraft.version feature is 0",
    )
    assert quorum.error(quorum.remove(2)) == (
        ErrorCode.UNSUPPORTED_VERSION,
        "Cluster doesn't support removing voter because the kraft.version feature is 0",
    )


def tell(quorum: Quorum, id: int, high: int = 1) -> None:
    node = VoterNode(key(id), endpoints(id), 0, high)
    token = quorum.receive(rpc.update_voter_request("c", quorum.node.epoch, node), 0)
    assert quorum.replies[token].error_code == ErrorCode.NONE


def test_kraft_version_is_raised_when_all_voters_have_said_that_they_can() -> None:
    quorum = Quorum(1, 2, 3, kraft_version=0)
    tell(quorum, 2)
    tell(quorum, 3, high=0)
    with pytest.raises(KafkaError) as refused:
        quorum.node.raise_kraft_version(1, quorum.now, validate_only=False)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert refused.value.message == "Invalid upgrade of kraft.version to 1 because not all of the voters support it"
    tell(quorum, 3)
    end = quorum.node.log.end_offset
    quorum.node.raise_kraft_version(1, quorum.now, validate_only=True)
    assert (quorum.node.log.end_offset, quorum.node.history.kraft_version) == (end, 0)
    quorum.node.raise_kraft_version(1, quorum.now, validate_only=False)
    assert (quorum.node.log.end_offset, quorum.node.history.kraft_version) == (end + 2, 1)
    assert quorum.node.voters == VoterSet.of(voter(id) for id in (1, 2, 3))
    # The voters cannot change until it is committed.
    assert quorum.error(quorum.remove(3))[0] is ErrorCode.REQUEST_TIMED_OUT
    quorum.flush()
    quorum.fetch(2)
    assert quorum.ids() == (1, 2, 3)
    quorum.node.raise_kraft_version(1, quorum.now, validate_only=False)
    quorum.remove(3)
    assert quorum.ids() == (1, 2)
    with pytest.raises(KafkaError) as refused:
        quorum.node.raise_kraft_version(0, quorum.now, validate_only=False)
    assert "is a downgrade" in str(refused.value.message)


def test_kraft_version_that_was_not_committed_is_taken_back() -> None:
    quorum = Quorum(1, 2, 3, kraft_version=0)
    tell(quorum, 2)
    tell(quorum, 3)
    end = quorum.node.log.end_offset
    quorum.node.raise_kraft_version(1, quorum.now, validate_only=False)
    quorum.flush()
    quorum.receive(rpc.begin_request("c", 2, quorum.node.epoch + 1, key(1), endpoints(2)), 1)
    response = rpc.fetch_response(
        17,
        ErrorCode.NONE,
        2,
        quorum.node.epoch,
        Endpoint("CONTROLLER", "c2", 9093),
        0,
        -1,
        diverging=OffsetAndEpoch(end, 1),
    )
    (outgoing,) = quorum.sent
    quorum.answer(outgoing, response)
    assert quorum.node.log.end_offset == end
    assert quorum.node.history.kraft_version == 0
    assert quorum.node.voters == static(1, 2, 3)


# A controller that joins on its own


def joining(voters: VoterSet, *, auto_join: bool = True, is_controller: bool = True) -> tuple[RaftNode, list[Any]]:
    """Return the requests of observer 9 to its leader within ten seconds."""
    history = VoterHistory()
    history.reset(-1, voters, 1)
    config = RaftConfig(
        9,
        key(9).directory_id,
        "c",
        endpoints=endpoints(9),
        bootstrap=(("c1", 9093),),
        auto_join=auto_join,
        is_controller=is_controller,
    )
    node = RaftNode(config, random.Random(1), LogView(), history, None)
    node.start(Now(0, 0))
    asked: list[Any] = []
    for now_ms in range(0, 10_000, 20):
        now = Now(now_ms, now_ms)
        for outgoing in node.ready().requests:
            if isinstance(outgoing.request, AddRaftVoterRequest):
                asked.append(outgoing.request)
                response = rpc.add_voter_response(ErrorCode.REQUEST_TIMED_OUT)
            elif isinstance(outgoing.request, RemoveRaftVoterRequest):
                asked.append(outgoing.request)
                response = rpc.remove_voter_response(ErrorCode.NONE)
            else:
                leader = Endpoint("CONTROLLER", "c1", 9093)
                response = rpc.fetch_response(17, ErrorCode.NONE, 1, 1, leader, 0, 0)
            node.response(outgoing.correlation_id, outgoing.destination, response, now)
        node.tick(now)
    return node, asked


def test_controller_joins_by_itself_and_tries_again() -> None:
    _, asked = joining(VoterSet.of([voter(1)]))
    assert len(asked) > 2
    for request in asked:
        assert isinstance(request, AddRaftVoterRequest)
        assert (request.voter_id, bytes(request.voter_directory_id)) == (9, key(9).directory_id)
        assert [(e.name, e.host, e.port) for e in request.listeners] == [("CONTROLLER", "c9", 9093)]
        assert request.ack_when_committed is False


def test_voter_of_the_same_id_with_another_directory_goes_first() -> None:
    old = ReplicaKey(9, b"o" * 16)
    _, asked = joining(VoterSet.of([voter(1), VoterNode(old, endpoints(9))]))
    assert isinstance(asked[0], RemoveRaftVoterRequest)
    assert (asked[0].voter_id, bytes(asked[0].voter_directory_id)) == (9, old.directory_id)


def test_who_does_not_join() -> None:
    assert joining(VoterSet.of([voter(1)]), auto_join=False)[1] == []
    assert joining(VoterSet.of([voter(1)]), is_controller=False)[1] == []
    node, asked = joining(VoterSet.of([voter(1), voter(9)]))
    assert node.is_voter
    assert asked == []
