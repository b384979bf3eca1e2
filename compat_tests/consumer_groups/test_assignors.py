"""Our assignors, compared with Apache Kafka's own from its jars, on groups that live on: same input, same owners.

Each seed is a group with changes (members come and go, subscriptions change, topics come, grow and go). After each
change Kafka's assignor and ours compute the next target from the last one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import pytest

from compat_tests.consumer_groups.oracle import Oracle
from pykbroker.coordinator.group.consumer.assign import ASSIGNORS, Assignment, Subscriber
from pykbroker_wire.primitives import uuid_to_str

SEEDS = 150
STEPS = 8


class Topics:
    def __init__(self, counts: dict[bytes, int]) -> None:
        self.counts = counts

    def partition_count(self, topic_id: bytes) -> int:
        return self.counts.get(topic_id, -1)

    def racks(self, topic_id: bytes, partition: int) -> frozenset[str]:
        return frozenset()


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    oracle = Oracle("Assign")
    yield oracle
    oracle.close()


def partitions_text(partitions: Mapping[bytes, frozenset[int] | set[int]]) -> str:
    words = {
        uuid_to_str(topic_id): ".".join(map(str, sorted(found))) for topic_id, found in partitions.items() if found
    }
    return "+".join(f"{topic}:{found}" for topic, found in sorted(words.items())) or "-"


def question(assignor: str, members: Mapping[str, Subscriber], topics: Topics) -> str:
    parts = [assignor, " ".join(f"{uuid_to_str(topic_id)}={count}" for topic_id, count in topics.counts.items())]
    for member_id, member in members.items():
        subscribed = "+".join(uuid_to_str(topic_id) for topic_id in sorted(member.topic_ids)) or "-"
        # Java's maps keep entries of the same bucket in their order of insertion, which is by topic id on both sides.
        assigned = "+".join(
            f"{uuid_to_str(topic_id)}:{'.'.join(map(str, sorted(found)))}"
            for topic_id, found in sorted(member.assigned.items())
        )
        parts.append(f"{member_id} {member.instance_id or '*'} {subscribed} {assigned or '-'}")
    return " | ".join(parts)


def answer(target: Assignment) -> str:
    return " | ".join(f"{member_id} {partitions_text(own)}" for member_id, own in sorted(target.items()))


class Life:
    """A group with changes. `mixed`: its members do not all subscribe to the same topics."""

    def __init__(self, rng: random.Random, *, mixed: bool) -> None:
        self.rng, self.mixed = rng, mixed
        self.topics = Topics({})
        self.members: dict[str, Subscriber] = {}
        self.most_members = rng.choice([3, 8, 30])
        self.most_partitions = rng.choice([4, 20, 120])
        for _ in range(rng.randint(1, rng.choice([2, 5, 30]))):
            self.new_topic()
        self.shared = self.subscription()
        for _ in range(rng.randint(1, self.most_members)):
            self.new_member()

    def new_topic(self) -> None:
        self.topics.counts[self.rng.randbytes(16)] = self.rng.randint(1, self.most_partitions)

    def new_member(self) -> None:
        rng = self.rng
        member_id = rng.choice([uuid_to_str(rng.randbytes(16)), f"member-{rng.randint(0, 999)}"])
        instance_id = f"instance-{rng.randint(0, 10**6)}" if rng.random() < 0.3 else None
        if member_id not in self.members:
            topic_ids = self.subscription() if self.mixed else self.shared
            self.members[member_id] = Subscriber(instance_id, None, topic_ids, {})

    def subscription(self) -> frozenset[bytes]:
        known = list(self.topics.counts)
        least = 0 if self.rng.random() < 0.05 else 1
        return frozenset(self.rng.sample(known, self.rng.randint(least, len(known))))

    def step(self) -> None:
        rng = self.rng
        for _ in range(rng.choice([0, 1, 1, 3])):
            happening = rng.randint(0, 5)
            if happening == 0:
                self.new_member()
            elif happening == 1 and len(self.members) > 1:
                del self.members[rng.choice(list(self.members))]
            elif happening == 2:
                self.new_topic()
            elif happening == 3:
                grown = rng.choice(list(self.topics.counts))
                self.topics.counts[grown] += rng.randint(1, 5)
            elif happening == 4 and len(self.topics.counts) > 1:
                gone = rng.choice(list(self.topics.counts))
                del self.topics.counts[gone]
                self.shared -= {gone}
                self.members = {
                    member_id: member._replace(topic_ids=member.topic_ids - {gone})
                    for member_id, member in self.members.items()
                }
            elif self.mixed:
                member_id = rng.choice(list(self.members))
                self.members[member_id] = self.members[member_id]._replace(topic_ids=self.subscription())
            else:
                self.shared = self.subscription()
                self.members = {
                    member_id: member._replace(topic_ids=self.shared) for member_id, member in self.members.items()
                }

    def take(self, target: Assignment) -> None:
        self.members = {
            member_id: member._replace(
                assigned={topic_id: frozenset(found) for topic_id, found in target[member_id].items()}
            )
            for member_id, member in self.members.items()
        }


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True], ids=["same-topics", "other-topics"])
@pytest.mark.parametrize("assignor", list(ASSIGNORS))
def test_the_same_owners_as_apache_kafka(oracle: Oracle, assignor: str, mixed: bool) -> None:
    for seed in range(SEEDS):
        life = Life(random.Random(seed), mixed=mixed)
        for step in range(STEPS):
            # Sometimes the group changes its assignor, and starts from a target of the other one.
            name = assignor if life.rng.random() < 0.9 else life.rng.choice(list(ASSIGNORS))
            other_ways = life.rng.random() < 0.2
            target = ASSIGNORS[name](life.members, life.topics, mixed=other_ways)
            expected = oracle.ask(question(name + "!" * other_ways, life.members, life.topics))
            assert answer(target) == expected, f"seed {seed}, step {step}, {name}"
            life.take(target)
            life.step()
