"""The smallest possible shard, a counter of names, and the machine around it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from pykbroker.coordinator.machine import CoordinatorOperation, CoordinatorRuntime
from pykbroker.coordinator.result import CoordinatorRecord, Result, TimerKey
from pykbroker_wire.primitives import Buffer
from pykbroker_wire.stored.group.group_metadata import GroupMetadataKey, GroupMetadataValue
from tests.coordinator.fakes import TOPIC, FakePartition, Replicas, World, as_replicas, as_runtime

TIMEOUT_MS = 5_000


class Counter:
    """Replicated state: names in order. Soft state: a note."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.producers: list[int] = []
        self.offsets: list[int] = []
        self.ended: list[tuple[int, bool]] = []
        self.fired: list[tuple[TimerKey, Any]] = []
        self.is_loaded = False
        self.note = ""
        self.effects_of_load: list[Any] = []

    def replay(self, record: CoordinatorRecord, at: int, producer_id: int = -1) -> None:
        assert isinstance(record.key, GroupMetadataKey)
        self.names.append(record.key.group)
        self.producers.append(producer_id)
        self.offsets.append(at)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        self.ended.append((producer_id, commit))

    def loaded(self, now_ms: int) -> Iterator[Result]:
        self.is_loaded = True
        result = Result()
        result.effects += self.effects_of_load
        yield result

    def on_timer(self, key: TimerKey, event: Any, now_ms: int) -> Result:
        self.fired.append((key, event))
        return add(*(event or ()))(self, 0, now_ms)


class Format:
    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        assert isinstance(record.key, GroupMetadataKey)
        return record.key.group.encode(), None if record.value is None else b"v"

    def decode(self, key: Buffer | None, value: Buffer | None) -> CoordinatorRecord | None:
        assert key is not None
        return None if bytes(key) == b"unknown" else make(bytes(key).decode())


def make(name: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=name), GroupMetadataValue())


def add(*names: str) -> CoordinatorOperation[Counter]:
    def operation(shard: Counter, token: int, now_ms: int) -> Result:
        result = Result()
        result.records += map(make, names)
        if token:
            result.reply(token, f"{len(shard.names)} before")
        return result

    return operation


def read(shard: Counter, token: int, now_ms: int) -> Result:
    result = Result()
    result.reply(token, list(shard.names))
    return result


class Machine:
    def __init__(self) -> None:
        self.world = World()
        self.loop = self.world.loop
        self.replicas = Replicas()
        self.shards: list[Counter] = []
        self.effects: list[Any] = []
        self.effects_of_load: list[Any] = []
        self.runtime: CoordinatorRuntime[Counter] = CoordinatorRuntime(
            TOPIC,
            as_runtime(self.world),
            as_replicas(self.replicas),
            self._make_shard,
            Format(),
            commit_timeout_ms=TIMEOUT_MS,
            on_effect=lambda index, epoch, effect: self.effects.append((index, epoch, effect)),
        )

    def _make_shard(self, index: int) -> Counter:
        self.shards.append(Counter())
        self.shards[-1].effects_of_load = self.effects_of_load
        return self.shards[-1]

    def lead(self) -> FakePartition:
        partition = self.replicas.lead()
        self.loop.settle()
        return partition

    def submit(
        self, operation: CoordinatorOperation[Counter], *, barrier: bool = True, waits_for_load: bool = False
    ) -> Any:
        return self.runtime.submit(0, operation, lambda code: code, barrier=barrier, waits_for_load=waits_for_load)


def done(value: Any) -> Any:
    if isinstance(value, asyncio.Future):
        assert value.done()
        return value.result()
    return value


def effect(name: str, *names: str) -> CoordinatorOperation[Counter]:
    def operation(shard: Counter, token: int, now_ms: int) -> Result:
        result = add(*names)(shard, token, now_ms)
        result.effects.append(name)
        return result

    return operation


def in_transaction(producer_id: int, epoch: int, *names: str) -> CoordinatorOperation[Counter]:
    def operation(shard: Counter, token: int, now_ms: int) -> Result:
        result = add(*names)(shard, token, now_ms)
        result.transaction = (producer_id, epoch)
        return result

    return operation


def end(machine: Machine, producer_id: int = 7, *, commit: bool = True) -> Any:
    return machine.runtime.end_transaction(
        0,
        producer_id=producer_id,
        producer_epoch=1,
        commit=commit,
        coordinator_epoch=3,
        transaction_version=2,
        refusal=lambda code: code,
    )
