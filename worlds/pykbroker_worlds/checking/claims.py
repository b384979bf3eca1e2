"""Claims about applications, as values: `world.must(ExactlyOnce(Records("orders"), Did("billed")))`.

Each claim compares facts of two sources by their keys, and returns what is wrong, or None. Responsible for what right
means. Not responsible for when it is asked (judge.py), nor for telling what happened (story.py).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pykbroker.testing.clock import duration_ms
from pykbroker_worlds.checking.conversations import Assigned, Place
from pykbroker_worlds.checking.evidence import Did, Evidence, Fact, Records, Source


@dataclass(frozen=True, slots=True)
class Wrong:
    """A claim does not hold: a sentence, the facts about it, and True if time alone may mend it."""

    text: str
    facts: tuple[Fact, ...]
    may_come: bool = False


class Claim(Protocol):
    """Something that must hold. `judge` returns the first thing that is wrong."""

    def judge(self, evidence: Evidence) -> Wrong | None: ...


@dataclass(frozen=True, slots=True)
class AtLeastOnce:
    """Each fact of `each` has a fact of `done` with the same key, at the end at the latest."""

    each: Source
    done: Source

    def judge(self, evidence: Evidence) -> Wrong | None:
        there = {fact.key for fact in self.done.facts(evidence)}
        missing = [fact for fact in self.each.facts(evidence) if fact.key not in there]
        return _missing(missing, self.done, evidence)


@dataclass(frozen=True, slots=True)
class NothingLost:
    """Each effect of `acknowledged` is in `kept`, at once: nothing is lost that the application takes as stored."""

    acknowledged: Source
    kept: Source

    def judge(self, evidence: Evidence) -> Wrong | None:
        there = {fact.key for fact in self.kept.facts(evidence)}
        lost = [fact for fact in self.acknowledged.facts(evidence) if fact.key not in there]
        if not lost:
            return None
        return Wrong(f"{lost[0].key!r} was acknowledged and is lost{_others(lost)}: {self.kept}", (lost[0],))


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """Each key of `each` is done once, and nothing else is done."""

    each: Source
    done: Source

    def judge(self, evidence: Evidence) -> Wrong | None:
        wanted, done = self.each.facts(evidence), self.done.facts(evidence)
        keys = {fact.key for fact in wanted}
        counts = Counter(fact.key for fact in done)
        again = [fact for fact in done if counts[fact.key] > 1]
        if again:
            key = again[0].key
            facts = [fact for fact in (*wanted, *done) if fact.key == key]
            times = counts[key]
            return Wrong(f"{self.done}: {key!r} {times} times, and once is right", tuple(facts))
        unknown = [fact for fact in done if fact.key not in keys]
        if unknown:
            text = f"{self.done}: {unknown[0].key!r}, which is not in {self.each}{_others(unknown)}"
            return Wrong(text, (unknown[0],), may_come=not isinstance(self.each, Records))
        return _missing([fact for fact in wanted if fact.key not in counts], self.done, evidence)


@dataclass(frozen=True, slots=True)
class InOrder:
    """The records of one key, or of one partition where they have no key, are done in their order. A record that is
    done again counts where it was done first."""

    each: Records
    done: Source

    def judge(self, evidence: Evidence) -> Wrong | None:
        rank: dict[Any, tuple[int, Fact]] = {}
        for number, fact in enumerate(self.each.facts(evidence)):
            rank.setdefault(fact.key, (number, fact))
        #: by order: the record that is farthest, and what was done for it
        farthest: dict[Any, tuple[int, Fact, Fact]] = {}
        seen = set()
        for done in self.done.facts(evidence):
            if done.key not in rank or done.key in seen:
                continue
            seen.add(done.key)
            number, record = rank[done.key]
            last = farthest.get(record.order)
            if last is not None and number < last[0]:
                text = f"{self.done}: {done.key!r} after {last[1].key!r}, which comes later in {self.each}"
                return Wrong(text, (record, last[1], last[2], done))
            farthest[record.order] = number, record, done
        return None


@dataclass(frozen=True, slots=True)
class OffsetsNotAhead:
    """No offset is committed outside of a transaction before all records in front of it are done."""

    each: Records
    done: Did
    group: str

    def judge(self, evidence: Evidence) -> Wrong | None:
        first: dict[Any, float] = {}
        for fact in self.done.facts(evidence):
            first.setdefault(fact.key, fact.seconds)
        by_place = _by_place(self.each.facts(evidence))
        # By partition: when each record, and all that come before it, were done.
        ends: dict[Place, list[float]] = {}
        for place, records in by_place.items():
            latest, row = -math.inf, []
            for record in records:
                latest = max(latest, first.get(record.key, math.inf))
                row.append(latest)
            ends[place] = row
        for commit in evidence.commits:
            records = by_place.get(commit.place, [])
            before = bisect_left([record.offset for record in records], commit.offset)
            if commit.group != self.group or not before or ends[commit.place][before - 1] <= commit.seconds:
                continue
            ahead = [record for record in records[:before] if first.get(record.key, math.inf) > commit.seconds]
            topic, partition = commit.place
            text = f"{commit.app} commits {topic}-{partition}@{commit.offset} of group {self.group}"
            asked = Fact(None, commit.seconds, text, commit.app, commit.place)
            later = [fact for fact in self.done.facts(evidence) if fact.key == ahead[0].key][:1]
            told = f"{text}, and {self.done} comes later, or never: {ahead[0].key!r}{_others(ahead)}"
            return Wrong(told, (ahead[0], asked, *later))
        return None


@dataclass(frozen=True, slots=True)
class NoZombieWrites:
    """No application does something for a record of a partition after the next owner of the partition has begun to."""

    each: Records
    done: Did
    group: str

    def judge(self, evidence: Evidence) -> Wrong | None:
        records: dict[Any, Fact] = {}
        for fact in self.each.facts(evidence):
            records.setdefault(fact.key, fact)
        #: by partition: since when it belongs to whom, in which generation
        owners: dict[Place, list[Assigned]] = {}
        for turn in evidence.assignments:
            if turn.group == self.group:
                for place in turn.places:
                    owners.setdefault(place, []).append(turn)
        #: by partition and the time of its assignment: what the owner did first
        begun: dict[tuple[Place, float], Fact] = {}
        for done in self.done.facts(evidence):
            record = records.get(done.key)
            if record is None or record.place is None or record.place not in owners:
                continue
            row = owners[record.place]
            index = bisect_right([turn.seconds for turn in row], done.seconds) - 1
            if index < 0:
                continue
            owned = row[index]
            if owned.app == done.app:
                begun.setdefault((record.place, owned.seconds), done)
                continue
            first = begun.get((record.place, owned.seconds))
            if first is None:
                continue
            topic, partition = record.place
            text = f"{owned.app} gets {topic}-{partition} in generation {owned.generation} of group {self.group}"
            given = Fact(None, owned.seconds, text, owned.app, record.place)
            told = f"{done.app} {self.done} {done.key!r} of {topic}-{partition}, which belongs to {owned.app} by then"
            return Wrong(told, (record, given, first, done))
        return None


@dataclass(frozen=True, slots=True)
class Followed:
    """Each fact of `first` is followed by exactly one of `then` with the same key, within this virtual time: "60s", or
    milliseconds."""

    first: Source
    then: Source
    within: str | float

    def judge(self, evidence: Evidence) -> Wrong | None:
        limit = duration_ms(self.within) / 1000
        answers: dict[Any, list[Fact]] = {}
        for fact in self.then.facts(evidence):
            answers.setdefault(fact.key, []).append(fact)
        waiting: Wrong | None = None
        for fact in self.first.facts(evidence):
            found = answers.get(fact.key, [])
            if len(found) > 1:
                return Wrong(f"{self.then}: {fact.key!r} {len(found)} times, and once is right", (fact, *found))
            if found and found[0].seconds <= fact.seconds + limit:
                continue
            if not found and evidence.seconds < fact.seconds + limit:
                waiting = waiting or Wrong(f"{self.then}: {fact.key!r} has not come yet", (fact,), may_come=True)
                continue
            late = "too late" if found else "never"
            return Wrong(f"{self.then}: {fact.key!r} came {late}, {self.within} were allowed", (fact, *found))
        return waiting


def _missing(missing: Sequence[Fact], done: Source, evidence: Evidence) -> Wrong | None:
    missing = [fact for fact in missing if fact.seconds <= evidence.until]
    if not missing:
        return None
    return Wrong(f"{done}: {missing[0].key!r} is missing{_others(missing)}", (missing[0],), may_come=True)


def _others(facts: Sequence[Fact]) -> str:
    return f" (and {len(facts) - 1} more)" if len(facts) > 1 else ""


def _by_place(facts: Iterable[Fact]) -> dict[Place, list[Fact]]:
    found: dict[Place, list[Fact]] = {}
    for fact in facts:
        assert fact.place is not None
        found.setdefault(fact.place, []).append(fact)
    return found
