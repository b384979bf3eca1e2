"""A quorum in one process on a virtual clock: nodes that crash, disks that lose what was not fsynced, a network that
loses, repeats and reorders. R1 to R8 and R10 to R12 of the project's invariants are checked at every event; R7, R9 and
liveness at the end.

The same seed gives the same run. Requests and responses are encoded and decoded, so the nodes send only valid messages.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pykbroker_raft import batches, checkpoint
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.log_view import BOOTSTRAP_SNAPSHOT, LogView, OffsetAndEpoch
from pykbroker_raft.raft_node import Inbound, RaftConfig, RaftNode
from pykbroker_raft.ready import (
    Append,
    Destination,
    Now,
    Outgoing,
    ReadLog,
    ReadSnapshot,
    Reply,
    SnapshotChunk,
    Truncate,
)
from pykbroker_raft.states import Candidate, Leader, Role, State
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterHistory, VoterNode, VoterSet
from pykbroker_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey

CLUSTER = "simulated-cluster"
WALL = 1_700_000_000_000


class InvariantBroken(AssertionError):
    pass


def require(condition: bool, rule: str, text: str) -> None:
    if not condition:
        raise InvariantBroken(f"{rule}: {text}")


@dataclass(slots=True)
class Stored:
    """A batch on a simulated disk."""

    base: int
    next: int
    epoch: int
    data: bytes


def split(data: bytes) -> list[Stored]:
    return [
        Stored(batch.base_offset, batch.next_offset, batch.epoch, data[batch.position : batch.position + batch.size])
        for batch in batches.intact(data)
    ]


@dataclass(slots=True)
class SimDisk:
    """The files of one node, and the part of them that would survive a power loss."""

    start: int = 0
    log: list[Stored] = field(default_factory=list)
    durable: int = 0
    election: ElectionState | None = None
    snapshots: dict[OffsetAndEpoch, bytes] = field(default_factory=dict)
    partial: bytearray = field(default_factory=bytearray)
    generation: int = 0

    @property
    def end(self) -> int:
        return self.log[-1].next if self.log else self.start

    def lose_power(self, chance: random.Random) -> None:
        """Remove unsynced batches; by chance a part of them survives."""
        unsynced = [batch for batch in self.log if batch.next > self.durable]
        for _ in range(chance.randrange(len(unsynced) + 1)):
            self.log.pop()
        self.durable = min(self.durable, self.end)
        self.generation += 1

    def truncate(self, offset: int) -> None:
        while self.log and self.log[-1].next > offset:
            self.log.pop()
        self.durable = min(self.durable, self.end)
        self.generation += 1

    def read(self, offset: int, max_bytes: int) -> bytes:
        found = bytearray()
        for batch in self.log:
            if batch.next > offset:
                if found and len(found) + len(batch.data) > max_bytes:
                    break
                found += batch.data
        return bytes(found)

    def restart_after(self, snapshot: OffsetAndEpoch, data: bytes) -> None:
        self.snapshots = {known: old for known, old in self.snapshots.items() if known >= snapshot}
        self.snapshots[snapshot] = data
        self.log.clear()
        self.start = self.durable = snapshot.offset
        self.generation += 1

    def view(self) -> LogView:
        # Recovery fsyncs the log that it found; a log that ends below the latest snapshot starts again after it.
        epochs: list[tuple[int, int]] = []
        latest = max(self.snapshots, default=None)
        if latest is not None and latest > OffsetAndEpoch(self.end, self.log[-1].epoch if self.log else 0):
            self.restart_after(latest, self.snapshots[latest])
        self.durable = self.end
        for batch in self.log:
            if not epochs or batch.epoch > epochs[-1][0]:
                epochs.append((batch.epoch, batch.base))
        sizes = {known: len(data) for known, data in self.snapshots.items()}
        return LogView(self.start, self.end, self.end, epochs, sizes)

    def history(self) -> VoterHistory:
        history = VoterHistory()
        latest = max(self.snapshots, default=None)
        if latest is not None:
            content = checkpoint.decode(self.snapshots[latest])
            history.reset(latest.offset - 1, content.voters, content.kraft_version)
        for batch in self.log:
            if latest is not None and batch.base < latest.offset:
                continue
            for offset, record in batches.control_records(batch.data):
                if record.type is batches.ControlType.KRAFT_VOTERS:
                    history.sets.add(offset, VoterSet.from_record(record.message))
                elif record.type is batches.ControlType.KRAFT_VERSION:
                    history.versions.add(offset, record.message.kraft_version)
        return history


@dataclass(slots=True)
class SimNode:
    id: int
    config: RaftConfig
    disk: SimDisk
    raft: RaftNode | None = None
    life: int = 0
    checked: int = 0
    last_high_watermark: int = -1
    tokens: dict[int, tuple[SimNode, int, Outgoing]] = field(default_factory=dict)
    timer_ms: int = -1
    flushing: bool = False
    # The state at the last check.
    state: State | None = None


@dataclass(slots=True)
class Faults:
    """The rates of faults; with all at zero the world is perfect."""

    drop: float = 0.02
    repeat: float = 0.02
    slow: float = 0.05
    crash: float = 0.004
    partition: float = 0.003
    snapshot: float = 0.01
    # A node gets the report, true or not, that its leader refuses connections.
    refusal: float = 0.0


class Simulation:
    def __init__(
        self,
        seed: int,
        voters: int = 3,
        observers: int = 1,
        faults: Faults | None = None,
        election_timeout_ms: int = 1000,
        joiners: int = 0,
    ) -> None:
        """`joiners` are controllers that are not voters yet."""
        self.chance = random.Random(seed)
        self.faults = faults if faults is not None else Faults()
        self.now_ms = 0
        self.events = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.nodes: dict[int, SimNode] = {}
        self.cut: set[tuple[int, int]] = set()
        # The committed batches of the whole quorum, by base offset.
        self.committed: dict[int, Stored] = {}
        self.committed_end = 0
        self.lost_candidacies = 0
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], ReplicaKey] = {}
        self.proposed: dict[bytes, tuple[int, int, int]] = {}
        self.acknowledged: list[bytes] = []
        self._values = itertools.count()
        self.trace: list[str] = []
        voter_set = VoterSet.of(
            VoterNode(ReplicaKey(id, bytes([id]) * 16), (Endpoint("CONTROLLER", f"node{id}", 9093),))
            for id in range(1, voters + 1)
        )
        controllers = [*range(1, voters + 1), *range(voters + observers + 1, voters + observers + joiners + 1)]
        bootstrap = tuple((f"node{id}", 9093) for id in controllers)
        for id in range(1, voters + observers + joiners + 1):
            is_voter, is_controller = id <= voters, id in controllers
            disk = SimDisk()
            if is_voter:
                data = b"".join(checkpoint.encode([], epoch=0, now_ms=WALL, kraft_version=1, voters=voter_set))
                disk.snapshots[BOOTSTRAP_SNAPSHOT] = data
            config = RaftConfig(
                id,
                bytes([id]) * 16,
                CLUSTER,
                endpoints=(Endpoint("CONTROLLER", f"node{id}", 9093),) if is_controller else (),
                bootstrap=bootstrap,
                is_controller=is_controller,
                election_timeout_ms=election_timeout_ms,
                snapshot_max_bytes=700,
                fetch_max_bytes=2000,
            )
            self.nodes[id] = SimNode(id, config, disk)
        for node in self.nodes.values():
            self.start(node)
        self.at(50, self.propose)
        self.at(100, self.misfortune)

    # Events

    def at(self, delay_ms: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._order), event))

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL + self.now_ms)

    def run(self, events: int) -> None:
        for _ in range(events):
            self.step()

    def run_until(self, done: Callable[[], bool], limit_ms: int) -> bool:
        end = self.now_ms + limit_ms
        while self.now_ms < end:
            if done():
                return True
            self.step()
        return done()

    def step(self) -> None:
        self.now_ms, _, event = heapq.heappop(self._queue)
        self.events += 1
        event()

    # Nodes

    def start(self, node: SimNode) -> None:
        node.life += 1
        node.checked = node.disk.start
        node.last_high_watermark = -1
        node.state = None
        node.flushing = False
        node.timer_ms = -1
        node.raft = RaftNode(
            node.config,
            random.Random(self.chance.getrandbits(32)),
            node.disk.view(),
            node.disk.history(),
            node.disk.election,
        )
        stored_epoch = -1 if node.disk.election is None else node.disk.election.epoch
        node.raft.start(self.now)
        require(node.raft.epoch >= stored_epoch, "R2", f"node {node.id} restarted below its stored epoch")
        self.trace.append(f"{self.now_ms} start {node.id} {node.raft.state.role.value} {node.raft.epoch}")
        self.work(node)

    def crash(self, node: SimNode) -> None:
        self.trace.append(f"{self.now_ms} crash {node.id}")
        node.raft = None
        node.disk.lose_power(self.chance)
        node.tokens.clear()

    def give(self, node: SimNode, life: int, step: Callable[[RaftNode], None]) -> None:
        """Pass an input to the node, unless the life to which it belongs has ended."""
        if node.raft is None or node.life != life:
            return
        step(node.raft)
        self.work(node)

    def work(self, node: SimNode) -> None:
        """Do the driver's work for a Ready. A crash may come between any two of its parts."""
        raft = node.raft
        while raft is not None and node.raft is raft:
            ready = raft.ready()
            if not ready:
                break
            if ready.election is not None:
                if self.chance.random() < self.faults.crash:
                    return self.crash_and_restart(node)
                self.check_election(node, ready.election)
                node.disk.election = ready.election
                if self.chance.random() < self.faults.crash:
                    return self.crash_and_restart(node)
            for step in ready.log:
                if isinstance(step, Append):
                    node.disk.log += split(step.records)
                elif isinstance(step, Truncate):
                    require(raft.high_watermark is None or step.offset >= raft.high_watermark, "R6", f"node {node.id}")
                    node.disk.truncate(step.offset)
                else:
                    self.chunk(node, step)
            require(node.disk.end == raft.log.end_offset, "L", f"node {node.id} does not know its log")
            for outgoing in ready.requests:
                self.send(node, outgoing)
            for reply in ready.replies:
                self.reply(node, reply)
            if ready.flush:
                self.flush(node)
            self.check(node)
        if node.raft is not None and node.raft.deadline_ms is not None and node.raft.deadline_ms != node.timer_ms:
            deadline = node.timer_ms = max(node.raft.deadline_ms, self.now_ms + 1)
            self.at(deadline - self.now_ms, lambda life=node.life: self.tick(node, life, deadline))  # type: ignore[misc]

    def tick(self, node: SimNode, life: int, deadline: int) -> None:
        if node.timer_ms == deadline:
            node.timer_ms = -1
            self.give(node, life, lambda raft: raft.tick(self.now))

    def crash_and_restart(self, node: SimNode) -> None:
        self.crash(node)
        self.at(self.chance.randrange(10, 5000), lambda: self.start(node) if node.raft is None else None)

    def flush(self, node: SimNode) -> None:
        if node.flushing:
            return
        node.flushing = True
        end, generation, life = node.disk.end, node.disk.generation, node.life

        def flushed() -> None:
            if node.life != life or node.raft is None:
                return
            node.flushing = False
            if node.disk.generation == generation:
                node.disk.durable = max(node.disk.durable, end)
                self.give(node, life, lambda raft: raft.flushed(end, self.now))
            if node.raft is not None and node.disk.durable < node.disk.end:
                self.flush(node)

        self.at(self.chance.randrange(1, 15), flushed)

    def chunk(self, node: SimNode, step: SnapshotChunk) -> None:
        raft = node.raft
        assert raft is not None
        if step.position == 0:
            node.disk.partial.clear()
        require(len(node.disk.partial) == step.position, "R11", "a piece of a snapshot is missing")
        node.disk.partial += step.data
        if not step.last:
            return
        data = bytes(node.disk.partial)
        require(raft.state.role is not Role.LEADER, "R11", "a leader took a snapshot")
        content = checkpoint.decode(data)
        known = [value for batch in self.committed_below(step.id.offset) for value in self.values_of(batch)]
        require([v for batch in content.values for v in batch] == known, "R11", "a snapshot of something else")
        node.disk.restart_after(step.id, data)
        node.checked = step.id.offset
        self.trace.append(f"{self.now_ms} snapshot {node.id} {step.id}")
        raft.snapshot_installed(step.id, len(data), content.voters, content.kraft_version, self.now)

    # Network

    def delay_ms(self) -> int:
        if self.chance.random() < self.faults.slow:
            return self.chance.randrange(50, 3000)
        return self.chance.randrange(1, 10)

    def deliver(self, source: int, target: int, event: Callable[[], None]) -> None:
        copies = 2 if self.chance.random() < self.faults.repeat else 1
        for _ in range(copies):
            if self.chance.random() >= self.faults.drop:
                self.at(self.delay_ms(), lambda: None if (source, target) in self.cut else event())

    def send(self, source: SimNode, outgoing: Outgoing) -> None:
        target = self.nodes[int(outgoing.destination.host.removeprefix("node"))]
        request = through_bytes(outgoing.request)
        life = source.life

        def arrive() -> None:
            if target.raft is None:
                return
            token = next(self._order)
            target.tokens[token] = (source, life, outgoing)
            inbound = Inbound(token, request, type(request).MAX_VERSION, "CONTROLLER")
            if isinstance(request, ApiVersionsRequest):
                feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
                return self.reply(target, Reply(token, ApiVersionsResponse(supported_features=[feature])))
            self.give(target, target.life, lambda raft: raft.receive(inbound, self.now))

        self.deliver(source.id, target.id, arrive)

    def reply(self, source: SimNode, reply: Reply) -> None:
        target, life, outgoing = source.tokens.pop(reply.token)
        response = reply.response
        if isinstance(reply.read, ReadLog):
            response.responses[0].partitions[0].records = source.disk.read(reply.read.offset, reply.read.max_bytes)
        elif isinstance(reply.read, ReadSnapshot):
            data = source.disk.snapshots[reply.read.id]
            piece = data[reply.read.position : reply.read.position + reply.read.max_bytes]
            response.topics[0].partitions[0].unaligned_records = piece
        response = through_bytes(response)
        destination: Destination = outgoing.destination
        self.deliver(
            source.id,
            target.id,
            lambda: self.give(
                target,
                life,
                lambda raft: raft.response(outgoing.correlation_id, destination, response, self.now),
            ),
        )

    # Life and its misfortunes

    def propose(self) -> None:
        self.at(self.chance.randrange(5, 100), self.propose)
        for node in self.nodes.values():
            if node.raft is not None and node.raft.is_leader and not node.raft._roles.shutting_down:
                values = [b"value-%d" % next(self._values) for _ in range(self.chance.randrange(1, 4))]
                offset = node.raft.propose(values, self.now)
                for index, value in enumerate(reversed(values)):
                    self.proposed[value] = (node.id, node.raft.epoch, offset - index)
                self.work(node)

    def misfortune(self) -> None:
        self.at(self.chance.randrange(50, 300), self.misfortune)
        faults, chance = self.faults, self.chance
        for node in self.nodes.values():
            if node.raft is not None and chance.random() < faults.crash * 10:
                self.crash_and_restart(node)
            if chance.random() < faults.snapshot:
                self.snapshot(node)
            if node.raft is not None and node.raft.is_leader and chance.random() < faults.crash:
                self.give(node, node.life, lambda raft: raft.resign(self.now))
            if faults.refusal and chance.random() < faults.refusal:
                self.report_refusal(node)
        if chance.random() < faults.partition * 10:
            self.partition()
        elif chance.random() < 0.1:
            self.cut.clear()

    def report_refusal(self, node: SimNode) -> None:
        """Report to the node that its leader's port has refused a connection."""

        def report(raft: RaftNode) -> None:
            if raft.state.leader_id is not None:
                raft.leader_refused(raft.state.leader_id, raft.epoch, self.now)

        self.give(node, node.life, report)

    def partition(self) -> None:
        ids = list(self.nodes)
        kind = self.chance.randrange(3)
        if kind == 0:
            alone = self.chance.choice(ids)
            self.cut = {(a, b) for a in ids for b in ids if a != b and alone in (a, b)}
        elif kind == 1:
            side = {id for id in ids if self.chance.random() < 0.5}
            self.cut = {(a, b) for a in ids for b in ids if (a in side) != (b in side)}
        else:
            # In one direction only.
            a, b = self.chance.sample(ids, 2)
            self.cut = {(a, b)}

    def snapshot(self, node: SimNode) -> None:
        raft = node.raft
        if raft is None or raft.high_watermark is None:
            return
        below = [batch for batch in node.disk.log if batch.next <= raft.high_watermark]
        if not below:
            return
        last = self.chance.choice(below)
        id = OffsetAndEpoch(last.next, last.epoch)
        if id in node.disk.snapshots:
            return
        values = [value for batch in self.committed_below(id.offset) for value in self.values_of(batch)]
        data = b"".join(
            checkpoint.encode(
                values,
                epoch=id.epoch,
                now_ms=WALL + self.now_ms,
                kraft_version=raft.history.versions.at(id.offset - 1) or 0,
                voters=raft.history.sets.at(id.offset - 1),
            )
        )
        node.disk.snapshots[id] = data
        raft.snapshot_created(id, len(data))
        if self.chance.random() < 0.7:
            oldest = min(node.disk.snapshots)
            latest = max(node.disk.snapshots)
            if latest.offset > oldest.offset:
                node.disk.snapshots = {known: old for known, old in node.disk.snapshots.items() if known >= latest}
                node.disk.log = [batch for batch in node.disk.log if batch.next > latest.offset]
                node.disk.start = latest.offset
                node.disk.durable = max(node.disk.durable, latest.offset)
                raft.log_start_moved(latest.offset)

    # Invariants

    def committed_below(self, offset: int) -> Iterable[Stored]:
        return (batch for _, batch in sorted(self.committed.items()) if batch.next <= offset)

    def values_of(self, batch: Stored) -> list[bytes]:
        return [value for found in batches.intact(batch.data) for value in batches.values(batch.data, found)]

    def check_election(self, node: SimNode, new: ElectionState) -> None:
        old = node.disk.election
        require(old is None or new.epoch >= old.epoch, "R2", f"node {node.id}: epoch {old} -> {new}")
        if new.voted is not None:
            vote = self.votes.setdefault((node.id, new.epoch), new.voted)
            require(vote == new.voted, "R3", f"node {node.id} voted twice in epoch {new.epoch}: {vote}, {new.voted}")
        if new.leader_id is not None:
            leader = self.leaders.setdefault(new.epoch, new.leader_id)
            require(leader == new.leader_id, "R1", f"epoch {new.epoch} has leaders {leader} and {new.leader_id}")

    def check(self, node: SimNode) -> None:
        raft = node.raft
        if raft is None:
            return
        election = node.disk.election
        require(election is not None and election.epoch == raft.epoch, "R2", f"node {node.id}: epoch not persisted")
        before, state = node.state, raft.state
        node.state = state
        if isinstance(before, Candidate) and before.votes.lost and state is not before:
            self.lost_candidacies += 1
        # A candidate with a leader has followed it in the meantime, and was named its successor.
        lost = isinstance(before, Candidate) and state.role is Role.PROSPECTIVE and state.leader_id is None
        if isinstance(before, Candidate) and lost and state.epoch == before.epoch:
            require(
                self.now_ms >= before.election_deadline_ms, "B5", f"candidate {node.id} did not wait out its timeout"
            )
        if isinstance(state, Leader):
            leader = self.leaders.setdefault(state.epoch, node.id)
            require(leader == node.id, "R1", f"epoch {state.epoch} has leaders {leader} and {node.id}")
            self.check_completeness(node)
        if node.config.is_controller is False:
            require(
                raft.state.role in (Role.UNATTACHED, Role.FOLLOWER),
                "R12",
                f"observer {node.id} is {raft.state.role.value}",
            )
        high_watermark = raft.high_watermark
        if high_watermark is None:
            return
        require(high_watermark >= node.last_high_watermark, "R4", f"node {node.id}: high watermark moved back")
        require(high_watermark <= raft.log.end_offset, "R4", f"node {node.id}: high watermark above its log")
        if isinstance(state, Leader) and high_watermark > node.last_high_watermark and state.high_watermark:
            voters = raft.voters.ids()
            durable = [id for id in voters if self.nodes[id].disk.durable >= high_watermark]
            require(len(durable) * 2 > len(voters), "R5", f"offset {high_watermark} is committed without a majority")
            last = next((batch for batch in reversed(node.disk.log) if batch.next <= high_watermark), None)
            require(last is None or last.epoch == state.epoch, "R10", f"committed at {high_watermark} in {state.epoch}")
        node.last_high_watermark = high_watermark
        if node.disk.log and node.disk.log[0].base > node.checked:
            node.checked = node.disk.log[0].base
        if high_watermark > node.checked:
            for batch in node.disk.log:
                if batch.base >= node.checked and batch.next <= high_watermark:
                    known = self.committed.setdefault(batch.base, batch)
                    require(
                        known.data == batch.data, "R7", f"node {node.id}: another batch is committed at {batch.base}"
                    )
            self.committed_end = max(self.committed_end, high_watermark)
            node.checked = high_watermark
        if isinstance(state, Leader) and state.high_watermark:
            for value, (id, epoch, offset) in list(self.proposed.items()):
                if id == node.id and epoch == state.epoch and offset < state.high_watermark:
                    self.acknowledged.append(value)
                    del self.proposed[value]
                elif epoch < state.epoch:
                    del self.proposed[value]

    def check_completeness(self, node: SimNode) -> None:
        """R8: a leader has everything that was ever committed."""
        newest = max(self.leaders)
        raft = node.raft
        assert raft is not None
        if raft.epoch == newest:
            require(raft.log.end_offset >= self.committed_end, "R8", f"leader {node.id} lacks committed records")

    # The end

    def heal(self) -> None:
        self.faults = Faults(0, 0, 0, 0, 0, 0)
        self.cut.clear()
        for node in self.nodes.values():
            if node.raft is None:
                self.start(node)

    def finish(self) -> None:
        """End all faults: the quorum must reach one common state."""
        self.heal()
        before = len(self.acknowledged)
        require(
            self.run_until(lambda: len(self.acknowledged) > before + 20, 30_000), "liveness", "nothing commits any more"
        )
        target = self.committed_end

        def caught_up() -> bool:
            return all(
                node.raft is not None and (node.raft.high_watermark or 0) >= target for node in self.nodes.values()
            )

        require(self.run_until(caught_up, 30_000), "liveness", "some node does not catch up")
        values: set[bytes] = set()
        for batch in self.committed.values():
            values.update(self.values_of(batch))
        lost = [value for value in self.acknowledged if value not in values]
        require(not lost, "R9", f"acknowledged and lost: {lost[:3]}")
        for node in self.nodes.values():
            for batch in node.disk.log:
                if batch.next <= target:
                    require(self.committed[batch.base].data == batch.data, "R7", f"node {node.id} at {batch.base}")


def through_bytes(message: Any) -> Any:
    version = type(message).MAX_VERSION
    data = b"".join(bytes(part) for part in message.encode(version))
    decoded, end = type(message).decode(data, 0, version)
    assert end == len(data)
    return decoded
