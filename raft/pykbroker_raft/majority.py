"""Majority arithmetic, and the leader's view of each replica.

Responsible for the numbers: how many voters are a majority, which offset a majority has, which replicas fetched lately.
Invariants: the offset of the local replica is its fsynced end; a committed offset never moves back (R4, R5), and only
moves to an offset above the start of the leader's own epoch (R10).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pykbroker_raft.voters import ReplicaKey, VoterSet

# An observer that is to become a voter must have fetched within this time, as in Apache Kafka.
CAUGHT_UP_WITHIN_MS = 3_600_000

# DescribeQuorum lists an observer for this long after its last fetch.
OBSERVER_SESSION_TIMEOUT_MS = 300_000


def majority(voters: int) -> int:
    """Return the smallest number of voters that shares a member with every other set of that size."""
    return voters // 2 + 1


def majority_offset(end_offsets: Iterable[int]) -> int:
    """Return the highest end offset that a majority has reached; -1 stands for a voter whose offset is unknown."""
    ordered = sorted(end_offsets, reverse=True)
    return ordered[majority(len(ordered)) - 1] if ordered else -1


@dataclass(slots=True)
class Progress:
    """One replica as its leader sees it. Times are -1 until the first event; `*_wall_ms` are for DescribeQuorum."""

    key: ReplicaKey
    end_offset: int = -1
    acknowledged: bool = False
    last_fetch_ms: int = -1
    last_fetch_wall_ms: int = -1
    last_caught_up_wall_ms: int = -1
    leader_end_at_last_fetch: int = -1

    def fetched(self, offset: int, leader_end: int, now_ms: int, wall_ms: int) -> None:
        # The replica was caught up at its previous fetch if this fetch begins where the leader's log ended at that
        # time.
        if offset >= leader_end:
            self.last_caught_up_wall_ms = max(self.last_caught_up_wall_ms, wall_ms)
        elif 0 < self.leader_end_at_last_fetch <= offset:
            self.last_caught_up_wall_ms = max(self.last_caught_up_wall_ms, self.last_fetch_wall_ms)
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)
        self.last_fetch_wall_ms = max(self.last_fetch_wall_ms, wall_ms)
        self.end_offset = offset
        self.acknowledged = True

    def is_caught_up(self, now_ms: int) -> bool:
        """Return True if the replica has had all of the leader's log, and still fetches."""
        return self.last_caught_up_wall_ms > 0 and 0 <= now_ms - self.last_fetch_ms < CAUGHT_UP_WITHIN_MS


@dataclass(slots=True)
class QuorumReplicas:
    """All replicas that a leader knows: voters by id, observers by key."""

    local: ReplicaKey
    voters: dict[int, Progress] = field(default_factory=dict)
    observers: dict[ReplicaKey, Progress] = field(default_factory=dict)

    @classmethod
    def of(cls, local: ReplicaKey, voters: VoterSet) -> QuorumReplicas:
        table = cls(local, {voter.key.id: Progress(voter.key) for voter in voters})
        if local.id in table.voters:
            table.voters[local.id].acknowledged = True
        return table

    def find(self, key: ReplicaKey) -> Progress | None:
        progress = self.voters.get(key.id)
        if progress is not None and (not progress.key.has_directory or progress.key == key):
            return progress
        return self.observers.get(key)

    def find_or_add(self, key: ReplicaKey) -> Progress:
        progress = self.find(key)
        if progress is None:
            progress = self.observers[key] = Progress(key)
        return progress

    def is_voter(self, progress: Progress) -> bool:
        return self.voters.get(progress.key.id) is progress

    def update_voters(self, voters: VoterSet) -> None:
        """Take over a new voter set. An observer that becomes a voter keeps its progress, and so does a voter that was
        removed."""
        old, self.voters = self.voters, {}
        for voter in voters:
            progress = old.pop(voter.key.id, None)
            if progress is None or (progress.key.has_directory and progress.key != voter.key):
                if progress is not None:
                    self.observers.setdefault(progress.key, progress)
                progress = self.observers.pop(voter.key, None) or Progress(voter.key)
            progress.key = voter.key
            self.voters[voter.key.id] = progress
        for progress in old.values():
            self.observers.setdefault(progress.key, progress)

    def forget_idle_observers(self, now_ms: int) -> None:
        for key, progress in list(self.observers.items()):
            if key != self.local and now_ms - progress.last_fetch_ms >= OBSERVER_SESSION_TIMEOUT_MS:
                del self.observers[key]

    def committed(self) -> int:
        return majority_offset(progress.end_offset for progress in self.voters.values())

    def others_by_offset(self) -> list[Progress]:
        """Return the other voters, the most advanced first: the preferred successors of a resigning leader."""
        others = [progress for progress in self.voters.values() if progress.key.id != self.local.id]
        return sorted(others, key=lambda progress: (-progress.end_offset, progress.key))


@dataclass(slots=True)
class Tally:
    """The votes of one election, counted once per voter id."""

    voters: tuple[ReplicaKey, ...]
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, voters: VoterSet, own: int) -> Tally:
        tally = cls(tuple(voter.key for voter in voters))
        if own in {key.id for key in tally.voters}:
            tally.granted.add(own)
        return tally

    def record(self, voter_id: int, granted: bool) -> None:
        if voter_id not in {key.id for key in self.voters}:
            return
        if granted:
            self.rejected.discard(voter_id)
            self.granted.add(voter_id)
        elif voter_id not in self.granted:
            self.rejected.add(voter_id)

    @property
    def won(self) -> bool:
        return len(self.granted) >= majority(len(self.voters))

    @property
    def lost(self) -> bool:
        return len(self.voters) - len(self.rejected) < majority(len(self.voters))

    def unheard(self) -> list[ReplicaKey]:
        return [key for key in self.voters if key.id not in self.granted and key.id not in self.rejected]
