"""Chooses the brokers of new partitions' replicas: striped over racks and brokers, as Apache Kafka's placer does.

Replicas of a partition are spread over racks before a rack gets a second replica. Leaders rotate over racks and
brokers. The first replica is on an unfenced broker. A fenced broker is used only if its rack has no unfenced broker
left. Brokers in controlled shutdown are not used. After as many partitions as there are unfenced brokers, all racks and
brokers are shuffled.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from pykbroker_wire.errors import ErrorCode, KafkaError


class UsableBroker(NamedTuple):
    id: int
    rack: str | None
    fenced: bool


class _Ring:
    """Brokers taken in turn. Each round begins one broker later."""

    __slots__ = ("_index", "_offset", "_round", "brokers")

    def __init__(self, brokers: list[int], random: Random) -> None:
        self.brokers = sorted(brokers)
        self._offset = random.randrange(len(brokers)) if brokers else 0
        self._index = 0
        self._round = 0

    def next(self, round_number: int) -> int | None:
        count = len(self.brokers)
        if not count:
            return None
        if self._round != round_number:
            self._round = round_number
            self._index = 0
            self._offset = (self._offset + 1) % count
        if self._index >= count:
            return None
        broker = self.brokers[(self._index + self._offset) % count]
        self._index += 1
        return broker


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: list[UsableBroker], random: Random) -> None:
        self.fenced = _Ring([b.id for b in brokers if b.fenced], random)
        self.unfenced = _Ring([b.id for b in brokers if not b.fenced], random)

    def next(self, round_number: int) -> int | None:
        broker = self.unfenced.next(round_number)
        return self.fenced.next(round_number) if broker is None else broker


class _Placer:
    def __init__(self, brokers: list[UsableBroker], random: Random) -> None:
        self._random = random
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self._by_name = tuple(_Rack(by_rack[name], random) for name in names)
        self._racks = list(self._by_name)
        self._unfenced = sum(not broker.fenced for broker in brokers)
        self._offset = random.randrange(len(self._racks))
        self._round = 0

    def place(self, replication_factor: int) -> list[int]:
        # With a single broker, shuffling would begin the same round again without end.
        if self._round == self._unfenced and self._unfenced > 1:
            self._shuffle()
            self._round = 0
        self._offset %= len(self._racks)
        first_rack = self._offset
        while (leader := self._racks[first_rack].unfenced.next(self._round)) is None:
            first_rack = (first_rack + 1) % len(self._racks)
        replicas = [leader]
        rack, skip = self._offset, first_rack
        while len(replicas) < replication_factor:
            if rack == skip:
                # The rack of the first replica is left out of the first round.
                skip = -1
            else:
                broker = self._racks[rack].next(self._round)
                if broker is not None:
                    replicas.append(broker)
            rack = (rack + 1) % len(self._racks)
        self._round += 1
        self._offset += 1
        return replicas

    def _shuffle(self) -> None:
        # The order of the shuffles is that of Apache Kafka, so that a test can compare both with one seed.
        self._random.shuffle(self._racks)
        for rack in self._by_name:
            self._random.shuffle(rack.fenced.brokers)
            self._random.shuffle(rack.unfenced.brokers)


def place(brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, random: Random) -> list[list[int]]:
    """Return the replicas of each new partition, the preferred leader first. Raises KafkaError
    INVALID_REPLICATION_FACTOR."""
    usable = list(brokers)
    if replication_factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Invalid replication factor {replication_factor}: it must be at least 1.",
        )
    if all(broker.fenced for broker in usable):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are fenced, or all their log directories are cordoned."
        )
    if replication_factor > len(usable):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor {replication_factor} cannot be reached: "
            f"only {len(usable)} broker(s) are registered.",
        )
    placer = _Placer(usable, random)
    return [placer.place(replication_factor) for _ in range(partitions)]
