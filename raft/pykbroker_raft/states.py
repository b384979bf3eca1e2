"""The roles of a replica, the state of each, and the table of transitions between them.

A replica is a voter or an observer, and an observer can only be Unattached or Follower. Prospective is a pre-candidate
(KIP-996): it asks if it would be elected before it raises the epoch, so that a replica that comes back from a network
partition does not disturb a healthy quorum. Resigned is a leader that has stepped down, or that has restarted: it no
longer leads in its epoch and votes for no other voter in it.

Epochs never decrease, and a voter casts one vote in an epoch. A transition that is not in the table raises.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.majority import QuorumReplicas, Tally
from pykbroker_raft.voters import Endpoints, ReplicaKey, VoterSet


class Role(Enum):
    UNATTACHED = "Unattached"
    PROSPECTIVE = "Prospective"
    CANDIDATE = "Candidate"
    LEADER = "Leader"
    FOLLOWER = "Follower"
    RESIGNED = "Resigned"


#: Each comment lists the events, and in parentheses the role that follows.
TRANSITIONS: dict[Role, frozenset[Role]] = {
    # A vote given, or a higher epoch seen (Unattached); no leader found in time (Prospective); a leader found
    # (Follower).
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
    # Lost without a known leader, or a higher epoch seen (Unattached); a vote given (Prospective); would be elected
    # (Candidate); lost with a known leader, or a leader found (Follower).
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER}),
    # A higher epoch seen (Unattached); lost or timed out (Prospective); elected (Leader); a leader found (Follower).
    Role.CANDIDATE: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.LEADER, Role.FOLLOWER}),
    # A higher epoch seen (Unattached); a leader of a higher epoch found (Follower); asked to stop, or no majority
    # fetches (Resigned).
    Role.LEADER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED}),
    # A higher epoch seen (Unattached); the leader is silent (Prospective); another leader, or more endpoints of the
    # same leader (Follower).
    Role.FOLLOWER: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
    # A higher epoch seen, or no voter was elected in time (Unattached); the only voter starts again (Prospective); a
    # leader of a higher epoch found (Follower).
    Role.RESIGNED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
}

# Roles that an observer can never have.
VOTERS_ONLY = frozenset({Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER})


class IllegalTransition(AssertionError):
    """A bug: this transition is not in the table, or it lowers the epoch."""


def check_transition(old: State, new: State, may_stand: bool) -> None:
    """Raise unless `old` may become `new`."""
    if new.role not in TRANSITIONS[old.role]:
        raise IllegalTransition(f"{old.role.value} (epoch {old.epoch}) never becomes {new.role.value}")
    if new.role in VOTERS_ONLY and not may_stand:
        raise IllegalTransition(f"an observer never becomes {new.role.value}")
    if new.epoch < old.epoch:
        raise IllegalTransition(f"epoch {old.epoch} of {old.role.value} would decrease to {new.epoch}")
    if new.epoch == old.epoch:
        if old.role in (Role.LEADER, Role.RESIGNED) and new.role not in (Role.RESIGNED, Role.PROSPECTIVE):
            raise IllegalTransition(f"{old.role.value} stays so in epoch {old.epoch}, not {new.role.value}")
        if old.voted is not None and new.voted != old.voted and new.role is not Role.LEADER:
            raise IllegalTransition(f"the vote for {old.voted} in epoch {old.epoch} would be forgotten")


@dataclass(slots=True)
class Unattached:
    epoch: int
    # Known from a response, but without an endpoint.
    leader_id: int | None = None
    voted: ReplicaKey | None = None
    # None for observers, which never start an election.
    election_deadline_ms: int | None = None
    role = Role.UNATTACHED

    def call_election_at(self, deadline_ms: int) -> None:
        self.election_deadline_ms = deadline_ms


@dataclass(slots=True)
class Prospective:
    epoch: int
    votes: Tally
    election_deadline_ms: int
    leader_id: int | None = None
    leader_endpoints: Endpoints = ()
    voted: ReplicaKey | None = None
    role = Role.PROSPECTIVE


@dataclass(slots=True)
class Candidate:
    epoch: int
    votes: Tally
    election_deadline_ms: int
    voted: ReplicaKey | None
    leader_id: None = None
    role = Role.CANDIDATE


@dataclass(slots=True)
class Leader:
    epoch: int
    leader_id: int
    # The end of the log at the election: the first record of this epoch goes there.
    epoch_start_offset: int
    replicas: QuorumReplicas
    granting_voters: tuple[int, ...]
    check_quorum_deadline_ms: int
    begin_epoch_deadline_ms: int
    # None until a record of this epoch is committed.
    high_watermark: int | None = None
    # Voters that fetched since the check-quorum timer was last reset.
    fetched_voters: set[int] = field(default_factory=set)
    resign_requested: bool = False
    # The configured voters with the data that they sent in this epoch (UpdateRaftVoter); None from kraft.version 1 on,
    # because then the log contains it.
    told_voters: VoterSet | None = None
    voted: None = None
    role = Role.LEADER

    def ask_to_resign(self) -> None:
        """Resign in the next turn."""
        self.resign_requested = True

    def voter_fetched(self, voter_id: int, deadline_ms: int) -> None:
        """Count a fetch. Once a majority has fetched, the count begins again, and the next majority has to fetch
        before `deadline_ms`."""
        self.fetched_voters.add(voter_id)
        needed = len(self.replicas.voters) // 2 + 1
        if self.leader_id in self.replicas.voters:
            needed -= 1
        if len(self.fetched_voters) >= needed:
            self.fetched_voters.clear()
            self.check_quorum_deadline_ms = deadline_ms

    def voters_changed(self, voters: VoterSet, check_quorum_deadline_ms: int) -> None:
        """Use another voter set. A majority of its voters has to fetch before the deadline. A leader that was the only
        voter had no deadline until now."""
        self.replicas.update_voters(voters)
        self.fetched_voters.clear()
        self.check_quorum_deadline_ms = check_quorum_deadline_ms

    def voter_acknowledged(self, voter_id: int) -> None:
        """Record that the voter knows of this leadership."""
        if voter_id in self.replicas.voters:
            self.replicas.voters[voter_id].acknowledged = True

    def tell_voters_again_at(self, deadline_ms: int) -> None:
        self.begin_epoch_deadline_ms = deadline_ms

    def voter_told(self, voters: VoterSet) -> None:
        """Record the voter set after a voter has sent its directory, endpoints and kraft.version."""
        self.told_voters = voters


@dataclass(slots=True)
class SnapshotDownload:
    """A snapshot that is being fetched from the leader; the bytes so far are in the partial file."""

    id: OffsetAndEpoch
    position: int = 0

    def arrived(self, count: int) -> None:
        self.position += count


@dataclass(slots=True)
class Follower:
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    fetch_deadline_ms: int
    update_voter_deadline_ms: int
    voted: ReplicaKey | None = None
    # True once this leader has answered in this epoch; from then on no pre-vote is granted.
    has_fetched: bool = False
    # True if this leader has received this voter's data (kraft.version 0).
    has_updated_leader: bool = False
    download: SnapshotDownload | None = None
    role = Role.FOLLOWER

    def wait_for_leader_until(self, deadline_ms: int) -> None:
        self.fetch_deadline_ms = deadline_ms

    def fetched(self) -> None:
        """Record that the leader has answered as expected."""
        self.has_fetched = True

    def leader_left(self, deadline_ms: int) -> None:
        """Record that the leader is certainly gone, so that this replica grants pre-votes."""
        self.fetch_deadline_ms = deadline_ms
        self.has_fetched = False

    def update_voter_again_at(self, deadline_ms: int) -> None:
        self.update_voter_deadline_ms = deadline_ms

    def leader_updated(self) -> None:
        """Record that the leader has received this voter's data."""
        self.has_updated_leader = True

    def begin_download(self, snapshot: OffsetAndEpoch) -> None:
        self.download = SnapshotDownload(snapshot)

    def end_download(self) -> None:
        """End the download: it is complete, or it is impossible."""
        self.download = None


@dataclass(slots=True)
class Resigned:
    epoch: int
    leader_id: int
    preferred_successors: list[ReplicaKey]
    # Voters that have not yet answered EndQuorumEpoch.
    unacknowledged: set[int]
    election_deadline_ms: int
    voted: None = None
    role = Role.RESIGNED

    def voter_acknowledged(self, voter_id: int) -> None:
        """Record that the voter knows of the end of this leadership."""
        self.unacknowledged.discard(voter_id)


State = Unattached | Prospective | Candidate | Leader | Follower | Resigned
