"""The role of a replica and its transitions: the only owner of the epoch, the vote and the leadership.

Responsible for the transitions, for the effects of each (quorum-state, notices to the listeners, resets of connections,
the control records of a new leader), and for the high watermark of a leader. Not responsible for when a role changes:
`election`, `fetch_client`, `quorum_epoch` and `leader_news` ask for it.

Invariants (numbers of the project's list):
R1 R3  a vote and a leadership are in `Ready.election` before any message that contains them.
R2     the epoch never decreases; `states.check_transition` raises.
R5     a leader counts itself only up to its fsynced end.
R10    a leader commits nothing before a record of its own epoch.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from pykbroker_raft import batches
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.majority import QuorumReplicas, Tally
from pykbroker_raft.outbox import Outbox
from pykbroker_raft.peer_requests import PeerRequests
from pykbroker_raft.ready import Destination, LeaderChange, Now
from pykbroker_raft.replica_log import ReplicaLog
from pykbroker_raft.states import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    State,
    Unattached,
    check_transition,
)
from pykbroker_raft.timeouts import Timeouts
from pykbroker_raft.voters import Endpoint, Endpoints, ReplicaKey, address


class CurrentRole:
    """Every part reads `state`. A part that wants a transition calls the method for it."""

    def __init__(
        self,
        config: RaftConfig,
        chance: random.Random,
        log: ReplicaLog,
        outbox: Outbox,
        connections: PeerRequests,
        stored: ElectionState | None,
        lead_no_longer: Callable[[], None],
    ) -> None:
        """`lead_no_longer` is called as soon as a leadership has ended."""
        self.shutting_down = False
        # Replaced in `start`: there is no state before the first `now`.
        self.state: State = Unattached(stored.epoch if stored is not None else 0)
        self._config = config
        self.timeouts = Timeouts(config, chance)
        self._log = log
        self._outbox = outbox
        self._connections = connections
        self._stored = stored
        self._lead_no_longer = lead_no_longer
        self._told: tuple[int | None, int] | None = None

    # The state of the replica

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def leader_id_or_none_known(self) -> int:
        """The leader id for messages, -1 if no leader is known."""
        return -1 if self.state.leader_id is None else self.state.leader_id

    @property
    def is_leader(self) -> bool:
        return isinstance(self.state, Leader)

    @property
    def is_voter(self) -> bool:
        return self._config.is_controller and self._log.voters.is_voter(self._config.key)

    @property
    def may_stand(self) -> bool:
        """True if this replica may be elected: it is a voter, or its removal is not known to be committed.

        Perhaps only this replica has the record that removes it. Then the other voters of the earlier set can elect no
        leader, because its log is ahead of theirs and it refuses them its vote.
        """
        if self.is_voter:
            return True
        history, committed = self._log.history, self._log.high_watermark
        offset = history.voters_offset
        if offset is None or not self._config.is_controller or (committed is not None and committed > offset):
            return False
        return history.voters_before.is_voter(self._config.key)

    @property
    def leader_endpoints(self) -> Endpoints:
        match self.state:
            case Leader() | Resigned():
                return self._config.endpoints
            case Follower() | Prospective():
                return self.state.leader_endpoints
        return ()

    def leader_endpoint_for(self, listener: str) -> Endpoint | None:
        return address(self.leader_endpoints, listener)

    def voter_destination(self, voter_id: int) -> Destination | None:
        endpoint = address(self._log.voters.endpoints(voter_id), self._config.listener)
        return None if endpoint is None else Destination(voter_id, endpoint.host, endpoint.port)

    # The first role

    def start(self, now: Now) -> None:
        """Take the role that is in quorum-state. The only voter elects itself at once."""
        self.state = self._initial_state(now)
        self._persist()
        if isinstance(self.state, Candidate):
            self._advance_election(now)
        alone = self.is_voter and self._log.voters.is_only_voter(self._config.key)
        if alone and not isinstance(self.state, (Leader, Candidate)):
            self.become_prospective(now)
        self._tell_leader()

    def _initial_state(self, now: Now) -> State:
        config, stored, voters = self._config, self._stored, self._log.voters
        last_epoch = self._log.view.last_epoch
        deadline = self.timeouts.election_deadline_ms(now)
        if stored is None or stored.epoch < last_epoch:
            return Unattached(max(last_epoch, 0), election_deadline_ms=deadline)
        if config.is_controller and stored.leader_id == config.node_id:
            # A leader cannot continue to lead in this epoch after a restart: records that it appended and did not fsync
            # may be lost, and their (offset, epoch) must never name other records. Nor may it vote for another replica
            # in this epoch.
            others = {voter.key.id for voter in voters} - {config.node_id}
            return Resigned(stored.epoch, config.node_id, [], others, deadline)
        if stored.voted is not None and stored.leader_id is None:
            if config.is_controller and stored.voted == config.key and self.may_stand:
                return Candidate(stored.epoch, Tally.of(voters, config.node_id), deadline, config.key)
            return Unattached(stored.epoch, voted=stored.voted, election_deadline_ms=deadline)
        if stored.leader_id is not None:
            endpoints = voters.endpoints(stored.leader_id)
            if address(endpoints, config.listener) is None:
                return Unattached(stored.epoch, stored.leader_id, stored.voted, deadline)
            return self._follower(stored.epoch, stored.leader_id, endpoints, stored.voted, now)
        return Unattached(stored.epoch, election_deadline_ms=deadline)

    # Transitions

    def _become(self, state: State) -> None:
        check_transition(self.state, state, self.may_stand)
        was_leader = self.is_leader
        self.state = state
        self._persist()
        if was_leader:
            self._lead_no_longer()
        self._tell_leader()

    def become_unattached(self, epoch: int, now: Now, leader_id: int | None = None) -> None:
        """Call it when a higher epoch was seen, or no voter was elected in this epoch."""
        old = self.state
        if isinstance(old, (Unattached, Prospective, Candidate)) and old.election_deadline_ms is not None:
            deadline = old.election_deadline_ms
            if deadline <= now.steady_ms:
                deadline = self.timeouts.election_deadline_ms(now)
        else:
            deadline = self.timeouts.election_deadline_ms(now)
        voted = old.voted if epoch == old.epoch else None
        self._become(Unattached(epoch, leader_id, voted, deadline))
        self._connections.reset_all()

    def give_vote(self, candidate: ReplicaKey, epoch: int, now: Now) -> None:
        """Give the one vote of this epoch. The candidate's log is at least as good, so the election timeout starts
        again."""
        deadline = self.timeouts.election_deadline_ms(now)
        old = self.state
        if isinstance(old, Prospective) and old.epoch == epoch:
            self._become(Prospective(epoch, old.votes, deadline, old.leader_id, old.leader_endpoints, voted=candidate))
        else:
            self._become(Unattached(epoch, None, candidate, deadline))

    def become_prospective(self, now: Now) -> None:
        """Start a pre-vote, which shows if an election would be won."""
        old = self.state
        own_leadership = old.leader_id == self._config.node_id
        self._become(
            Prospective(
                old.epoch,
                Tally.of(self._log.voters, self._config.node_id),
                self.timeouts.election_deadline_ms(now),
                None if own_leadership else old.leader_id,
                () if own_leadership else self.leader_endpoints,
                old.voted,
            )
        )
        self._connections.reset_all()
        self._advance_election(now)

    def become_candidate(self, now: Now) -> None:
        """Raise the epoch and vote for itself; both are persisted before any voter is asked."""
        self._become(
            Candidate(
                self.epoch + 1,
                Tally.of(self._log.voters, self._config.node_id),
                self.timeouts.election_deadline_ms(now),
                self._config.key,
            )
        )
        self._connections.reset_all()
        self._advance_election(now)

    def _advance_election(self, now: Now) -> None:
        if isinstance(self.state, Prospective) and self.state.votes.won:
            self.become_candidate(now)
        elif isinstance(self.state, Candidate) and self.state.votes.won:
            self._become_leader(now)

    def count_vote(self, election: Candidate | Prospective, voter_id: int, granted: bool, now: Now) -> None:
        """Count a vote; the election is then won, lost, or undecided.

        A candidate that lost waits for the end of its election timeout (`Elections.poll_candidate`). The voters that
        refused it may elect another candidate, and a new pre-vote at once would depose the leader that they are
        electing.
        """
        election.votes.record(voter_id, granted)
        self._advance_election(now)
        state = self.state
        if isinstance(state, Prospective) and state.votes.lost:
            self.lose_prospective(now)

    def lose_prospective(self, now: Now) -> None:
        """End a lost pre-vote: follow the known leader again, or wait for one."""
        state = self.state
        assert isinstance(state, Prospective)
        if state.leader_id is not None and address(state.leader_endpoints, self._config.listener) is not None:
            self.become_follower(state.epoch, state.leader_id, state.leader_endpoints, now)
        else:
            self.become_unattached(state.epoch, now, state.leader_id)

    def _become_leader(self, now: Now) -> None:
        """Become the elected leader. The first batch of the epoch is the control records; nothing is committed before
        it."""
        candidate = self.state
        assert isinstance(candidate, Candidate)
        config, history, voters = self._config, self._log.history, self._log.voters
        leader = Leader(
            candidate.epoch,
            config.node_id,
            self._log.view.end_offset,
            QuorumReplicas.of(config.key, voters),
            tuple(sorted(candidate.votes.granted)),
            self.timeouts.check_quorum_deadline_ms(now),
            now.steady_ms,
            told_voters=voters.updated_by_id(config.as_voter) if history.kraft_version < 1 else None,
        )
        self._become(leader)
        self._connections.reset_all()
        control: list[batches.Control] = [batches.leader_change(config.node_id, voters.ids(), leader.granting_voters)]
        if history.kraft_version >= 1:
            updated = voters.updated(config.as_voter)
            if history.voters_offset == -1 or voters.needs_update(config.as_voter):
                # The voters of a new quorum are only in its first checkpoint, which is not fetched, so they must be
                # written to the log.
                assert updated is not None
                control += [batches.kraft_version(history.kraft_version), batches.voters(updated)]
        self.append_control(leader, control, now)
        self.count_self()

    def _follower(
        self, epoch: int, leader_id: int, endpoints: Endpoints, voted: ReplicaKey | None, now: Now
    ) -> Follower:
        timeout = self._config.fetch_timeout_ms
        return Follower(epoch, leader_id, endpoints, now.steady_ms + timeout, now.steady_ms + timeout, voted)

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now: Now) -> None:
        voted = self.state.voted if epoch == self.epoch else None
        self._become(self._follower(epoch, leader_id, endpoints, voted, now))
        self._connections.reset_all()

    def become_resigned(self, leader: Leader, now: Now) -> None:
        """Step down; the most advanced of the others is the first successor."""
        others = leader.replicas.others_by_offset()
        self._become(
            Resigned(
                leader.epoch,
                self._config.node_id,
                [progress.key for progress in others],
                {progress.key.id for progress in others},
                self.timeouts.election_deadline_ms(now),
            )
        )
        self._connections.reset_all()

    def ask_to_resign(self) -> None:
        """Give up the leadership because the disk failed or the controller asked for it."""
        if isinstance(self.state, Leader):
            self.state.ask_to_resign()

    def shut_down(self) -> None:
        """Give up the leadership and take part in no election."""
        self.shutting_down = True
        self.ask_to_resign()

    # Effects of a role change

    def _persist(self) -> None:
        state, history = self.state, self._log.history
        election_state = ElectionState(
            state.epoch, state.leader_id, state.voted, history.voters.ids(), min(history.kraft_version, 1)
        )
        if self._stored != election_state:
            self._stored = election_state
            self._outbox.persist(election_state)

    def _tell_leader(self) -> None:
        state = self.state
        if isinstance(state, Resigned):
            told: tuple[int | None, int] = (None, state.epoch)
        else:
            told = (state.leader_id, state.epoch)
        if told != self._told:
            self._told = told
            start = state.epoch_start_offset if isinstance(state, Leader) else 0
            self._outbox.leader_changed(LeaderChange(told[0], told[1], start))

    # A leader's changes to its log

    def append_control(self, leader: Leader, records: list[batches.Control], now: Now) -> None:
        before = self._log.voters
        self._log.append_control(records, leader.epoch, now.wall_ms)
        if self._log.voters is not before:
            leader.voters_changed(self._log.voters, self.timeouts.check_quorum_deadline_ms(now))

    def count_self(self) -> None:
        """Count the records that this replica has fsynced."""
        if isinstance(self.state, Leader):
            self.state.replicas.find_or_add(self._config.key).end_offset = self._log.view.durable_offset
            self.advance_high_watermark(self.state)

    def advance_high_watermark(self, leader: Leader) -> None:
        committed = leader.replicas.committed()
        # R10: records of an older epoch are committed only together with one of this epoch.
        if committed <= leader.epoch_start_offset or committed <= (leader.high_watermark or 0):
            return
        leader.high_watermark = committed
        self._log.promise(committed)
        self._log.commit(committed)
