"""The server-side assignors of KIP-848: which member of a consumer group shall own which partitions.

Responsible for the target assignment alone, as pure functions of the members (their subscriptions and what is their
target so far) and of the topics. Not responsible for when a target is computed, for epochs, nor for how the members
get there (the group's state machine has those).

The same input gives Apache Kafka 4.3.1's result, down to which member gets which partition (compared in
compat_tests/consumer_groups). Kafka walks Java's hash maps on the way, so their orders are part of the result: java.py
has them. Neither assignor of 4.3.1 looks at racks.

Invariants: every partition of a topic with at least one subscriber has exactly one owner, and that owner subscribes to
the topic; every member is in the result; nothing that was handed in is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from pykbroker.coordinator.group.consumer.assign.range_assignor import range_
from pykbroker.coordinator.group.consumer.assign.subscriber import Assignment, Subscriber, Topics
from pykbroker.coordinator.group.consumer.assign.uniform import uniform

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "Subscriber", "Topics", "range_", "uniform"]


class Assignor(Protocol):
    def __call__(self, members: Mapping[str, Subscriber], topics: Topics, *, mixed: bool = False) -> Assignment:
        """`mixed`: members subscribe in different ways (one by name, one by pattern), even if to the same topics."""
        ...


#: By the names that members ask for and group.consumer.assignors lists.
ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_}
