"""`simple`, the assignor of share groups (KIP-932): decides which members of a share group fetch which partitions.

Responsible for the target assignment alone, as a pure function of the members (their topics and their targets so far)
and of the partitions that may be assigned. Not responsible for when a target is computed, nor for which partitions may
be assigned.

The members of a share group share partitions, so a partition may have several members. With M members and P partitions
each partition gets ceil(M / P) members, and these places are spread evenly over the members. Balance comes first:
members give up what is too much for them before others get more. Stickiness comes second. If the members subscribe to
different topics, each topic is balanced on its own.

The same input gives Apache Kafka 4.3.1's result, down to which member gets which partition (SimpleAssignor; compared in
compat_tests/consumer_groups). Kafka walks Java's hash maps and hash sets on the way, so their orders are part of the
result.

Invariants: each member is in the result; a member of a group with one subscription gets only topics of it; the
arguments are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple, TypeVar

from pykbroker.coordinator.java import collection_buckets, hash_map_order, java_hash, uuid_hash

#: The partitions of each topic, by member id. A topic stays, without partitions, if the member had to give up all of
#: them.
ShareAssignment = dict[str, dict[bytes, set[int]]]

#: A partition with its topic, or the number of a partition of the one topic in question.
P = TypeVar("P", tuple[bytes, int], int)

_LOAD_FACTOR: Final = 0.75


class ShareSubscriber(NamedTuple):
    """A member as the assignor sees it."""

    #: the existing topics to which the member subscribes, in the order of Java's set of their names
    topic_ids: Sequence[bytes]
    #: the member's target so far
    assigned: Mapping[bytes, frozenset[int]]


def simple(
    members: Mapping[str, ShareSubscriber], partitions: Mapping[bytes, Sequence[int]], *, mixed: bool
) -> ShareAssignment:
    """Return the partitions of each member.

    `partitions` has the partitions of each subscribed topic that may be assigned, in rising order. `mixed` is True if
    the members do not all subscribe to the same topics."""
    order = hash_map_order(members, java_hash)
    if not order:
        return {}
    in_order = [members[member_id] for member_id in order]
    balanced = _topic_by_topic(in_order, partitions) if mixed else _all_topics(in_order, partitions)
    return dict(zip(order, balanced, strict=True))


def _all_topics(
    members: Sequence[ShareSubscriber], partitions: Mapping[bytes, Sequence[int]]
) -> list[dict[bytes, set[int]]]:
    topic_ids = members[0].topic_ids
    subscribed = frozenset(topic_ids)
    owned = []
    own: list[dict[bytes, set[int]]] = []
    for member in members:
        kept = [topic_id for topic_id in hash_map_order(member.assigned, uuid_hash) if topic_id in subscribed]
        own.append({topic_id: set() for topic_id in kept})
        owned.append(
            {(topic_id, partition): None for topic_id in kept for partition in _set_order(member.assigned[topic_id])}
        )
    targets = [(topic_id, partition) for topic_id in topic_ids for partition in partitions.get(topic_id, ())]
    _balance(owned, range(len(members)), targets, lambda place: 31 * uuid_hash(place[0]) + place[1])
    for topics, places in zip(own, owned, strict=True):
        for topic_id, partition in places:
            topics.setdefault(topic_id, set()).add(partition)
    return own


def _topic_by_topic(
    members: Sequence[ShareSubscriber], partitions: Mapping[bytes, Sequence[int]]
) -> list[dict[bytes, set[int]]]:
    """Balance each topic over its subscribers. As with Apache Kafka, topics to which no member subscribes any longer
    stay in the targets. The member drops them, because it takes only topics of its subscription from its target."""
    subscribers: dict[bytes, list[int]] = {}
    for number, member in enumerate(members):
        for topic_id in member.topic_ids:
            subscribers.setdefault(topic_id, []).append(number)
    if not subscribers:
        return [{} for _ in members]
    own = [{topic_id: set(numbers) for topic_id, numbers in member.assigned.items()} for member in members]
    for topic_id, numbers in subscribers.items():
        owned = [dict.fromkeys(_set_order(member.assigned.get(topic_id, ()))) for member in members]
        _balance(owned, numbers, partitions.get(topic_id, ()), int)
        for topics, places in zip(own, owned, strict=True):
            if places or topic_id in topics:
                topics[topic_id] = set(places)
    return own


def _balance(
    owned: Sequence[dict[P, None]], receivers: Sequence[int], targets: Sequence[P], hash_of: Callable[[P], int]
) -> None:
    """Move places between members. `owned` has the places of each member, and afterwards those that it should have.

    The places of `targets` are given to `receivers`, which are numbers of members in rising order. Other members lose
    all places."""
    sharing, wanted = _shares(len(targets), receivers)
    holders: dict[P, dict[int, None]] = {}
    for number, places in enumerate(owned):
        for place in places:
            holders.setdefault(place, {})[number] = None
    # Java's sets do not shrink, so their order depends on their greatest size.
    buckets = {place: _grown(len(found)) for place, found in holders.items()}
    for number, places in enumerate(owned):
        too_many = len(places) - wanted.get(number, 0)
        if too_many > 0:
            for place in hash_map_order(places, hash_of)[:too_many]:
                del places[place]
                del holders[place][number]
    for place, found in holders.items():
        too_many = len(found) - sharing
        if too_many > 0:
            for number in hash_map_order(found, int, buckets=buckets[place])[:too_many]:
                del found[number]
                del owned[number][place]
    for place in targets:
        holders.setdefault(place, {})
    # HashMap.computeIfAbsent adds at the head of a bucket.
    walk = hash_map_order(reversed(holders), hash_of, buckets=_buckets_for(len(targets)))
    _fill(owned, ((place, holders[place], sharing - len(holders[place])) for place in walk), wanted)


def _shares(places: int, receivers: Sequence[int]) -> tuple[int, dict[int, int]]:
    """Return how many members each of the places should have, and how many places each receiver should have."""
    count = len(receivers)
    sharing = -(-count // places) if places else 0
    precise = sharing * places / count
    return sharing, {number: ceil(precise * (rank + 1)) - ceil(precise * rank) for rank, number in enumerate(receivers)}


def _fill(
    owned: Sequence[dict[P, None]], places: Iterable[tuple[P, dict[int, None], int]], wanted: Mapping[int, int]
) -> None:
    """Give each place (with its holders before) to as many members as are missing, in turn to members with room.

    This is not always balanced, because it ends when one whole turn over the members with room has given them nothing.
    A member counts twice for a place if it is alone with room. Both is Apache Kafka's way."""
    unfilled = {number for number, count in wanted.items() if len(owned[number]) < count}
    turn = iter(sorted(unfilled))
    gave = False
    for place, holders, missing in places:
        while missing > 0:
            number = next(turn, -1)
            if number < 0:
                if not gave or not unfilled:
                    break
                turn = iter(sorted(unfilled))
                gave = False
                continue
            if number not in holders:
                owned[number][place] = None
                missing -= 1
                gave = True
                if len(owned[number]) >= wanted[number]:
                    unfilled.discard(number)
        if not unfilled:
            return


# -- the orders of Java's collections ---------------------------------------------------------------------------------


def _set_order(numbers: Iterable[int]) -> list[int]:
    """Return the order of `new HashSet<>(collection)`."""
    in_order = sorted(numbers)
    return hash_map_order(in_order, int, buckets=collection_buckets(len(in_order)))


def _grown(size: int) -> int:
    """Return the number of buckets of a `new HashSet<>()` that has grown to this size."""
    return 16 if size <= 12 else 1 << ceil(size / _LOAD_FACTOR - 1).bit_length()


def _buckets_for(size: int) -> int:
    """Return the number of buckets of a map that was made for this size (AssignorHelpers.newHashMap)."""
    return 1 << int((size + 1) / _LOAD_FACTOR).bit_length()
