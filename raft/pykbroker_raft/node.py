"""KRaft as a value: inputs change the node, `ready()` says what the world has to do about it.

Responsible for the roles, their transitions and timers, for what is appended, and for the high watermark. The
protocol's parts are in `election`, `fetching` and `snapshotting`: functions over a node, no state of their own. Knows
no disk, no clock, no sockets; the only randomness is the `Random` it is given.

Invariants (numbers of the project's list):
R1 R3  a vote and a leadership are in `Ready.election` before any message that tells of them.
R2     the epoch never decreases; `states.check_transition` raises.
R4 R5  `high_watermark` never moves back, and a leader counts itself by what is fsynced.
R6     nothing below `high_watermark` is truncated.
R10    a leader commits nothing before a record of its own epoch.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pykbroker_raft import batches, election, fetching, snapshotting, voter_changes
from pykbroker_raft.connections import Connections
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.log_view import LogView, OffsetAndEpoch
from pykbroker_raft.quorum import ReplicaTable, Tally
from pykbroker_raft.ready import Append, Destination, LeaderChange, Now, Outgoing, ReadLog, ReadSnapshot, Ready, Reply
from pykbroker_raft.states import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    State,
    Unattached,
    check_transition,
)
from pykbroker_raft.voters import NO_VOTERS, Endpoint, Endpoints, ReplicaKey, VoterHistory, VoterNode, VoterSet, address
from pykbroker_wire.errors import ErrorCode, KafkaError

# Any larger and followers, ours and Kafka's, could not take the batch.
MAX_BATCH_BYTES = 8 * 1024 * 1024
NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Who this replica is, and the timeouts of the quorum under the names of Kafka's keys."""

    node_id: int
    directory_id: bytes
    cluster_id: str
    # The listener through which the nodes of the quorum talk.
    listener: str = "CONTROLLER"
    endpoints: Endpoints = ()
    bootstrap: tuple[tuple[str, int], ...] = ()
    static_voters: VoterSet = NO_VOTERS
    # Whether it can become a voter: it fsyncs what it fetches, and offers itself for election.
    is_controller: bool = True
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 * 1024 * 1024
    snapshot_max_bytes: int = 8 * 1024 * 1024

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def as_voter(self) -> VoterNode:
        return VoterNode(self.key, self.endpoints)


@dataclass(slots=True)
class Inbound:
    """A request as it came in; `token` names it in the reply."""

    token: int
    request: Any
    version: int
    listener: str


