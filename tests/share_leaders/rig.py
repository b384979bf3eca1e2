"""Leaders of share partitions over real partitions on a memory disk, with a share coordinator that a test holds, and
fetches as members of a group send them. The clock stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pykbroker.config.per_group import PerGroup
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.net.promise import Promise
from pykbroker.replica.batch_checks import BatchChecks
from pykbroker.replica.parked import Isolation, ParkedFetch
from pykbroker.replica.partition import Partition
from pykbroker.share_leaders.dead_letters import DeadLetters
from pykbroker.share_leaders.leader_configs import leader_config
from pykbroker.share_leaders.leader_table import ShareLeaders
from pykbroker.share_leaders.share_partition_leader import SharePartitionLeader
from pykbroker.share_leaders.start_offsets import StartOffsets
from pykbroker.share_partitions.acquisition import Acquire, AcquiredRange
from pykbroker.share_partitions.delivery_states import ACKNOWLEDGED, ARCHIVED, ARCHIVING, DeliveryRange
from pykbroker.share_partitions.share_sessions import SessionMember, SessionPartitionId
from pykbroker.share_persister.state_operations import ShareStateAnswer, WrittenBatch
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import iter_batches
from tests.replica.world import NOW_MS, World, batch

STATE_EPOCH = 3
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class Acknowledged(NamedTuple):
    """A range of an acknowledgement."""

    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]


class Asked(NamedTuple):
    """A request to the share coordinator that has no answer yet. `batches` is None for a read."""

    key: SharePartitionKey
    leader_epoch: int
    state_epoch: int
    start: int
    delivered: int
    batches: list[tuple[int, int, int, int]] | None
    promise: Promise


@dataclass
class Stored:
    """The state of one share partition at the share coordinator."""

    start: int = -1
    leader_epoch: int = -1
    state_epoch: int = STATE_EPOCH
    states: dict[int, tuple[int, int]] = field(default_factory=dict)

    def batches(self) -> list[Any]:
        found: list[DeliveryRange] = []
        for at, (state, count) in sorted(self.states.items()):
            if found and found[-1] == (found[-1].first, at - 1, state, count):
                found[-1] = DeliveryRange(found[-1].first, at, state, count)
            else:
                found.append(DeliveryRange(at, at, state, count))
        return found


class Keeper:
    """The persister and the share coordinators. While `holds`, requests wait in `asked`. Otherwise they are answered
    within the call. `refuses`, if set, is the error of each answer, and nothing is stored."""

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, Stored] = {}
        self.asked: list[Asked] = []
        self.holds = False
        self.refuses = ErrorCode.NONE
        self.reads = 0
        #: all offsets that were ever stored as acknowledged, archiving or archived
        self.ended: set[int] = set()
        #: the writes that came: start offset and batches
        self.writes: list[tuple[int, list[tuple[int, int, int, int]]]] = []

    def of(self, key: SharePartitionKey) -> Stored:
        return self.states.setdefault(key, Stored())

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Promise:
        self.reads += 1
        return self._ask(Asked(key, leader_epoch, -1, -1, -1, None, Promise()))

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[WrittenBatch],
    ) -> Promise:
        written = [(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches]
        self.writes.append((start_offset, written))
        return self._ask(
            Asked(key, leader_epoch, state_epoch, start_offset, delivery_complete_count, written, Promise())
        )

    def _ask(self, asked: Asked) -> Promise:
        self.asked.append(asked)
        if not self.holds:
            self.answer()
        return asked.promise

    def answer(self, refuse: ErrorCode = ErrorCode.NONE, *, is_lost: bool = False) -> None:
        """Answer the oldest request. With `is_lost` it is carried out, and its answer is an error."""
        asked = self.asked.pop(0)
        refuse = refuse or self.refuses
        answer = ShareStateAnswer(refuse) if refuse and not is_lost else self._carry_out(asked)
        asked.promise.set_result(ShareStateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE) if is_lost else answer)

    def answer_all(self) -> None:
        while self.asked:
            self.answer()

    def _carry_out(self, asked: Asked) -> ShareStateAnswer:
        stored = self.of(asked.key)
        if asked.leader_epoch < stored.leader_epoch:
            return ShareStateAnswer(ErrorCode.FENCED_LEADER_EPOCH)
        if asked.batches is None:
            stored.leader_epoch = asked.leader_epoch
            return ShareStateAnswer(
                ErrorCode.NONE,
                state_epoch=stored.state_epoch,
                start_offset=stored.start,
                batches=stored.batches(),
            )
        if asked.state_epoch < stored.state_epoch:
            return ShareStateAnswer(ErrorCode.FENCED_STATE_EPOCH)
        if asked.start != -1:
            stored.start = asked.start
        for first, last, state, count in asked.batches:
            stored.states |= dict.fromkeys(range(first, last + 1), (state, count))
            if state in (ACKNOWLEDGED, ARCHIVING, ARCHIVED):
                self.ended |= set(range(first, last + 1))
        stored.states = {at: each for at, each in stored.states.items() if at >= stored.start}
        return ShareStateAnswer(ErrorCode.NONE)


class Written(NamedTuple):
    """Letters that the writer has got, and whose promise has no result yet."""

    letters: DeadLetters
    promise: Promise


class Letters:
    """The writer of dead letters. While `holds`, the promises of `asked` have no result. `wanted` is True while the
    groups have a dead letter queue. `came` has all letters in their order."""

    def __init__(self) -> None:
        self.wanted = False
        self.holds = False
        self.asked: list[Written] = []
        self.came: list[DeadLetters] = []

    def is_wanted(self, group_id: str) -> bool:
        return self.wanted

    def write(self, letters: DeadLetters) -> Promise:
        promise = Promise()
        self.came.append(letters)
        self.asked.append(Written(letters, promise))
        if not self.holds:
            self.end_all()
        return promise

    def end(self, place: int = 0) -> None:
        """The letters are written, or given up."""
        self.asked.pop(place).promise.set_result(None)

    def end_all(self) -> None:
        while self.asked:
            self.end()

    @property
    def ranges(self) -> list[tuple[int, int, int, str]]:
        """First and last offset, count and cause of the letters that came."""
        return [(each.first_offset, each.last_offset, each.delivery_count, each.cause.name) for each in self.came]


class Result:
    """The result of a promise, once it has one."""

    def __init__(self, promise: Promise) -> None:
        self.found: list[Any] = []
        promise.add_done_callback(lambda done: self.found.append(done.result()))

    @property
    def is_there(self) -> bool:
        return bool(self.found)

    @property
    def value(self) -> Any:
        (value,) = self.found
        return value


class Fetch:
    """A ShareFetch: it reads and acquires in one turn, and waits in the purgatory if it has got nothing. `got` has the
    ranges of each partition that has some, and `errors` has the errors."""

    def __init__(
        self, rig: Rig, member: str, leaders: Sequence[SharePartitionLeader], most: int, wait_seconds: float
    ) -> None:
        self._rig = rig
        self._member = member
        self._leaders = leaders
        self._most = most
        self.reads = 0
        self.got: list[AcquiredRange] = []
        #: the time of the loop at the last read
        self.read_at = 0.0
        self.errors: list[ErrorCode] = []
        found = self.read(wait_seconds == 0)
        self.parked: ParkedFetch | None = None
        if isinstance(found, int):
            self.parked = rig.world.replicas.purgatory.park(
                -1, Isolation.HIGH_WATERMARK, found, wait_seconds, self.read, lambda: leaders
            )

    @property
    def is_done(self) -> bool:
        return self.parked is None or self.parked.future.done()

    def read(self, final: bool) -> int | str:
        self.reads += 1
        self.read_at = self._rig.loop.time()
        for leader in self._leaders:
            if leader.has_left:
                self.errors.append(leader.error)
            elif leader.can_acquire():
                self.got += self._rig.acquire(leader, self._member, self._most)
        return "answer" if final or self.got or self.errors else 1


class Rig:
    """One topic `t` and one group `g`, with a session for each member that fetches."""

    def __init__(self, broker: dict[str, str] | None = None, **group_config: str) -> None:
        """`broker`: keys of the broker. `group_config`: keys of the group, without `share.`."""
        self.world = World(config=broker)
        self.loop = self.world.loop
        self.keeper = Keeper()
        self.letters = Letters()
        self.overrides: dict[str, dict[str, str]] = {"g": {_key(name): text for name, text in group_config.items()}}
        self.starts = StartOffsets(
            self.world.runtime, self.world.replicas.logs.cold_reads, BatchChecks(self.world.runtime)
        )
        self.leaders = self.restarted()
        self.partition = self.world.create("t")

    def restarted(self) -> ShareLeaders:
        """Return the leaders of a node that has just started."""
        configs = PerGroup(lambda: self.world.config, lambda group: self.overrides.get(group, {}), leader_config)
        self.leaders = ShareLeaders(
            self.world.runtime.client_clock,
            self.keeper,
            configs.of,
            lambda *asked: self.starts.find(*asked),
            self.letters,
            100,
        )
        self.world.replicas.on_leadership(lambda *change: self.leaders.on_leadership(*change))
        return self.leaders

    def configure(self, group: str = "g", **group_config: str) -> None:
        self.overrides[group] = {_key(name): text for name, text in group_config.items()}

    # -- the log ------------------------------------------------------------------------------------------------------

    def append(self, count: int = 1, partition: Partition | None = None) -> None:
        """Append one batch of so many records."""
        values = [b"x"] * count
        (partition or self.partition).append(batch(*values), required_acks=-1, now_ms=NOW_MS)

    def place(self, partition: Partition | None = None) -> SessionPartitionId:
        partition = partition or self.partition
        return partition.topic_id, partition.index

    def key(self, group: str = "g") -> SharePartitionKey:
        return SharePartitionKey(group, *self.place())

    @property
    def stored(self) -> Stored:
        return self.keeper.of(self.key())

    # -- members ------------------------------------------------------------------------------------------------------

    def join(self, member: str = "m", group: str = "g", connection: object = None) -> None:
        """Open a session that reads all partitions of the topic, unless the member has one."""
        key = SessionMember(group, member)
        if self.leaders.sessions.peek(key) is None:
            places = [self.place(each) for each in self.world.replicas if each.topic == "t"]
            self.leaders.sessions.open(key, connection or member, places, has_acknowledgements=False)

    def leave(self, member: str = "m", group: str = "g") -> Result:
        ended = self.leaders.sessions.close(SessionMember(group, member))
        assert ended is not None
        return Result(self.leaders.end_session(ended))

    def leader(self, group: str = "g", member: str = "m") -> SharePartitionLeader:
        self.join(member, group)
        return self.leaders.leader_of(group, self.partition)

    def fetch(self, member: str = "m", most: int = 500, wait_seconds: float = 0.0, group: str = "g") -> Fetch:
        self.join(member, group)
        return Fetch(self, member, [self.leaders.leader_of(group, self.partition)], most, wait_seconds)

    def acquire(self, leader: SharePartitionLeader, member: str, most: int) -> list[AcquiredRange]:
        """Read the log and acquire, in this turn."""
        at = leader.machine.next_fetch_offset
        found = leader.partition.read(at, 1 << 20, read_committed=leader.read_committed, min_one=True)
        if not found.size:
            return []
        batches = [(header.base_offset, header.last_offset) for _, header in iter_batches(found.joined())]
        return leader.acquire(Acquire(member, at, batches, most, 500, limits_records=True))

    def acknowledge(
        self, first: int, last: int, *types: int, member: str = "m", is_renewal: bool = False, group: str = "g"
    ) -> Result:
        leader = self.leaders.find(group, *self.place())
        assert leader is not None
        ranges = [Acknowledged(first, last, types or (ACCEPT,))]
        return Result(leader.acknowledge(member, ranges, is_renewal=is_renewal))


def _key(name: str) -> str:
    return "share." + name.replace("_", ".")
