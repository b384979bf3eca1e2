"""Random walks of one partition: brokers die and return, the ISR changes, replicas are moved, leaders are elected.

Each step is a `PartitionChange` (pykbroker/controller/partition_change.py) on the result of the previous step, and the
same step as JSON for Apache Kafka's builder. The walk continues with our result.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from pykbroker.controller.partition_change import ElectionKind, PartitionChange
from pykbroker.controller.reassignment import begin
from pykbroker.metadata.image import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    PartitionImage,
)
from pykbroker.metadata.records import encode_record
from pykbroker.metadata.snapshot import DIRECTORIES_FROM
from pykbroker.metadata.topics_delta import merge_partition
from pykbroker_wire.primitives import uuid_from_str, uuid_to_str
from pykbroker_wire.stored.metadata import PartitionChangeRecord

TOPIC_ID = b"a topic's own id"
#: Besides small ids some that Java's HashSet does not hold in ascending order.
BROKERS = (0, 1, 2, 3, 4, 5, 16, 33)
#: 3.3-IV3, around 3.6-IV0 (an ISR that shrinks), 3.7-IV2 (directories), 4.0-IV1 (the ELR), and the newest.
METADATA_VERSIONS = (7, 11, 12, 17, 22, 23, 30)


def default_directory(broker: int) -> bytes:
    return broker.to_bytes(8, "big") + (1 << 40).to_bytes(8, "big")


def fields(partition: PartitionImage) -> list[Any]:
    """Return the partition in the form of java/PartitionChanges.java."""
    found: list[Any] = [list(each) if isinstance(each, tuple) else each for each in partition]
    found[1] = [uuid_to_str(directory) for directory in partition.directories]
    return found


def from_fields(found: list[Any]) -> PartitionImage:
    """Return the partition that `fields` has described."""
    partition = PartitionImage._make(tuple(each) if isinstance(each, list) else each for each in found)
    return partition._replace(directories=tuple(map(uuid_from_str, found[1])))


@dataclass(slots=True)
class Step:
    """`question` is the input for Apache Kafka, `record` our answer, `after` the resulting partition."""

    change: PartitionChange
    question: dict[str, Any]
    record: PartitionChangeRecord | None
    after: PartitionImage

    def answer(self) -> dict[str, Any] | None:
        """Return our answer in the form of Apache Kafka's."""
        if self.record is None:
            return None
        return {
            "record": encode_record(self.record, self.change.metadata_version).hex(),
            "after": fields(self.after),
        }


