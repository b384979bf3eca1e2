"""Our PartitionChange, compared with Apache Kafka's PartitionChangeBuilder: the same record for each step, byte by
byte."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from compat_tests.kafka_classes.differences import Difference, Differences
from compat_tests.kafka_classes.partition_walk import TOPIC_ID, Step, Walk, fields, from_fields
from compat_tests.remote import Program
from pykbroker.metadata.image import PartitionImage
from pykbroker.metadata.records import decode_record
from pykbroker_wire.stored.metadata import PartitionChangeRecord

#: The number of steps per request, and the number after which another partition is walked.
BATCH = 500
WALK = 50


class Case(NamedTuple):
    """A step whose answers differ. `ask` returns Apache Kafka's answer to another question."""

    step: Step
    theirs: dict[str, Any] | None
    ask: Callable[[dict[str, Any]], dict[str, Any] | None]

    @property
    def their_record(self) -> PartitionChangeRecord | None:
        if self.theirs is None:
            return None
        record = decode_record(bytes.fromhex(self.theirs["record"]))
        assert isinstance(record, PartitionChangeRecord)
        return record

    def __str__(self) -> str:
        ours, theirs = _known(self.step.record), _known(self.their_record)
        names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        fields = [f"{name}: Apache Kafka {theirs.get(name)}, pykbroker {ours.get(name)}" for name in names]
        return "\n".join([f"asked: {self.step.question}", *fields, f"after: {self.theirs} | {self.step.answer()}"])


def _known(record: PartitionChangeRecord | None) -> dict[str, Any]:
    return {} if record is None else {name: getattr(record, name) for name in record.__slots__}


def _takes_back(case: Case) -> bool:
    """We end the reassignment, and Apache Kafka continues to wait for a replica that it removes."""
    change, theirs = case.step.change, case.their_record
    before = change.partition
    adding = before.adding_replicas if change.adding is None else change.adding
    removing = before.removing_replicas if change.removing is None else change.removing
    ours_ended = not case.step.after.is_reassigning
    named = None if theirs is None else theirs.removing_replicas
    their_removing = before.removing_replicas if named is None else named
    return bool(set(adding) & set(removing)) and ours_ended and bool(their_removing)


def _orders_the_eligible(case: Case) -> bool:
    """The eligible replicas are the same in another order, and nothing else differs."""
    before = case.step.change.partition.elr
    eligible, others = [], []
    for record in (case.step.record, case.their_record):
        known = _known(record or PartitionChangeRecord(partition_id=case.step.change.index, topic_id=TOPIC_ID))
        named = known.pop("eligible_leader_replicas")
        eligible.append(sorted(before if named is None else named))
        others.append(known)
    return eligible[0] == eligible[1] and others[0] == others[1]


def _names_former_replicas(case: Case) -> bool:
    """Apache Kafka has a broker in the ELR, or as the last known leader, that is not a replica before and after the
    change. Apache Kafka's answer without those names, before and after, is ours."""
    before, ours = case.step.change.partition, case.step.after
    stay = {*before.replicas} & {*ours.replicas}

    def cut(partition: PartitionImage) -> PartitionImage:
        # The epoch counts records, also those that only add or remove such a name.
        return partition._replace(
            elr=tuple(sorted(stay.intersection(partition.elr))),
            last_known_elr=tuple(sorted(stay.intersection(partition.last_known_elr))),
            partition_epoch=0,
        )

    question = case.step.question
    cleaned = cut(before)
    if "isr" in question:
        # Replicas that leave the ISR enter the ELR.
        cleaned = cleaned._replace(isr=tuple(each for each in before.isr if each in stay))
    theirs = case.ask({**question, "partition": fields(cleaned)})
    after = cleaned if theirs is None else from_fields(theirs["after"])
    named = {*before.isr, *before.elr, *before.last_known_elr, *after.elr, *after.last_known_elr}
    return not named <= stay and cut(after) == ours._replace(partition_epoch=0)


DIFFERENCES: tuple[Difference[Case], ...] = (
    Difference(
        "a reassignment that removes what an earlier one adds",
        "Apache Kafka awaits the replica that it removes, so that the reassignment ends only when it is cancelled.",
        _takes_back,
    ),
    Difference(
        "the order of eligible leader replicas",
        "Apache Kafka writes them in the order of a HashSet, and writes a record where only that order changes. We "
        "write them in ascending order.",
        _orders_the_eligible,
    ),
    Difference(
        "former replicas in the ELR or as the last known leader",
        "Apache Kafka never removes them. They keep the last known leader from being elected, and one that becomes a "
        "replica again could lead without records.",
        _names_former_replicas,
    ),
)


def walk(kafka: Program, steps: int, seed: int) -> None:
    rng = random.Random(seed)
    differences = Differences(DIFFERENCES)
    partition = Walk(rng)
    for start in range(0, steps, BATCH):
        batch = []
        for number in range(start, start + BATCH):
            if number % WALK == 0:
                partition = Walk(rng)
            batch.append(partition.step())
        answers = kafka.ask("changes", steps=[step.question for step in batch])
        for number, (step, theirs) in enumerate(zip(batch, answers, strict=True), start):
            if step.answer() != theirs:
                case = Case(step, theirs, lambda question: kafka.ask("changes", steps=[question])[0])
                assert differences.explain(case), f"seed {seed}, step {number}\n{case}"
    differences.assert_all_seen()


def test_10_000_steps_change_a_partition_alike(kafka: Program) -> None:
    walk(kafka, 10_000, seed=1)


@pytest.mark.long(amount="240,000 steps")
def test_240_000_steps_change_a_partition_alike(kafka: Program) -> None:
    walk(kafka, 240_000, seed=2)
