"""The regular expressions of a consumer group: finds their topics between its heartbeats (KIP-848).

Responsible for when they are resolved, for which topics a member may see, and for the records of resolved expressions.
Not responsible for what a pattern matches (regex.py), nor for the group epoch (consumer_heartbeat.py).

They are resolved after the answer of the heartbeat, in slices. A timer without delay runs each slice. The next
heartbeat uses the topics that were found.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from pykbroker.coordinator.group.consumer.consumer_group import ConsumerGroup
from pykbroker.coordinator.group.consumer.consumer_member import ConsumerMember, ResolvedRegex
from pykbroker.coordinator.group.consumer.consumer_records import regex_record, regex_tombstone
from pykbroker.coordinator.group.consumer.regex import compile_pattern, resolve_in_slices
from pykbroker.coordinator.group.consumer.subscriptions import SubscriberCounts, count_topics
from pykbroker.coordinator.group.consumer.timer_keys import regex_timer
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.result import Result

#: Regular expressions of a group are resolved at most this often.
_MIN_INTERVAL_MS: Final = 10_000

ResolvingSteps = Generator[None, None, dict[str, frozenset[str]]]


class RegexChange(NamedTuple):
    changed: bool = False
    #: the topics of the new expression are known, so that it may be counted at once
    resolved: bool = False


class FoundTopics(NamedTuple):
    #: the number of subscribers of each topic, with the topics that were found
    subscribers: SubscriberCounts
    changed: bool


class RegexResolving:
    """The regular expressions of one group at one input. It lives as long as the input."""

    __slots__ = ("_due", "_group", "_now_ms", "_result", "_settings", "_topics")

    def __init__(
        self, group: ConsumerGroup, settings: GroupSettings, topics: GroupTopics, now_ms: int, result: Result
    ) -> None:
        self._group = group
        self._settings = settings
        self._topics = topics
        self._now_ms = now_ms
        self._result = result
        #: the work, and a function that returns True for topics that the client may see; the work starts once this
        #: input can no longer be refused
        self._due: tuple[ResolvingSteps, Callable[[str], bool]] | None = None

    def update(
        self, member: ConsumerMember, updated: ConsumerMember, may_describe: Callable[[str], bool]
    ) -> RegexChange:
        """Note that the member becomes `updated`, which may have another regular expression. All expressions of the
        group may be due again."""
        group = self._group
        old, new = member.regex, updated.regex
        change = RegexChange()
        due = False
        if old != new:
            change = RegexChange(changed=True)
            if old and group.subscriptions.regexes.get(old) == 1:
                self._result.records.append(regex_tombstone(group.group_id, old))
            if new:
                if new not in group.subscriptions.regexes:
                    compile_pattern(new)
                    due = True
                elif new in group.subscriptions.resolved:
                    change = RegexChange(changed=True, resolved=True)
            elif old:
                change = RegexChange(changed=True, resolved=True)
        if (not due and not group.subscriptions.regexes) or group.resolving:
            return change
        last = next(iter(group.subscriptions.resolved.values()), None)
        age_ms = 0 if last is None else self._settings.jumps().age_ms(self._now_ms, last.timestamp_ms)
        if last is not None and age_ms <= _MIN_INTERVAL_MS:
            return change
        wanted = dict(group.subscriptions.regexes)
        if old:
            wanted[old] = wanted.get(old, 0) - 1
        if new:
            wanted[new] = wanted.get(new, 0) + 1
        regexes = [regex for regex, count in wanted.items() if count > 0]
        due = (
            due
            or len(regexes) != len(group.subscriptions.resolved)
            or last is None
            or last.metadata_offset < self._topics.new_topics_offset
            or age_ms > self._settings.consumer_regex_refresh_interval_ms
        )
        if due and regexes:
            self._due = resolve_in_slices(regexes, list(self._topics.names())), may_describe
        return change

    def start(self) -> None:
        """Start the work that `update` found due. Call it as the last step of an input. If the input were refused after
        this, the timer would be lost and `resolving` would stay."""
        if self._due is not None:
            self._result.set_timer(regex_timer(self._group.group_id), 0, self._due)
            self._group.resolving = True

    def resolve(self, slices: ResolvingSteps, may_describe: Callable[[str], bool]) -> FoundTopics | None:
        """Do one slice of the work. Return the topics after the last slice, otherwise None."""
        group = self._group
        try:
            next(slices)
        except StopIteration as end:
            group.resolving = False
            return self._resolved(end.value, may_describe)
        self._result.set_timer(regex_timer(group.group_id), 0, (slices, may_describe))
        return None

    def _resolved(self, found: dict[str, frozenset[str]], may_describe: Callable[[str], bool]) -> FoundTopics:
        group = self._group
        subscribers = dict(group.subscriptions.subscribers)
        bump = False
        for regex, names in found.items():
            if regex not in group.subscriptions.regexes:
                continue
            topics = frozenset(name for name in names if may_describe(name))
            before = group.subscriptions.resolved.get(regex)
            known = frozenset() if before is None else before.topics
            if topics != known:
                bump = True
                count_topics(subscribers, known, by_regex=-1)
                count_topics(subscribers, topics, by_regex=1)
            resolved = ResolvedRegex(topics, self._topics.offset, self._now_ms)
            self._result.records.append(regex_record(group.group_id, regex, resolved))
        return FoundTopics(subscribers, bump)
