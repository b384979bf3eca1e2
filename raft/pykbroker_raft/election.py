"""Elections: Vote (with KIP-996 pre-votes), both sides, and the timers of the roles that take part in an election.

Responsible for granting a vote and for handling the answers. A vote is in the Ready before the reply that grants it
(R3): `current_role` puts it there.
"""

from __future__ import annotations

from typing import Any

from pykbroker_raft import rpc
from pykbroker_raft.current_role import CurrentRole
from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.leader_news import LeaderNews
from pykbroker_raft.leader_refusal import LeaderRefusal
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.outbox import Outbox
from pykbroker_raft.ready import NEVER, Destination, Inbound, Now
from pykbroker_raft.replica_log import ReplicaLog
from pykbroker_raft.states import Candidate, Follower, Leader, Prospective, Resigned, State, Unattached
from pykbroker_raft.voters import ReplicaKey
from pykbroker_wire.errors import ErrorCode


def may_grant(state: State, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool) -> bool:
    """Return True if a replica in this state grants its vote in the candidate's epoch. A granted pre-vote binds the
    replica to nothing."""
    match state:
        case Leader():
            return False
        case Candidate() | Resigned():
            # A resigned leader no longer leads, and has no vote left in its epoch.
            return pre_vote and log_is_up_to_date
        case Follower():
            # A follower that receives responses from its leader refuses: so a returning replica cannot disturb the
            # quorum.
            return pre_vote and log_is_up_to_date and not state.has_fetched
        case Unattached() | Prospective():
            if pre_vote:
                return log_is_up_to_date
            if state.voted is not None:
                same_directory = not state.voted.has_directory or state.voted.directory_id == candidate.directory_id
                return state.voted.id == candidate.id and same_directory
            return state.leader_id is None and log_is_up_to_date


class Elections:
    """The elections of one replica; without state of its own."""

    def __init__(
        self,
        config: RaftConfig,
        roles: CurrentRole,
        log: ReplicaLog,
        outbox: Outbox,
        news: LeaderNews,
        refusal: LeaderRefusal,
    ) -> None:
        self._refusal = refusal
        self._config = config
        self._roles = roles
        self._log = log
        self._outbox = outbox
        self._news = news

    def stand(self, now: Now) -> None:
        """Begin a pre-vote at the start of this replica, if it would wait for a leader and may be elected."""
        if isinstance(self._roles.state, Unattached | Follower) and self._roles.may_stand:
            self._roles.become_prospective(now)

    def handle_vote_request(self, inbound: Inbound, now: Now) -> None:
        request = inbound.request
        partition = rpc.one_partition(request.topics)
        error = self._news.check_request(request.cluster_id, partition)
        if error is not ErrorCode.NONE or partition is None:
            return self._outbox.reply(inbound.token, rpc.vote_error(error))
        candidate = ReplicaKey(partition.replica_id, bytes(partition.replica_directory_id))
        epoch, pre_vote = partition.replica_epoch, partition.pre_vote
        end = OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch)
        # A candidate has raised its epoch above that of its log, a pre-candidate has not.
        illegal = end.epoch > epoch if pre_vote else end.epoch >= epoch
        granted = False
        if end.offset < 0 or end.epoch < 0 or illegal or candidate.id == self._config.node_id:
            error = ErrorCode.INVALID_REQUEST
        else:
            error = self._news.check_voter_request(candidate.id, epoch)
        if error is ErrorCode.NONE:
            if epoch > self._roles.epoch:
                self._roles.become_unattached(epoch, now)
            if not self._news.is_for_this_replica(request.voter_id, partition.voter_directory_id):
                error = ErrorCode.INVALID_VOTER_KEY
            else:
                granted = may_grant(self._roles.state, candidate, end >= self._log.view.end, pre_vote)
                if granted and not pre_vote and self._roles.state.voted is None:
                    self._roles.give_vote(candidate, epoch, now)
                elif granted and pre_vote:
                    self._refusal.let_stand(now)
        endpoint = self._roles.leader_endpoint_for(inbound.listener)
        self._outbox.reply(
            inbound.token,
            rpc.vote_response(
                inbound.version, error, self._roles.leader_id_or_none_known, self._roles.epoch, endpoint, granted
            ),
        )

    def handle_vote_response(self, source: Destination, response: Any, now: Now) -> bool:
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and isinstance(self._roles.state, Prospective):
            # The voter does not support pre-votes: elect as before KIP-996.
            self._roles.become_candidate(now)
            return True
        state = self._roles.state
        handled = self._news.take_voter_response(response, now)
        if handled is not None:
            return handled
        if self._roles.state is state and isinstance(state, (Candidate, Prospective)):
            vote = rpc.one_partition(response.topics)
            self._roles.count_vote(state, source.id, vote is not None and vote.vote_granted, now)
        return True

    def _send_votes(self, state: Candidate | Prospective, now: Now) -> int:
        deadline = NEVER
        pre_vote = isinstance(state, Prospective)
        for voter in state.votes.unheard():
            destination = self._roles.voter_destination(voter.id)
            if destination is None:
                continue
            request = rpc.vote_request(
                self._config.cluster_id, self._config.key, state.epoch, voter, self._log.view.end, pre_vote
            )
            deadline = min(deadline, self._outbox.send_to(destination, request, now))
        return deadline

    def poll_candidate(self, state: Candidate, now: Now) -> int:
        if self._roles.shutting_down:
            return self._send_votes(state, now)
        if now.steady_ms >= state.election_deadline_ms or not self._roles.may_stand:
            if self._roles.may_stand:
                self._roles.become_prospective(now)
            else:
                self._roles.become_unattached(self._roles.epoch + 1, now)
            return now.steady_ms
        return min(self._send_votes(state, now), state.election_deadline_ms)

    def poll_prospective(self, state: Prospective, now: Now) -> int:
        if self._roles.shutting_down:
            return self._send_votes(state, now)
        if now.steady_ms >= state.election_deadline_ms or not self._roles.may_stand:
            self._roles.lose_prospective(now)
            return now.steady_ms
        return min(self._send_votes(state, now), state.election_deadline_ms)
