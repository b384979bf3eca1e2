"""The invariants of the metadata quorum after every event: R1 to R8, R10 to R12, and L1 of its log.

A node is checked by its `RaftNode`, by its files, and by what its disk would keep in a power loss. Its messages are
checked when it sends them: a message with an epoch or a vote leaves when both are durable.

The checks remember leaders and votes for the whole run, over kills and restarts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker_raft.states import Follower, Leader, Prospective, Role, State
from tests.simulation.invariants.broken import InvariantBroken, require
from tests.simulation.invariants.durable import DurableQuorum
from tests.simulation.invariants.ledger import Ledger
from tests.simulation.invariants.shadow import Shadow, StoredBatch

if TYPE_CHECKING:
    from pykbroker.quorum.driver import QuorumDriver
    from pykbroker_log.memory_disk import MemoryDisk
    from pykbroker_log.partition_log import PartitionLog
    from pykbroker_raft.election_state import ElectionState
    from pykbroker_raft.raft_node import RaftNode

_OBSERVERS = (Role.UNATTACHED, Role.FOLLOWER)


class QuorumMember:
    """One node, as at the last check."""

    __slots__ = (
        "_files",
        "_log",
        "_raft",
        "_view",
        "agrees_to",
        "driver",
        "durable",
        "end",
        "epoch",
        "files_end",
        "high_watermark",
        "must_have",
        "number",
        "shadow",
        "start",
        "state",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.shadow = Shadow()
        self.durable = DurableQuorum()
        #: the epoch, over all its lives
        self.epoch = -1
        #: the durable end of its log when the life before ended
        self.must_have = 0
        self.begin(None)

    def begin(self, driver: QuorumDriver | None) -> None:
        """Begin a life, or end it (None)."""
        self.driver = driver
        self._raft: RaftNode | None = None if driver is None else driver.node
        self._log = None if self._raft is None else self._raft._log
        self._view = None if self._raft is None else self._raft.log
        self._files = None if driver is None else driver.storage.log
        self.state: State | None = None
        self.end = self.start = self.files_end = -1
        self.high_watermark: int | None = None
        self.agrees_to = 0

    @property
    def raft(self) -> RaftNode:
        assert self._raft is not None
        return self._raft

    def is_as_before(self) -> bool:
        """Return True if nothing has changed since `take`. Called after every event."""
        raft, log, view, files = self._raft, self._log, self._view, self._files
        if raft is None or log is None or view is None or files is None:
            return True
        return (
            raft._roles.state is self.state
            and view.end_offset == self.end
            and files.log_end_offset == self.files_end
            and log.high_watermark == self.high_watermark
            and view.start_offset == self.start
        )

    def take(self) -> None:
        raft = self.raft
        self.state, self.end = raft.state, raft.log.end_offset
        self.start, self.high_watermark = raft.log.start_offset, raft.high_watermark
        self.files_end = self.files.log_end_offset

    @property
    def files(self) -> PartitionLog:
        assert self._files is not None
        return self._files


class QuorumInvariants:
    """The invariants of the whole quorum."""

    def __init__(self, numbers: list[int]) -> None:
        self.members = {number: QuorumMember(number) for number in numbers}
        self.ledger = Ledger("the metadata log", "R7")
        #: epoch -> the node that leads it
        self.leaders: dict[int, int] = {}
        #: (node, epoch) -> the node that it has voted for
        self.votes: dict[tuple[int, int], int] = {}
        # The votes that a message has contained.
        self._told_votes: set[tuple[int, int]] = set()
        self._newest_epoch = 0

    # -- lives --------------------------------------------------------------------------------------------------------

    def started(self, number: int, driver: QuorumDriver, disk: MemoryDisk) -> None:
        """Begin a life after the node has opened its metadata log."""
        member = self.members[number]
        member.durable.on(disk)
        member.begin(driver)

    def ended(self, number: int) -> None:
        member = self.members[number]
        if member.driver is not None:
            member.must_have = member.durable.end_kept()
            # It may have died while it wrote a newer epoch that it had sent to no other node yet (`says`).
            election = member.durable.election()
            member.epoch = -1 if election is None else min(member.epoch, election.epoch)
            self._forget_votes(number, election)
        member.begin(None)

    def _forget_votes(self, number: int, durable: ElectionState | None) -> None:
        """Remove votes of a dead node that were neither durable nor sent to another node: they were never given."""
        for key in [key for key in self.votes if key[0] == number and key not in self._told_votes]:
            voted = None if durable is None or durable.epoch != key[1] else durable.voted
            if (durable is None or key[1] >= durable.epoch) and (voted is None or voted.id != self.votes[key]):
                del self.votes[key]

    # -- after an event -----------------------------------------------------------------------------------------------

    def look(self, member: QuorumMember) -> list[StoredBatch]:
        """Check a node that has changed. Return what was committed since."""
        raft, before, high_watermark_before = member.raft, member.state, member.high_watermark
        start_before = member.start
        state = raft.state
        if state is not before:
            self._role(member, state)
        self._follow_log(member, high_watermark_before)
        member.take()
        if isinstance(state, Leader) and state is not before:
            self._complete(member)
        self._snapshots(member, start_before, before)
        return self._committed(member, high_watermark_before)

    def _role(self, member: QuorumMember, state: State) -> None:
        number = member.number
        require(
            state.epoch >= member.epoch,
            "R2",
            f"node {number} is in epoch {state.epoch}, and was in {member.epoch}",
        )
        member.epoch = state.epoch
        if state.leader_id is not None:
            self._leads(state.epoch, state.leader_id, number)
        if state.voted is not None:
            self._votes(number, state.epoch, state.voted.id)
        if not member.raft.is_voter:
            require(state.role in _OBSERVERS, "R12", f"node {number} is no voter, and {state.role.value}")
        if isinstance(state, Prospective):
            # It may have seen a higher epoch in the same event.
            require(
                state.epoch <= self._newest_epoch,
                "R12",
                f"node {number} asks for pre-votes in epoch {state.epoch}, which it has begun itself: the newest was "
                f"{self._newest_epoch}",
            )
        self._newest_epoch = max(self._newest_epoch, state.epoch)

    def _leads(self, epoch: int, leader: int, teller: int) -> None:
        known = self.leaders.setdefault(epoch, leader)
        if known != leader:
            raise InvariantBroken("R1", f"epoch {epoch} has the leaders {known} and {leader}, says node {teller}")

    def _votes(self, number: int, epoch: int, candidate: int) -> None:
        known = self.votes.setdefault((number, epoch), candidate)
        if known != candidate:
            raise InvariantBroken("R3", f"node {number} has voted for {known} and for {candidate} in epoch {epoch}")

    def _follow_log(self, member: QuorumMember, high_watermark: int | None) -> None:
        # Also if the end is the same: in one event a log may be cut and grow to its old end.
        shadow = member.shadow
        changes = shadow.follow(member.files)
        if member.must_have > shadow.end:
            raise InvariantBroken(
                "L1",
                f"node {member.number} has lost what was durable: its metadata log ends at {shadow.end}, and "
                f"everything before {member.must_have} was synced",
            )
        member.must_have = 0
        if changes.gone:
            first = changes.gone[0].base
            member.agrees_to = min(member.agrees_to, first)
            if high_watermark is not None and first < high_watermark and shadow.end < high_watermark:
                raise InvariantBroken(
                    "R6",
                    f"node {member.number} has cut its metadata log at {first}, and knew everything before "
                    f"{high_watermark} to be committed",
                )
        end = None
        for batch in changes.added:
            if end is not None:
                require(
                    batch.base == end,
                    "P12",
                    f"node {member.number}: the metadata log goes on at {batch.base} after {end - 1}",
                )
            end = batch.next
            self.ledger.note(member.number, batch)

    def _complete(self, member: QuorumMember) -> None:
        """Check that a leader has all committed records."""
        epoch = member.raft.epoch
        if epoch != max(self.leaders):
            return
        lacks = self.ledger.difference(member.shadow, member.agrees_to, self.ledger.end)
        if lacks is not None:
            raise InvariantBroken(
                "R8",
                f"node {member.number} leads epoch {epoch}, and its log, which ends at {member.shadow.end}, lacks what "
                f"is committed at {lacks[0]}; there it has {lacks[1]}",
            )
        member.agrees_to = self.ledger.end

    def _snapshots(self, member: QuorumMember, start_before: int, before: State | None) -> None:
        view = member.raft.log
        if view.start_offset == start_before:
            return
        number, start = member.number, view.start_offset
        starts = {snapshot.offset for snapshot in view.snapshots}
        require(
            start == 0 or start in starts,
            "R11",
            f"node {number}: the metadata log starts at {start}, and there is no snapshot of that offset",
        )
        earliest = view.earliest_snapshot
        require(
            earliest is None or earliest.offset == 0 or start <= earliest.offset,
            "R11",
            f"node {number}: the metadata log starts at {start}, behind the snapshot {earliest}",
        )
        for snapshot in view.snapshots:
            if snapshot.offset == 0:
                continue
            require(
                snapshot.offset <= self.ledger.end,
                "R11",
                f"node {number}: the snapshot {snapshot} is beyond what is committed, {self.ledger.end}",
            )
            last = self.ledger.batches[self.ledger.index_of(snapshot.offset - 1)]
            require(
                last.epoch == snapshot.epoch,
                "R11",
                f"node {number}: the snapshot {snapshot} ends with {last}",
            )
        if isinstance(before, Leader) and before is member.raft.state and start_before >= 0:
            require(
                view.end_offset > start,
                "R11",
                f"node {number} leads and has taken a snapshot in place of its log, at {start}",
            )

    def _committed(self, member: QuorumMember, before: int | None) -> list[StoredBatch]:
        raft, number = member.raft, member.number
        high_watermark = raft.high_watermark
        if high_watermark is None:
            return []
        require(
            before is None or high_watermark >= before,
            "R4",
            f"node {number}: the high watermark went from {before} back to {high_watermark}",
        )
        require(
            high_watermark <= raft.log.end_offset,
            "R4",
            f"node {number}: the high watermark {high_watermark} is beyond its log, which ends at "
            f"{raft.log.end_offset}",
        )
        added: list[StoredBatch] = []
        state = raft.state
        if isinstance(state, Leader) and state.high_watermark == high_watermark != before:
            self._has_majority(member, state, high_watermark)
            added = self.ledger.extend(member.shadow, high_watermark)
        require(
            high_watermark <= self.ledger.end or isinstance(state, Leader),
            "R4",
            f"node {number} takes everything before {high_watermark} for committed, and no leader does: "
            f"{self.ledger.end}",
        )
        known = min(high_watermark, self.ledger.end)
        if member.shadow.end < raft.log.end_offset:
            # A vote is written first; the node has batches that its files do not have yet.
            known = min(known, member.shadow.end)
        if known <= member.agrees_to:
            return added
        differs = self.ledger.difference(member.shadow, member.agrees_to, known)
        if differs is not None:
            raise InvariantBroken(
                "R7", f"node {number} has committed {differs[1]}, and committed is {differs[0]} in the metadata log"
            )
        member.agrees_to = known
        return added

    def _has_majority(self, member: QuorumMember, state: Leader, high_watermark: int) -> None:
        """Check R5 and R10 when a leader has committed."""
        raft = member.raft
        ends = {
            voter.key.id: self.members[voter.key.id].durable.end()
            for voter in raft.voters
            if voter.key.id in self.members
        }
        holding = [number for number, end in ends.items() if end >= high_watermark]
        if 2 * len(holding) <= len(raft.voters):
            raise InvariantBroken(
                "R5",
                f"node {member.number} commits everything before {high_watermark} in epoch {state.epoch}, and it is "
                f"durable on the nodes {holding} only: {ends}",
            )
        shadow = member.shadow
        index = shadow.index_of(high_watermark) - 1
        if index >= 0 and shadow.batches[index].epoch != state.epoch:
            raise InvariantBroken(
                "R10",
                f"node {member.number} commits everything before {high_watermark} in epoch {state.epoch}; the last of "
                f"it is {shadow.batches[index]}",
            )

    # -- messages of a node -------------------------------------------------------------------------------------------

    def says(self, driver: QuorumDriver, what: str) -> None:
        """Check a message that leaves a node and may contain the node's epoch and its vote."""
        member = self.members.get(driver.node_id)
        if member is None:
            return
        member.durable.on(driver._runtime.disk)  # type: ignore[arg-type]
        state = driver.node.state
        durable = member.durable.election()
        if durable is None or durable.epoch != state.epoch:
            raise InvariantBroken(
                "R2",
                f"node {member.number} sends {what} in epoch {state.epoch}, and durable is "
                f"{'no epoch' if durable is None else durable.epoch}",
            )
        voted = None if state.voted is None else state.voted.id
        if voted is not None and not isinstance(state, Follower):
            if durable.voted is None or durable.voted.id != voted:
                raise InvariantBroken(
                    "R3",
                    f"node {member.number} sends {what} in epoch {state.epoch} in which it votes for {voted}; durable "
                    f"is {None if durable.voted is None else durable.voted.id}",
                )
            self._votes(member.number, state.epoch, voted)
            self._told_votes.add((member.number, state.epoch))