class Walk:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._alive = set(BROKERS)
        self._version = rng.choice(METADATA_VERSIONS)
        self._elr_enabled = self._version >= 23 and rng.random() < 0.7
        self._min_isr = rng.randint(1, 3)
        replicas = tuple(rng.sample(BROKERS, rng.randint(1, 4)))
        known = self._version >= DIRECTORIES_FROM
        directories = tuple(default_directory(each) if known else DIRECTORY_MIGRATING for each in replicas)
        self.partition = PartitionImage(
            replicas, directories, replicas, (), (), (), (), replicas[0], RECOVERED, 0, rng.randint(0, 9)
        )

    def step(self) -> Step:
        rng = self._rng
        for broker in BROKERS:
            if rng.random() < (0.1 if broker in self._alive else 0.4):
                self._alive ^= {broker}
        if self._elr_enabled and rng.random() < 0.05:
            self._plant()
        change = PartitionChange(
            partition=self.partition,
            topic_id=TOPIC_ID,
            index=rng.randint(0, 3),
            acceptable=frozenset(self._alive).__contains__,
            metadata_version=self._version,
            min_isr=min(self._min_isr, len(self.partition.replicas)),
            default_directory=default_directory,
            elr_enabled=self._elr_enabled,
        )
        more: dict[str, Any] = {}
        kind = rng.choices(_KINDS, _WEIGHTS)[0]
        kind(self, change, more)
        question = self._question(change, more)
        record = change.build()
        after = self.partition if record is None else merge_partition(self.partition, record)
        self.partition = after
        return Step(change, question, record, after)

    def _plant(self) -> None:
        """Name brokers that are no replicas, as metadata of Apache Kafka may."""
        rng, before = self._rng, self.partition
        others = [broker for broker in BROKERS if broker not in (*before.replicas, *before.elr)]
        if not others:
            return
        if rng.random() < 0.5:
            self.partition = before._replace(elr=(*before.elr, rng.choice(others)))
        elif before.leader == NO_LEADER:
            self.partition = before._replace(last_known_elr=(rng.choice(others),))

    def _question(self, change: PartitionChange, more: dict[str, Any]) -> dict[str, Any]:
        question: dict[str, Any] = {
            "partition": fields(change.partition),
            "topic_id": uuid_to_str(change.topic_id),
            "index": change.index,
            "acceptable": sorted(self._alive),
            "metadata_version": change.metadata_version,
            "min_isr": change.min_isr,
            "elr_enabled": change.elr_enabled,
            "election": change.election.name,
            "unclean_shutdown": list(change.unclean_shutdown),
            **more,
        }
        if "wanted" not in more:
            for name in ("replicas", "removing", "adding"):
                if getattr(change, name) is not None:
                    question[name] = list(getattr(change, name))
        if change.isr is not None:
            question["isr"] = list(change.isr)
        if change.recovery_state is not None:
            question["recovery_state"] = change.recovery_state
        if change.directories is not None:
            question["directories"] = {str(key): uuid_to_str(value) for key, value in change.directories.items()}
        return question

    # The possible events of a step. `more` has Apache Kafka's input beyond the fields of the change.

    def _leader_proposes(self, change: PartitionChange, more: dict[str, Any]) -> None:
        """Propose an ISR of mostly live replicas, and with it often the end of the recovery."""
        rng, before = self._rng, self.partition
        isr = [each for each in before.replicas if rng.random() < (0.8 if each in self._alive else 0.1)]
        if not isr:
            isr = [before.leader] if before.leader != NO_LEADER else [rng.choice(before.replicas)]
        rng.shuffle(isr)
        change.isr = isr
        if rng.random() < 0.5:
            change.recovery_state = RECOVERED

    def _broker_goes(self, change: PartitionChange, more: dict[str, Any]) -> None:
        rng, before = self._rng, self.partition
        gone = rng.choice([*before.replicas, *before.isr])
        change.isr = [each for each in before.isr if each != gone]
        if rng.random() < 0.3:
            change.unclean_shutdown = (gone,)
        if rng.random() < 0.3:
            change.election = ElectionKind.UNCLEAN

    def _dead_brokers_go(self, change: PartitionChange, more: dict[str, Any]) -> None:
        change.isr = [each for each in self.partition.isr if each in self._alive]
        change.election = self._rng.choice(list(ElectionKind))

    def _elect(self, change: PartitionChange, more: dict[str, Any]) -> None:
        change.election = self._rng.choice(list(ElectionKind))

    def _reassign(self, change: PartitionChange, more: dict[str, Any]) -> None:
        """Reassign like an administrator: other brokers, another order, or back to the previous replicas."""
        rng, before = self._rng, self.partition
        original = [each for each in before.replicas if each not in before.adding_replicas]
        if rng.random() < 0.2 and original:
            wanted = original
        elif rng.random() < 0.5:
            wanted = list(before.replicas)
            wanted[rng.randrange(len(wanted))] = rng.choice(BROKERS)
            wanted = list(dict.fromkeys(wanted))
        else:
            wanted = rng.sample(BROKERS, rng.randint(1, 4))
        more["wanted"] = wanted
        begin(change, wanted)

    def _cancel(self, change: PartitionChange, more: dict[str, Any]) -> None:
        before = self.partition
        replicas = [each for each in before.replicas if each not in before.adding_replicas]
        isr = [each for each in before.isr if each not in before.adding_replicas]
        if replicas and isr:
            change.isr, change.replicas, change.removing, change.adding = isr, replicas, [], []
        if self._rng.random() < 0.3:
            change.election = ElectionKind.UNCLEAN

    def _recover(self, change: PartitionChange, more: dict[str, Any]) -> None:
        change.recovery_state = self._rng.choice([RECOVERED, RECOVERING])

    def _directories(self, change: PartitionChange, more: dict[str, Any]) -> None:
        rng = self._rng
        chosen = rng.sample(self.partition.replicas, rng.randint(1, len(self.partition.replicas)))
        change.directories = {
            each: rng.choice([DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, b"dir " + bytes(8) + each.to_bytes(4, "big")])
            for each in chosen
        }

    def _anything(self, change: PartitionChange, more: dict[str, Any]) -> None:
        """Choose targets that no operation of a controller has today."""
        rng = self._rng
        change.election = rng.choice(list(ElectionKind))
        if rng.random() < 0.7:
            change.isr = rng.sample(BROKERS, rng.randint(0, 3))
        if rng.random() < 0.5:
            change.replicas = rng.sample(BROKERS, rng.randint(1, 5))
        if rng.random() < 0.5:
            change.removing = rng.sample(BROKERS, rng.randint(0, 2))
        if rng.random() < 0.5:
            change.adding = rng.sample(BROKERS, rng.randint(0, 2))
        if rng.random() < 0.3:
            change.unclean_shutdown = tuple(rng.sample(BROKERS, rng.randint(1, 3)))


_CHANCES = {
    Walk._leader_proposes: 30,
    Walk._broker_goes: 15,
    Walk._dead_brokers_go: 15,
    Walk._elect: 10,
    Walk._reassign: 15,
    Walk._cancel: 3,
    Walk._recover: 3,
    Walk._directories: 3,
    Walk._anything: 6,
}
_KINDS, _WEIGHTS = list(_CHANCES), list(_CHANCES.values())
