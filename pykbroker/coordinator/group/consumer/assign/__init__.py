"""The server-side assignors of KIP-848: they decide which member of a consumer group owns which partitions.

Responsible for the target assignment alone, as pure functions of the members (their subscriptions and their targets so
far) and of the topics. Not responsible for when a target is computed, for epochs, nor for how the members reach it (the
group's state machine does that).

The same input gives Apache Kafka 4.3.1's result, down to which member gets which partition (compared in
compat_tests/consumer_groups). Kafka walks Java's hash maps on the way, so their orders are part of the result: java.py
has them. Neither assignor of 4.3.1 looks at racks.

Invariants: each partition of a topic with at least one subscriber has exactly one owner, and that owner subscribes to
the topic; each member is in the result; the arguments are not changed.
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
        """`mixed` is True if members subscribe in different ways (one by name, one by pattern), even if to the same
        topics."""
        ...


#: The assignors by the names that members request and that group.consumer.assignors lists.
ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_}
