"""Our assignor of share groups, compared with Apache Kafka's own from its jars, on groups that live on.

Each seed is a group with changes: members come and go, subscriptions change, topics come, grow and go, and partitions
become assignable. After each change Kafka's assignor and ours compute the next target from the last one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping

import pytest

from compat_tests.consumer_groups.oracle import Oracle
from pykbroker.coordinator.group.share.simple_assignor import ShareAssignment, ShareSubscriber, simple
from pykbroker_wire.primitives import uuid_to_str

SEEDS = 150
STEPS = 8


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    oracle = Oracle("AssignShares")
    yield oracle
    oracle.close()


def numbers_text(numbers: Iterable[int]) -> str:
    return ".".join(map(str, sorted(numbers))) or "-"


def partitions_text(partitions: Mapping[bytes, frozenset[int] | set[int]]) -> str:
    words = {uuid_to_str(topic_id): numbers_text(found) for topic_id, found in partitions.items()}
    return "+".join(f"{topic}:{found}" for topic, found in sorted(words.items())) or "-"


def answer(target: ShareAssignment) -> str:
    return " | ".join(f"{member_id} {partitions_text(own)}" for member_id, own in sorted(target.items()))


class Life:
    """A share group with changes. `mixed`: its members do not all subscribe to the same topics."""

    def __init__(self, rng: random.Random, *, mixed: bool) -> None:
        self.rng, self.mixed = rng, mixed
        self.counts: dict[bytes, int] = {}
        self.assignable: dict[bytes, set[int]] = {}
        self.members: dict[str, ShareSubscriber] = {}
        self.most_members = rng.choice([3, 8, 30, 90])
        self.most_partitions = rng.choice([2, 4, 20, 120])
        for _ in range(rng.randint(1, rng.choice([2, 5, 30]))):
            self.new_topic()
        self.shared = self.subscription()
        for _ in range(rng.randint(1, self.most_members)):
            self.new_member()

    def new_topic(self) -> None:
        topic_id = self.rng.randbytes(16)
        self.counts[topic_id] = self.rng.randint(1, self.most_partitions)
        self.assignable[topic_id] = set()
        self.initialise(topic_id)

    def initialise(self, topic_id: bytes) -> None:
        """Make all or some of the partitions assignable. As in a group, none ceases to be so."""
        count = self.counts[topic_id]
        least = count if self.rng.random() < 0.8 else 0
        self.assignable[topic_id] |= set(self.rng.sample(range(count), self.rng.randint(least, count)))

    def new_member(self) -> None:
        rng = self.rng
        member_id = rng.choice([uuid_to_str(rng.randbytes(16)), f"member-{rng.randint(0, 999)}"])
        if member_id not in self.members:
            topic_ids = self.subscription() if self.mixed else self.shared
            self.members[member_id] = ShareSubscriber(topic_ids, {})

    def subscription(self) -> list[bytes]:
        known = list(self.counts)
        least = 0 if self.rng.random() < 0.05 else 1
        return self.rng.sample(known, self.rng.randint(least, len(known)))

    def subscribe(self, member_id: str, topic_ids: list[bytes]) -> None:
        self.members[member_id] = self.members[member_id]._replace(topic_ids=topic_ids)

    def step(self) -> None:
        rng = self.rng
        for _ in range(rng.choice([0, 1, 1, 3])):
            happening = rng.randint(0, 6)
            if happening == 0:
                self.new_member()
            elif happening == 1 and len(self.members) > 1:
                del self.members[rng.choice(list(self.members))]
            elif happening == 2:
                self.new_topic()
            elif happening == 3:
                grown = rng.choice(list(self.counts))
                self.counts[grown] += rng.randint(1, 5)
            elif happening == 4:
                self.initialise(rng.choice(list(self.counts)))
            elif happening == 5 and len(self.counts) > 1:
                gone = rng.choice(list(self.counts))
                del self.counts[gone], self.assignable[gone]
                self.shared = [topic_id for topic_id in self.shared if topic_id != gone]
                for member_id, member in list(self.members.items()):
                    self.subscribe(member_id, [topic_id for topic_id in member.topic_ids if topic_id != gone])
            elif self.mixed:
                self.subscribe(rng.choice(list(self.members)), self.subscription())
            else:
                self.shared = self.subscription()
                for member_id in list(self.members):
                    self.subscribe(member_id, self.shared)

    def take(self, target: ShareAssignment) -> None:
        for member_id, member in list(self.members.items()):
            # Java's maps keep entries of the same bucket in their order of insertion, which is that of the text.
            own = sorted(target[member_id].items(), key=lambda topic: uuid_to_str(topic[0]))
            assigned = {topic_id: frozenset(found) for topic_id, found in own}
            self.members[member_id] = member._replace(assigned=assigned)

    @property
    def has_one_subscription(self) -> bool:
        return len({frozenset(member.topic_ids) for member in self.members.values()}) == 1

    def question(self) -> str:
        topics = (f"{uuid_to_str(t)}={count}:{numbers_text(self.assignable[t])}" for t, count in self.counts.items())
        parts = [" ".join(topics)]
        for member_id, member in self.members.items():
            subscribed = "+".join(map(uuid_to_str, member.topic_ids)) or "-"
            parts.append(f"{member_id} {subscribed} {partitions_text(member.assigned)}")
        return " | ".join(parts)

    def target(self) -> ShareAssignment:
        assignable = {topic_id: sorted(numbers) for topic_id, numbers in self.assignable.items()}
        return simple(self.members, assignable, mixed=not self.has_one_subscription)


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True], ids=["same-topics", "other-topics"])
def test_the_same_members_as_apache_kafka(oracle: Oracle, mixed: bool) -> None:
    for seed in range(SEEDS):
        life = Life(random.Random(seed), mixed=mixed)
        for step in range(STEPS):
            target = life.target()
            assert answer(target) == oracle.ask(life.question()), f"seed {seed}, step {step}"
            life.take(target)
            life.step()