class NotLeader(KafkaError):
    """Only the leader appends."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, message)


class RaftNode:
    """One replica of the metadata partition."""

    def __init__(
        self,
        config: RaftConfig,
        chance: random.Random,
        log: LogView,
        history: VoterHistory,
        stored: ElectionState | None,
    ) -> None:
        self.config = config
        self.chance = chance
        self.log = log
        self.history = history
        self.high_watermark: int | None = None
        self.parked: list[fetching.Parked] = []
        self.installing = False
        self.shutting_down = False
        self.connections = Connections(
            config.retry_backoff_ms,
            config.request_timeout_ms,
            tuple(
                Destination(-2 - index, host, port) for index, (host, port) in enumerate(self._bootstrap_addresses())
            ),
        )
        self._stored = stored
        self._next_correlation_id = 0
        self._deadline_ms = 0
        self._ready = Ready()
        self._told: tuple[int | None, int] | None = None
        # Replaced in `start`: there is no state before the first `now`.
        self.state: State = Unattached(stored.epoch if stored is not None else 0)

    def _bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        if self.config.bootstrap:
            return self.config.bootstrap
        found = [address(voter.endpoints, self.config.listener) for voter in self.config.static_voters]
        return tuple((endpoint.host, endpoint.port) for endpoint in found if endpoint is not None)

    # What it is

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def role(self) -> Role:
        return self.state.role

    @property
    def leader_id(self) -> int | None:
        return self.state.leader_id

    @property
    def leader_id_or_none_known(self) -> int:
        """The leader as messages carry it."""
        return -1 if self.state.leader_id is None else self.state.leader_id

    @property
    def is_leader(self) -> bool:
        return isinstance(self.state, Leader)

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def is_voter(self) -> bool:
        return self.config.is_controller and self.voters.is_voter(self.config.key)

    @property
    def leader_endpoints(self) -> Endpoints:
        match self.state:
            case Leader() | Resigned():
                return self.config.endpoints
            case Follower() | Prospective():
                return self.state.leader_endpoints
        return ()

    def leader_endpoint_for(self, listener: str) -> Endpoint | None:
        return address(self.leader_endpoints, listener)

    @property
    def must_flush(self) -> bool:
        """Whether what is fetched must be fsynced before the next fetch claims it: an observer that can become a
        voter, too."""
        return self.config.is_controller

    # Inputs

    def start(self, now: Now) -> None:
        """Take up the role that quorum-state left. The only voter elects itself at once."""
        self.state = self._initial_state(now)
        self._persist()
        if isinstance(self.state, Candidate):
            self._advance_election(now)
        alone = self.is_voter and self.voters.is_only_voter(self.config.key)
        if alone and not isinstance(self.state, (Leader, Candidate)):
            self.become_prospective(now)
        self._tell_leader()
        self.poll(now)

    def _initial_state(self, now: Now) -> State:
        config, stored = self.config, self._stored
        last_epoch = self.log.last_epoch
        deadline = now.steady_ms + self.random_election_timeout_ms()
        if stored is None or stored.epoch < last_epoch:
            return Unattached(max(last_epoch, 0), election_deadline_ms=deadline)
        if config.is_controller and stored.leader_id == config.node_id:
            # It cannot lead on in this epoch: records it appended and did not fsync may be lost, and their (offset,
            # epoch)
            # must never name others. Nor may it vote for another in it.
            others = {voter.key.id for voter in self.voters} - {config.node_id}
            return Resigned(stored.epoch, config.node_id, [], others, deadline)
        if stored.voted is not None and stored.leader_id is None:
            if config.is_controller and stored.voted == config.key and self.is_voter:
                return Candidate(stored.epoch, Tally.of(self.voters, config.node_id), deadline, config.key)
            return Unattached(stored.epoch, voted=stored.voted, election_deadline_ms=deadline)
        if stored.leader_id is not None:
            endpoints = self.voters.endpoints(stored.leader_id)
            if address(endpoints, config.listener) is None:
                return Unattached(stored.epoch, stored.leader_id, stored.voted, deadline)
            return self._follower(stored.epoch, stored.leader_id, endpoints, stored.voted, now)
        return Unattached(stored.epoch, election_deadline_ms=deadline)

    def receive(self, inbound: Inbound, now: Now) -> None:
        """A request of another replica. The reply comes in some later Ready."""
        name = type(inbound.request).__name__
        if name == "FetchRequest":
            fetching.handle_request(self, inbound, now)
        elif name == "VoteRequest":
            election.handle_vote_request(self, inbound, now)
        elif name == "BeginQuorumEpochRequest":
            election.handle_begin_request(self, inbound, now)
        elif name == "EndQuorumEpochRequest":
            election.handle_end_request(self, inbound, now)
        elif name == "FetchSnapshotRequest":
            snapshotting.handle_request(self, inbound, now)
        elif name == "UpdateRaftVoterRequest":
            voter_changes.handle_update_request(self, inbound, now)
        else:
            raise TypeError(f"{name} is no request of the quorum")
        self.poll(now)

    def response(self, correlation_id: int, source: Destination, response: Any | None, now: Now) -> None:
        """The answer to an `Outgoing`, or None when it could not be had. Answers nobody waits for are dropped."""
        if not self.connections.is_expected(source.id, correlation_id):
            return
        success = False
        if response is not None:
            name = type(response).__name__
            if name == "FetchResponse":
                success = fetching.handle_response(self, source, response, now)
            elif name == "VoteResponse":
                success = election.handle_vote_response(self, source, response, now)
            elif name == "BeginQuorumEpochResponse":
                success = election.handle_begin_response(self, source, response, now)
            elif name == "EndQuorumEpochResponse":
                success = election.handle_end_response(self, source, response, now)
            elif name == "FetchSnapshotResponse":
                success = snapshotting.handle_response(self, source, response, now)
            elif name == "UpdateRaftVoterResponse":
                success = voter_changes.handle_update_response(self, source, response, now)
            else:
                raise TypeError(f"{name} is no response of the quorum")
        self.connections.answered(source.id, correlation_id, success, now.steady_ms)
        self.poll(now)

    def propose(self, values: Sequence[bytes], now: Now) -> int:
        """Append values as one batch; the offset of the last one. Committed once the high watermark passes it."""
        if not isinstance(self.state, Leader):
            raise NotLeader(f"node {self.config.node_id} is {self.role.value} in epoch {self.epoch}")
        records = batches.data_batch(values, self.log.end_offset, self.epoch, now.wall_ms)
        if len(records) > MAX_BATCH_BYTES:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {len(records)} bytes is above {MAX_BATCH_BYTES}"
            )
        self.append_own(records, len(values))
        self.poll(now)
        return self.log.end_offset - 1

    def flushed(self, offset: int, now: Now) -> None:
        """Everything below `offset` is on the disk for good."""
        offset = min(offset, self.log.end_offset)
        if offset <= self.log.durable_offset:
            return
        self.log.durable_offset = offset
        if isinstance(self.state, Leader):
            self._count_self(self.state)
        self.poll(now)

    def snapshot_created(self, snapshot: OffsetAndEpoch, size: int) -> None:
        """The local state machine wrote a snapshot of what is committed."""
        if self.high_watermark is None or snapshot.offset > self.high_watermark:
            raise AssertionError(f"snapshot {snapshot} is above the high watermark {self.high_watermark}")
        self.log.snapshots[snapshot] = size

    def log_start_moved(self, offset: int) -> None:
        """Records below a snapshot were deleted, and the snapshots before it."""
        self.log.started_at(offset)
        self.history.forget_before(offset)

    def snapshot_installed(
        self, snapshot: OffsetAndEpoch, size: int, voters: VoterSet | None, kraft_version: int, now: Now
    ) -> None:
        """A fetched snapshot is in place and the log starts after it."""
        snapshotting.installed(self, snapshot, size, voters, kraft_version, now)
        self.poll(now)

    def forget(self, token: int) -> None:
        """Nobody waits for the reply to this request any more."""
        self.parked = [parked for parked in self.parked if parked.token != token]

    def resign(self, now: Now) -> None:
        """Lead no longer: the disk failed, or the controller asked for it."""
        if isinstance(self.state, Leader):
            self.state.resign_requested = True
        self.poll(now)

    def shut_down(self, now: Now) -> None:
        """Hand leadership on and stand for no election any more."""
        self.shutting_down = True
        self.resign(now)

    def tick(self, now: Now) -> None:
        self.poll(now)

    @property
    def deadline_ms(self) -> int | None:
        """The steady time at which `tick` has something to do; None when only a message can change anything."""
        return self._deadline_ms if self._deadline_ms < NEVER else None

    def ready(self) -> Ready:
        """What is to be done since the last call."""
        ready, self._ready = self._ready, Ready()
        return ready

    # Building the Ready

    def reply(
        self, inbound: Inbound | fetching.Parked, response: Any, read: ReadLog | ReadSnapshot | None = None
    ) -> None:
        self._ready.replies.append(Reply(inbound.token, response, read))

    def send(self, destination: Destination, request: Any, now: Now) -> None:
        self._next_correlation_id += 1
        self.connections.sent(destination.id, self._next_correlation_id, now.steady_ms)
        self._ready.requests.append(
            Outgoing(self._next_correlation_id, destination, request, self.config.request_timeout_ms)
        )

    @property
    def pending(self) -> Ready:
        """The Ready under construction, for the protocol's parts."""
        return self._ready

    def _persist(self) -> None:
        state = self.state
        election_state = ElectionState(
            state.epoch, state.leader_id, state.voted, self.voters.ids(), min(self.history.kraft_version, 1)
        )
        if self._stored != election_state:
            self._stored = self._ready.election = election_state

    def _tell_leader(self) -> None:
        state = self.state
        if isinstance(state, Resigned):
            told: tuple[int | None, int] = (None, state.epoch)
        else:
            told = (state.leader_id, state.epoch)
        if told != self._told:
            self._told = told
            start = state.epoch_start_offset if isinstance(state, Leader) else 0
            self._ready.leader = LeaderChange(told[0], told[1], start)

    # Transitions

    def become(self, state: State, now: Now) -> None:
        check_transition(self.state, state, self.is_voter)
        was_leader = self.is_leader
        self.state = state
        self._persist()
        if was_leader:
            fetching.fail_parked(self)
        self._tell_leader()

    def become_unattached(self, epoch: int, now: Now, leader_id: int | None = None) -> None:
        """A higher epoch was seen, or in this one nobody could be elected."""
        old = self.state
        if isinstance(old, (Unattached, Prospective, Candidate)) and old.election_deadline_ms is not None:
            deadline = old.election_deadline_ms
            if deadline <= now.steady_ms:
                deadline = now.steady_ms + self.random_election_timeout_ms()
        else:
            deadline = now.steady_ms + self.random_election_timeout_ms()
        voted = old.voted if epoch == old.epoch else None
        self.become(Unattached(epoch, leader_id, voted, deadline), now)
        self.connections.reset_all()

    def give_vote(self, candidate: ReplicaKey, epoch: int, now: Now) -> None:
        """The one vote of this epoch. Whoever got it is as good as this replica, so give it time."""
        deadline = now.steady_ms + self.random_election_timeout_ms()
        old = self.state
        if isinstance(old, Prospective) and old.epoch == epoch:
            self.become(
                Prospective(epoch, old.votes, deadline, old.leader_id, old.leader_endpoints, voted=candidate), now
            )
        else:
            self.become(Unattached(epoch, None, candidate, deadline), now)

    def become_prospective(self, now: Now) -> None:
        """Ask first whether an election would be won."""
        old = self.state
        own_leadership = old.leader_id == self.config.node_id
        self.become(
            Prospective(
                old.epoch,
                Tally.of(self.voters, self.config.node_id),
                now.steady_ms + self.random_election_timeout_ms(),
                None if own_leadership else old.leader_id,
                () if own_leadership else self.leader_endpoints,
                old.voted,
            ),
            now,
        )
        self.connections.reset_all()
        self._advance_election(now)

    def become_candidate(self, now: Now) -> None:
        """Raise the epoch and vote for itself; both are persisted before anybody is asked."""
        self.become(
            Candidate(
                self.epoch + 1,
                Tally.of(self.voters, self.config.node_id),
                now.steady_ms + self.random_election_timeout_ms(),
                self.config.key,
            ),
            now,
        )
        self.connections.reset_all()
        self._advance_election(now)

    def _advance_election(self, now: Now) -> None:
        if isinstance(self.state, Prospective) and self.state.votes.won:
            self.become_candidate(now)
        elif isinstance(self.state, Candidate) and self.state.votes.won:
            self.become_leader(now)

    def advance_election(self, now: Now) -> None:
        """A vote came in: won, lost, or neither yet.

        A candidate that lost waits out its election timeout (`poll_candidate`): the voters that refused it follow
        another candidate, and a new pre-vote at once would depose the leader that they are electing.
        """
        self._advance_election(now)
        state = self.state
        if isinstance(state, Prospective) and state.votes.lost:
            self.lose_prospective(now)

    def lose_prospective(self, now: Now) -> None:
        """Nobody would elect it: back to the leader it knew, or wait for one."""
        state = self.state
        assert isinstance(state, Prospective)
        if state.leader_id is not None and address(state.leader_endpoints, self.config.listener) is not None:
            self.become_follower(state.epoch, state.leader_id, state.leader_endpoints, now)
        else:
            self.become_unattached(state.epoch, now, state.leader_id)

    def become_leader(self, now: Now) -> None:
        """Elected. The first batch of the epoch is the control records; before it is committed nothing else is."""
        candidate = self.state
        assert isinstance(candidate, Candidate)
        config = self.config
        replicas = ReplicaTable.of(config.key, self.voters)
        leader = Leader(
            candidate.epoch,
            config.node_id,
            self.log.end_offset,
            replicas,
            tuple(sorted(candidate.votes.granted)),
            now.steady_ms + config.fetch_timeout_ms * 3 // 2,
            now.steady_ms,
        )
        self.become(leader, now)
        self.connections.reset_all()
        control: list[batches.Control] = [
            batches.leader_change(config.node_id, self.voters.ids(), leader.granting_voters)
        ]
        if self.history.kraft_version >= 1:
            updated = self.voters.updated(config.as_voter)
            if self.history.voters_offset == -1 or self.voters.needs_update(config.as_voter):
                # The voters of a new quorum are only in its first checkpoint, which nobody fetches: the log must have
                # them.
                assert updated is not None
                control += [batches.kraft_version(self.history.kraft_version), batches.voters(updated)]
        self.append_control(control, now)
        self._count_self(leader)

    def _follower(
        self, epoch: int, leader_id: int, endpoints: Endpoints, voted: ReplicaKey | None, now: Now
    ) -> Follower:
        timeout = self.config.fetch_timeout_ms
        return Follower(epoch, leader_id, endpoints, now.steady_ms + timeout, now.steady_ms + 3 * timeout, voted)

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now: Now) -> None:
        voted = self.state.voted if epoch == self.epoch else None
        self.become(self._follower(epoch, leader_id, endpoints, voted, now), now)
        self.connections.reset_all()

    def random_election_timeout_ms(self) -> int:
        timeout = self.config.election_timeout_ms
        return timeout + self.chance.randrange(timeout) if timeout > 0 else 0

    # The log

    def append_control(self, records: list[batches.Control], now: Now) -> None:
        data = batches.control_batch(records, self.log.end_offset, self.epoch, now.wall_ms)
        self.append_own(data, len(records))
        self.note_control(data)

    def append_own(self, records: bytes, count: int) -> None:
        base = self.log.end_offset
        self.log.appended(base, base + count, self.epoch)
        self._ready.log.append(Append(base, base + count, records))
        self._ready.flush = True

    def note_control(self, records: bytes) -> None:
        """Voter sets and kraft.version count from the moment they are appended."""
        for offset, record in batches.control_records(records):
            if record.type is batches.ControlType.KRAFT_VOTERS:
                self.history.sets.add(offset, VoterSet.from_record(record.message))
                if isinstance(self.state, Leader):
                    self.state.replicas.update_voters(self.voters)
            elif record.type is batches.ControlType.KRAFT_VERSION:
                self.history.versions.add(offset, record.message.kraft_version)

    def _count_self(self, leader: Leader) -> None:
        leader.replicas.find_or_add(self.config.key).end_offset = self.log.durable_offset
        self.advance_high_watermark(leader)

    def advance_high_watermark(self, leader: Leader) -> None:
        committed = leader.replicas.committed()
        # R10: an older epoch's records are committed only together with one of this epoch.
        if committed <= leader.epoch_start_offset or committed <= (leader.high_watermark or 0):
            return
        leader.high_watermark = committed
        self.set_high_watermark(committed)

    def set_high_watermark(self, offset: int) -> None:
        if self.high_watermark is not None and offset <= self.high_watermark:
            return
        self.high_watermark = offset
        self._ready.high_watermark = offset

    # Timers

    def poll(self, now: Now) -> None:
        """Do what time or the last input made due, and find out when to look again."""
        for _ in range(16):
            deadline = self._poll_state(now)
            if deadline > now.steady_ms:
                break
        deadline = min(deadline, fetching.poll_parked(self, now))
        # A due timer that changes nothing must not spin.
        self._deadline_ms = max(deadline, now.steady_ms + 1)

    def _poll_state(self, now: Now) -> int:
        match self.state:
            case Leader():
                return election.poll_leader(self, self.state, now)
            case Candidate():
                return election.poll_candidate(self, self.state, now)
            case Prospective():
                return election.poll_prospective(self, self.state, now)
            case Resigned():
                return election.poll_resigned(self, self.state, now)
            case Follower():
                return fetching.poll_follower(self, self.state, now)
            case Unattached():
                return fetching.poll_unattached(self, self.state, now)

    def send_to(self, destination: Destination, request: Any, now: Now) -> int:
        """Send unless the peer is busy or backing off; when to look again."""
        if self.connections.is_ready(destination.id, now.steady_ms):
            self.send(destination, request, now)
        return self.connections.ready_at(destination.id)

    def voter_destination(self, voter_id: int) -> Destination | None:
        endpoint = address(self.voters.endpoints(voter_id), self.config.listener)
        return None if endpoint is None else Destination(voter_id, endpoint.host, endpoint.port)
