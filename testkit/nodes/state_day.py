"""A long load of `__share_group_state` on a simulated node: share partitions that are written all the time, now and
then, once and never again, and those that are deleted and begin anew.

Responsible for the load, and for the comparison of the coordinator with a fresh one that reads only what pruning has
left. Not responsible for its length, nor for what else reads the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from pykbroker.coordinator.share.records import decode
from pykbroker.coordinator.share.shard import ShareStateShard
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.coordinator.share.share_state import ShareState
from pykbroker.metadata.topic_names import SHARE_STATE_TOPIC
from pykbroker.net.promise import Promise
from pykbroker.share_partitions.delivery_states import ACKNOWLEDGED, ARCHIVED, AVAILABLE, DeliveryRange
from pykbroker.share_persister.persister import SharePersister
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from testkit.nodes.sim import Sim
from testkit.promises import results

#: A minute of the load takes a sixth of a minute, and so do Apache Kafka's default intervals below. An idle node takes
#: work too, so a day's writes and prunings take four hours of the simulated clock.
MINUTE = 10.0
DAY = 24 * 60
PARTITIONS = 12
#: Some have long names, as applications that are named by machines.
GROUPS = ("orders", "bills:all" * 15, "größe" * 25)
UPDATES_PER_SNAPSHOT = 40
#: The least that a topic may have.
SEGMENT_BYTES = 1 << 20
#: The properties of the node.
CONFIG = {
    "share.coordinator.state.topic.prune.interval.ms": "50000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "50000",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": str(UPDATES_PER_SNAPSHOT),
    # Fewer turns of the node for each minute.
    "log.retention.check.interval.ms": "50000",
    "log.flush.start.offset.checkpoint.interval.ms": "50000",
    "share.coordinator.state.topic.segment.bytes": str(SEGMENT_BYTES),
}
_ANSWER_SECONDS = 60.0


@dataclass(slots=True)
class _Written:
    """A share partition of the load."""

    state_epoch: int
    leader_epoch: int = 0
    start: int = 0


class StateDay:
    """Call `begin`, and then `minute` for each minute."""

    def __init__(self, sim: Sim, topic: str = "t") -> None:
        self._sim = sim
        self._topic = topic
        self._random = sim.world.random
        self._written: dict[SharePartitionKey, _Written] = {}
        self._pruned = 0
        #: how often records were deleted, and the most records and bytes that were left
        self.prunes = 0
        self.most_records = 0
        self.most_bytes = 0
        #: the bytes that were written, without some that were pruned before the next check
        self.written_bytes = 0
        self._counted = 0

    @property
    def persister(self) -> SharePersister:
        return self._sim.node.broker.shares.persister

    @property
    def keys(self) -> list[SharePartitionKey]:
        """The share partitions that have a state now."""
        return sorted(self._written)

    async def begin(self) -> None:
        await self._sim.create(self._topic, partitions=PARTITIONS)
        topic_id = await self._sim.topic_id(self._topic)
        for group in GROUPS:
            await self._initialize(SharePartitionKey(group, topic_id, index) for index in range(PARTITIONS))

    async def minute(self) -> None:
        """Let a minute pass, check the log if it was pruned, and write."""
        await asyncio.sleep(MINUTE)
        pruned = self._sim.node.services.share_coordinator.pruned_before.get(0, 0)
        if pruned != self._pruned:
            self._pruned = pruned
            self.prunes += 1
            self.check()
        rng, keys = self._random, self.keys
        chosen = {*keys[::3], *(key for key in keys[1::7] if rng.random() < 0.02)}
        if rng.random() < 0.01:
            await self._begin_anew(rng.choice(keys))
        await _done(self._write(key) for key in sorted(chosen))

    # -- the load -----------------------------------------------------------------------------------------------------

    async def _initialize(self, keys: Iterable[SharePartitionKey], state_epoch: int = 1) -> None:
        asked = []
        for key in keys:
            before = self._written.get(key)
            self._written[key] = _Written(state_epoch, 0 if before is None else before.leader_epoch)
            asked.append(self.persister.initialize(key, state_epoch, 0))
        await _done(asked)

    async def _begin_anew(self, key: SharePartitionKey) -> None:
        before = self._written[key]
        if self._random.random() < 0.5:
            await _done([self.persister.delete(key)])
        await self._initialize([key], before.state_epoch + 1)

    def _write(self, key: SharePartitionKey) -> Promise:
        """Write what a leader writes: some records are done, some are to come again, and the start follows."""
        rng, known = self._random, self._written[key]
        if rng.random() < 0.02:
            # Another leader loads the state.
            known.leader_epoch += 1
            return self.persister.read(key, known.leader_epoch)
        if rng.random() < 0.5:
            known.start += rng.randint(1, 20)
        at = known.start
        batches = []
        for _ in range(rng.randint(0, 3)):
            at += rng.randint(0, 3)
            last = at + rng.randint(0, 9)
            state = rng.choice([AVAILABLE, ACKNOWLEDGED, ACKNOWLEDGED, ARCHIVED])
            batches.append(DeliveryRange(at, last, state, rng.randint(1, 4)))
            at = last + 1
        return self.persister.write(key, known.state_epoch, known.leader_epoch, known.start, rng.randint(0, 9), batches)

    # -- checks -------------------------------------------------------------------------------------------------------

    def state(self) -> dict[SharePartitionKey, ShareState]:
        """Return the state of every share partition, as the coordinator has it."""
        (host,) = self._sim.node.services.share_coordinator.coordinator._hosts.values()
        return {key: kept.state for key, kept in host.shard.states.items()}

    def check(self) -> None:
        """Compare the coordinator with a fresh one, and note how much there is to read."""
        log = self._sim.log(SHARE_STATE_TOPIC)
        fresh = ShareStateShard(UPDATES_PER_SNAPSHOT, lambda _: PARTITIONS)
        offset, count = log.log_start_offset, 0
        while offset < log.log_end_offset:
            data = log.read(offset, 1 << 20, log.log_end_offset).joined()
            for position, header in iter_batches(data):
                for record in iter_records(data, position, header):
                    found = decode(record.key, record.value)
                    assert found is not None
                    fresh.replay(found, record.offset)
                    count += 1
                offset = header.next_offset
                if header.base_offset >= self._counted:
                    self.written_bytes += header.size_in_bytes
        assert {key: kept.state for key, kept in fresh.states.items()} == self.state()
        self._counted = log.log_end_offset
        self.most_records = max(self.most_records, count)
        folder = f"/data/{SHARE_STATE_TOPIC}-0"
        files = [f"{folder}/{name}" for name in self._sim.disk.list(folder) if name.endswith(".log")]
        self.most_bytes = max(self.most_bytes, sum(self._sim.disk.open(path).size() for path in files))


async def _done(asked: Iterable[Promise]) -> None:
    answers = await results(list(asked), _ANSWER_SECONDS)
    assert {answer.error for answer in answers} <= {ErrorCode.NONE}
