"""`uniform` for members with different subscriptions.

1. Each member keeps the partitions that it had, if it still subscribes to their topic.
2. Partitions without an owner go, topic by topic, to the subscriber with the fewest partitions. Topics with the most
   partitions per subscriber come first, because they leave the least choice.
3. Topic by topic again, the most loaded subscribers give partitions to the least loaded subscribers, until a whole
   round moves nothing or ROUNDS are over. With overlapping subscriptions a move can make room for another, and each
   round about halves the imbalance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pykbroker.coordinator.group.consumer.assign.subscriber import Assignment, Subscriber, still_there
from pykbroker.coordinator.java import uuid_order

ROUNDS: Final = 16

_NOBODY: Final = -1


def balance(members: Mapping[str, Subscriber], order: Sequence[str], counts: Mapping[bytes, int]) -> Assignment:
    mixed = _Mixed(members, order, counts)
    mixed.give_free_partitions()
    mixed.even_out()
    return mixed.target()


class _Mixed:
    """The members and topics of one computation. Members are numbers: their places in `order`."""

    def __init__(self, members: Mapping[str, Subscriber], order: Sequence[str], counts: Mapping[bytes, int]) -> None:
        self._order = order
        self._owners = {topic_id: [_NOBODY] * count for topic_id, count in counts.items()}
        self._subscribers: dict[bytes, list[int]] = {topic_id: [] for topic_id in counts}
        self._loads = [0] * len(order)
        for place, member_id in enumerate(order):
            member = members[member_id]
            for topic_id in member.topic_ids:
                if topic_id in counts:
                    self._subscribers[topic_id].append(place)
            for topic_id, partitions in member.assigned.items():
                if topic_id in counts and topic_id in member.topic_ids:
                    owners = self._owners[topic_id]
                    kept = still_there(partitions, len(owners))
                    for partition in kept:
                        owners[partition] = place
                    self._loads[place] += len(kept)
        self._topics = sorted(counts, key=self._scarcity)

    def _scarcity(self, topic_id: bytes) -> tuple[float, int, tuple[int, int]]:
        subscribers = len(self._subscribers[topic_id])
        return -(len(self._owners[topic_id]) / subscribers), subscribers, uuid_order(topic_id)

    def give_free_partitions(self) -> None:
        for topic_id in self._topics:
            owners = self._owners[topic_id]
            if _NOBODY not in owners:
                continue
            scale = _Scale(self._subscribers[topic_id], self._loads)
            for partition, owner in enumerate(owners):
                if owner == _NOBODY:
                    self._give(owners, partition, scale.next_least_loaded())

    def even_out(self) -> None:
        topics = [topic_id for topic_id in self._topics if len(self._subscribers[topic_id]) > 1]
        last_moved = -1
        for _ in range(ROUNDS):
            for place, topic_id in enumerate(topics):
                if place == last_moved:
                    return  # since this topic's move, a whole round has moved nothing
                if self._even_out_topic(topic_id) or last_moved == -1:
                    last_moved = place

    def _even_out_topic(self, topic_id: bytes) -> bool:
        scale = _Scale(self._subscribers[topic_id], self._loads)
        if scale.spread <= 1:
            return False
        owners = self._owners[topic_id]
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            held.setdefault(owner, []).append(partition)

        moved = False
        while not scale.balanced():
            giver = scale.next_most_loaded()
            while giver is not None and not held.get(giver):
                scale.exclude_most_loaded()
                giver = scale.next_most_loaded()
            if giver is None:
                break
            partition = held[giver].pop()
            taker = scale.next_least_loaded()
            if scale.balanced():
                break
            self._give(owners, partition, taker)
            moved = True
        return moved

    def _give(self, owners: list[int], partition: int, taker: int) -> None:
        giver = owners[partition]
        if giver != _NOBODY:
            self._loads[giver] -= 1
        owners[partition] = taker
        self._loads[taker] += 1

    def target(self) -> Assignment:
        target: Assignment = {member_id: {} for member_id in self._order}
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                target[self._order[owner]].setdefault(topic_id, set()).add(partition)
        return target


class _Scale:
    """Subscribers of one topic by their load, with the least loaded at the left and the most loaded at the right.

    There are two ranges of equally loaded members. The left range grows to the right as its members get partitions, and
    the right range grows to the left as its members give partitions up. Within a range each member has a turn before
    its level changes. `loads` is the caller's list. The caller changes it when it moves a partition from or to a member
    that the scale has returned.
    """

    def __init__(self, subscribers: Sequence[int], loads: list[int]) -> None:
        self._loads = loads
        self._members = sorted(subscribers, key=loads.__getitem__)  # stable: equal loads in order of place
        least, most = loads[self._members[0]], loads[self._members[-1]]
        self.spread = most - least
        self._left_end = 0
        self._left_level = least - 1
        self._left_next = 0
        self._right_start = self._right_end = len(self._members)
        self._right_level = most + 1
        self._right_next = len(self._members) - 1

    def next_least_loaded(self) -> int:
        if self._left_next >= self._left_end:
            self._left_level += 1
            while self._left_end < len(self._members) and self._load(self._left_end) == self._left_level:
                self._left_end += 1
            self._left_next = 0
        member = self._members[self._left_next]
        self._left_next += 1
        return member

    def next_most_loaded(self) -> int | None:
        """Return None if no member is left that could give a partition."""
        if self._right_next < self._right_start:
            if self._right_end <= self._right_start and self._right_start > 0:
                # All members of the range were excluded: go on at the next level.
                self._right_level = self._load(self._right_start - 1)
            else:
                self._right_level -= 1
            while self._right_start > 0 and self._load(self._right_start - 1) == self._right_level:
                self._right_start -= 1
            self._right_next = self._right_end - 1
        if self._right_next < 0:
            return None
        member = self._members[self._right_next]
        self._right_next -= 1
        return member

    def exclude_most_loaded(self) -> None:
        """Take the member that the last `next_most_loaded` returned out of its range, because it has no partition to
        give."""
        place, last = self._right_next + 1, self._right_end - 1
        self._members[place], self._members[last] = self._members[last], self._members[place]
        self._right_end = last

    def balanced(self) -> bool:
        return self._right_level - self._left_level <= 1

    def _load(self, place: int) -> int:
        return self._loads[self._members[place]]
