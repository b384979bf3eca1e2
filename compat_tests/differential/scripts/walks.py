"""Random walks, for requests that no written test has. A seed is one walk; both nodes get the same requests.

`WALKS=20 python compat_tests/differential/run.py walk_of_transactions` runs twenty of them.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

from compat_tests.differential.scripts.asking import (
    CONCURRENT_TRANSACTIONS,
    Producer,
    add_for,
    add_offsets,
    add_partitions,
    batch,
    commit_offsets,
    end,
    init,
    producer,
    until_coordinator,
    write,
)
from compat_tests.differential.scripts.consumers import LEAVE, LEAVE_STATIC, Member, assignable, beat, describe
from compat_tests.differential.scripts.isolation import _offsets, _producers
from compat_tests.differential.session import Session
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest

WALKS = int(os.environ.get("WALKS", "3"))
STEPS = 60
SETTLED = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")


class Walker:
    """Producers of a few names, each with all the identities that its name ever had."""

    def __init__(self, s: Session, seed: int) -> None:
        self._s = s
        self._random = Random(seed)
        self._label = f"walk {seed}"
        self._topic = s.make_topic(partitions=2)
        self._group = s.name(f"g-{seed}")
        self._known = {name: [producer(s, f"{name}-{seed}")] for name in ("a", "b")}
        self._sequences: dict[tuple[int, int, int], int] = {}

    def walk(self) -> None:
        for number in range(STEPS):
            self._step(f"{self._label}, step {number}")
        for level in (0, 1):
            for partition in (0, 1):
                self._s.call(f"{self._label}: offsets", _offsets(self._topic, -1, level, partition))

    def _step(self, label: str) -> None:
        random = self._random
        name = random.choice("ab")
        known = self._known[name]
        # Mostly the last one, sometimes an older one.
        p = known[-1] if random.random() < 0.8 else random.choice(known)
        action = random.choice(
            (self._init, self._add, self._verify, self._write, self._write, self._offsets, self._end)
        )
        action(label, name, p)
        self._s.until(lambda: self._state(known[-1]) in SETTLED, "markers are written")
        described = DescribeTransactionsRequest(transactional_ids=[known[-1].name])
        self._s.call(f"{label}: described", described)
        if random.random() < 0.2:
            self._s.call(f"{label}: producers", _producers(self._topic, random.randrange(2)))

    def _state(self, p: Producer) -> str:
        request = DescribeTransactionsRequest(transactional_ids=[p.name])
        return str(self._s.ask(request).transaction_states[0].transaction_state)

    def _init(self, label: str, name: str, p: Producer) -> None:
        version = self._random.choice((1, 4, 5))
        knowing = version > 1 and self._random.random() < 0.6
        fields = {"producer_id": p.id, "producer_epoch": p.epoch} if knowing else {}
        answer = self._s.call(f"{label}: init", init(p.name, **fields), version)
        if answer.error_code == CONCURRENT_TRANSACTIONS:
            self._s.until(lambda: self._state(p) in SETTLED, "markers are written")
            answer = self._s.call(f"{label}: init again", init(p.name, **fields), version)
        self._learn(name, p, answer)

    def _learn(self, name: str, p: Producer, answer: Any) -> None:
        if answer.error_code == 0 and answer.producer_id >= 0:
            self._known[name].append(Producer(p.name, answer.producer_id, answer.producer_epoch))

    def _add(self, label: str, name: str, p: Producer) -> None:
        version = self._random.choice((0, 2, 3))
        self._s.call(f"{label}: add", add_partitions(p, (self._topic, [self._random.randrange(2)])), version)

    def _verify(self, label: str, name: str, p: Producer) -> None:
        only = self._random.random() < 0.7
        asked = add_for((p, [(self._topic, [self._random.randrange(2)])], only))
        self._s.call(f"{label}: {'verify' if only else 'add as a broker'}", asked, self._random.choice((4, 5)))

    def _write(self, label: str, name: str, p: Producer) -> None:
        partition = self._random.randrange(2)
        place = (p.id, p.epoch, partition)
        sequence = self._sequences.get(place, 0)
        if self._random.random() < 0.1:
            sequence = max(0, sequence + self._random.choice((-1, 1, 3)))
        transactional = self._random.random() < 0.95
        version = self._random.choice((9, 11, 12, 13))
        request = write(self._s, p, self._topic, (partition, batch(p, sequence, transactional=transactional)))
        answer = self._s.call(f"{label}: write", request, version)
        if answer.responses[0].partition_responses[0].error_code == 0:
            self._sequences[place] = sequence + 1

    def _offsets(self, label: str, name: str, p: Producer) -> None:
        if self._random.random() < 0.5:
            self._s.call(f"{label}: add offsets", add_offsets(p, self._group), self._random.choice((0, 3, 4)))
        else:
            asked = commit_offsets(p, self._group, (self._topic, [(0, self._random.randrange(9))]))
            self._s.call(f"{label}: offsets", asked, self._random.choice((2, 4, 5)))

    def _end(self, label: str, name: str, p: Producer) -> None:
        commit = self._random.random() < 0.6
        answer = self._s.call(
            f"{label}: {'commit' if commit else 'abort'}",
            end(p, commit=commit),
            self._random.choice((1, 3, 4, 5, 5, 5)),
        )
        self._learn(name, p, answer)


def walk_of_transactions(s: Session) -> None:
    """Two transactional ids and their older selves: init, add, verify, write, commit offsets, end, in any order."""
    s.until_coordinator()
    until_coordinator(s)
    for seed in range(WALKS):
        Walker(s, seed).walk()


def walk_of_consumers(s: Session) -> None:
    """Four members, one of them static, that join, comply or not, change what they read, leave, in any order.

    The uniform assignor takes topics in the order of their ids, which are a node's own: where it may be chosen there
    is one topic. Members come in the order of a hash map: these names share no bucket. All members of a group ask for
    one assignor, because Apache Kafka 4.4.0 raises the epoch without end where two have the same number of votes."""
    s.until_coordinator()
    every = [assignable(s, "a", partitions=5), assignable(s, "b", partitions=3), assignable(s, "c", partitions=1)]
    for seed in range(WALKS):
        random = Random(seed)
        group = s.name(f"g-{seed}")
        topics, assignor = (every, "range") if seed % 2 else (every[:1], "uniform")
        fixed: dict[str, Any] = {"server_assignor": assignor}
        members = [Member(s, group, f"m{number}", **fixed) for number in range(3)]
        members.append(Member(s, group, "m3", instance_id="i", **fixed))
        for number in range(STEPS):
            member = random.choice(members)
            label = f", walk {seed} step {number}"
            choice = random.random()
            if choice < 0.2:
                member.join(random.sample(topics, random.randint(1, len(topics))), label)
            elif choice < 0.7:
                member.comply(label)
            elif choice < 0.8:
                member.beat(label)
            elif choice < 0.87:
                member.beat(label, subscribed_topic_names=random.sample(topics, random.randint(0, len(topics))))
            elif choice < 0.92:
                member.beat(label, server_assignor=assignor)
            elif choice < 0.95:
                epoch = max(0, member.epoch) + random.choice((-1, 1))
                s.call(f"{member.name} is mistaken{label}", beat(group, member.name, max(1, epoch), member.owned))
            elif member is members[-1] and random.random() < 0.5:
                member.leave(LEAVE_STATIC, label)
            else:
                member.leave(LEAVE, label)
            if random.random() < 0.25:
                describe(s, f"described{label}", group)


SCRIPTS = (walk_of_transactions, walk_of_consumers)
