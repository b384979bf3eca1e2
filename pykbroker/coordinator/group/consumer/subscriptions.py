"""The subscriptions of a consumer group: how many members ask for each topic, regular expression and assignor; pure.

Responsible for the counts, and for the topics that each regular expression matched. Not responsible for the members
(consumer_group.py), nor for the matching (resolving.py).

Invariants: no count is 0 or less. `subscribers` counts a member for each topic of its list, and each topic of a
resolved regular expression once. `regexes`, `assignors` and `classic_protocols` count members.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.coordinator.group.consumer.consumer_member import ConsumerMember, ResolvedRegex
from pykbroker.coordinator.java import hash_map_order, java_hash

#: topic -> the number of members that subscribe to it by name, and the number of regular expressions that match it
SubscriberCounts = dict[str, tuple[int, int]]


class Subscriptions:
    """The counts of one group. `replace` and `set_resolved` change them, and replay alone calls these."""

    __slots__ = ("assignors", "classic_count", "classic_protocols", "regexes", "resolved", "subscribers")

    def __init__(self) -> None:
        self.subscribers: SubscriberCounts = {}
        #: regular expression -> number of members that subscribe with it
        self.regexes: dict[str, int] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        #: assignor -> number of members that ask for it
        self.assignors: dict[str, int] = {}
        #: the number of members that use the classic protocol
        self.classic_count = 0
        #: protocol -> number of classic members that support it
        self.classic_protocols: dict[str, int] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self.subscribers

    def replace(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        """Count `new` instead of `old`. None stands for a member that has not joined yet, or has left."""
        if old is not None and new is not None and old[3:11] == new[3:11] and old.classic == new.classic:
            # The subscription of the member is the same, and only its assignment has changed.
            return
        if old is not None:
            count_topics(self.subscribers, old.topics, by_name=-1)
            _count(self.assignors, old.assignor, -1)
            _count(self.regexes, old.regex, -1)
            if old.classic is not None:
                self.classic_count -= 1
                for name, _ in old.classic.protocols:
                    _count(self.classic_protocols, name, -1)
        if new is not None:
            count_topics(self.subscribers, new.topics, by_name=1)
            _count(self.assignors, new.assignor, 1)
            _count(self.regexes, new.regex, 1)
            if new.classic is not None:
                self.classic_count += 1
                for name, _ in new.classic.protocols:
                    _count(self.classic_protocols, name, 1)

    def set_resolved(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set the topics of a regular expression, or None if no member subscribes with it."""
        old = self.resolved.pop(regex, None)
        if old is not None:
            count_topics(self.subscribers, old.topics, by_regex=-1)
        if resolved is not None:
            self.resolved[regex] = resolved
            count_topics(self.subscribers, resolved.topics, by_regex=1)

    def after(self, old: ConsumerMember, new: ConsumerMember) -> SubscriberCounts:
        """Return the subscribers of each topic after `old` has become `new`."""
        subscribers = dict(self.subscribers)
        count_topics(subscribers, old.topics, by_name=-1)
        count_topics(subscribers, new.topics, by_name=1)
        if old.regex and old.regex != new.regex and self.regexes.get(old.regex) == 1:
            resolved = self.resolved.get(old.regex)
            if resolved is not None:
                count_topics(subscribers, resolved.topics, by_regex=-1)
        return subscribers

    def without(self, members: Iterable[ConsumerMember], regexes: Iterable[str]) -> SubscriberCounts:
        """Return the subscribers of each topic after these members and regular expressions have gone."""
        subscribers = dict(self.subscribers)
        for member in members:
            count_topics(subscribers, member.topics, by_name=-1)
        for regex in regexes:
            resolved = self.resolved.get(regex)
            if resolved is not None:
                count_topics(subscribers, resolved.topics, by_regex=-1)
        return subscribers

    def preferred_assignor(
        self, default: str, old: ConsumerMember | None = None, new: ConsumerMember | None = None
    ) -> str:
        """Return the assignor that most members ask for. If several have the most votes, the first in the order of
        Java's HashMap wins. That is the assignor of `new` if no other member asks for it, because HashMap.compute adds
        at the head of a bucket, and the two assignors always share a bucket."""
        votes = dict(self.assignors)
        if old is not None:
            _count(votes, old.assignor, -1)
        order = hash_map_order(votes, java_hash)
        if new is not None:
            if new.assignor and new.assignor not in votes:
                order.insert(0, new.assignor)
            _count(votes, new.assignor, 1)
        return max(order, key=votes.__getitem__) if votes else default

    def supports_classic(self, names: Iterable[str]) -> bool:
        """Return True if all classic members support one of these protocols."""
        return any(self.classic_protocols.get(name, 0) == self.classic_count for name in names)


def count_topics(subscribers: SubscriberCounts, topics: Iterable[str], *, by_name: int = 0, by_regex: int = 0) -> None:
    for topic in topics:
        names, regexes = subscribers.get(topic, (0, 0))
        counts = (names + by_name, regexes + by_regex)
        if counts[0] > 0 or counts[1] > 0:
            subscribers[topic] = counts
        else:
            subscribers.pop(topic, None)


def _count(counts: dict[str, int], name: str | None, change: int) -> None:
    if name:
        count = counts.get(name, 0) + change
        if count > 0:
            counts[name] = count
        else:
            counts.pop(name, None)
