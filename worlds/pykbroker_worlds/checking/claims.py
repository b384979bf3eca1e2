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
from pykbroker_worlds.checking.conversations import Assigned
from pykbroker_worlds.checking.evidence import Did, Evidence, Fact, Records, Source
from pykbroker_worlds.history.events import Place, place_name


@dataclass(frozen=True, slots=True)
class Wrong:
    """A claim does not hold: what is wrong in one word, a sentence, and the facts about it. `may_come` is True if time
    alone may mend it."""

    kind: str
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
        there = {fact.key for fact in evidence.facts(self.done)}
        missing = [fact for fact in evidence.facts(self.each) if fact.key not in there]
        return _missing(missing, self.done, evidence) or _no_topic(self.each, evidence)


@dataclass(frozen=True, slots=True)
class NothingLost:
    """Each fact of `acknowledged` is in `kept` at the end: nothing is lost that the application takes as stored."""

    acknowledged: Source
    kept: Source

    def judge(self, evidence: Evidence) -> Wrong | None:
        there = {fact.key for fact in evidence.facts(self.kept)}
        lost = [fact for fact in evidence.facts(self.acknowledged) if fact.key not in there]
        if not lost:
            return _no_topic(self.kept, evidence)
        text = f"{lost[0].key!r} was acknowledged and is not in {self.kept}{_others(lost)}"
        # A new leader shows records some time after it has them, and a transaction its own after its end.
        return Wrong("lost", text, (lost[0],), may_come=True)


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """Each key of `each` is done once, and nothing else is done."""

    each: Source
    done: Source

    def judge(self, evidence: Evidence) -> Wrong | None:
        wanted, done = evidence.facts(self.each), evidence.facts(self.done)
        keys = {fact.key for fact in wanted}
        counts = Counter(fact.key for fact in done)
        again = next((fact.key for fact in done if counts[fact.key] > 1), None)
        if again is not None:
            facts = [fact for fact in (*wanted, *done) if fact.key == again]
            text = f"{self.done}: {again!r} {counts[again]} times, and once is right"
            return Wrong("again", text, tuple(facts))
        unknown = [fact for fact in done if fact.key not in keys and evidence.needs_answer(fact)]
        if unknown:
            text = f"{self.done}: {unknown[0].key!r}, which is not in {self.each}{_others(unknown)}"
            return Wrong("unknown", text, (unknown[0],), may_come=True)
        missing = [fact for fact in wanted if fact.key not in counts]
        return _missing(missing, self.done, evidence) or _no_topic(self.each, evidence)


@dataclass(frozen=True, slots=True)
class InOrder:
    """The records of a partition that have the same key, or no key, are done in their order. A repetition
    does not count."""

    each: Records
    done: Did

    def judge(self, evidence: Evidence) -> Wrong | None:
        rank: dict[Any, tuple[int, Fact]] = {}
        for number, fact in enumerate(evidence.facts(self.each)):
            rank.setdefault(fact.key, (number, fact))
        #: by order: the record that is farthest, and what was done for it
        farthest: dict[Any, tuple[int, Fact, Fact]] = {}
        seen = set()
        for done in evidence.facts(self.done):
            if done.key not in rank or done.key in seen:
                continue
            seen.add(done.key)
            number, record = rank[done.key]
            last = farthest.get(record.order)
            if last is not None and number < last[0]:
                text = f"{self.done}: {done.key!r} after {last[1].key!r}, which comes later in {self.each}"
                return Wrong("order", text, (record, last[1], last[2], done))
            farthest[record.order] = number, record, done
        return _no_topic(self.each, evidence)


@dataclass(frozen=True, slots=True)
class OffsetsNotAhead:
    """An offset is committed only when all records in front of it are done. It may be committed in a transaction. A
    commit that the coordinator refused is not judged. If `done` is records, its time is their timestamp."""

    each: Records
    done: Source
    group: str

    def judge(self, evidence: Evidence) -> Wrong | None:
        first: dict[Any, Fact] = {}
        for fact in evidence.facts(self.done):
            first.setdefault(fact.key, fact)
        by_place = _by_place(evidence.facts(self.each))
        offsets = {place: [record.offset for record in records] for place, records in by_place.items()}
        # By partition: when each record, and all that come before it, were done.
        ends: dict[Place, list[float]] = {}
        for place, records in by_place.items():
            latest, row = -math.inf, []
            for record in records:
                latest = max(latest, first[record.key].seconds if record.key in first else math.inf)
                row.append(latest)
            ends[place] = row
        for commit in evidence.commits:
            before = bisect_left(offsets.get(commit.place, []), commit.offset)
            if commit.group != self.group or commit.error or not before:
                continue
            if ends[commit.place][before - 1] <= commit.seconds:
                continue
            ahead = [
                record
                for record in by_place[commit.place][:before]
                if record.key not in first or first[record.key].seconds > commit.seconds
            ]
            text = f"{commit.app} commits {place_name(commit.place)}@{commit.offset} of group {self.group}"
            asked = Fact(None, commit.seconds, text, commit.app, commit.place)
            later = [first[ahead[0].key]] if ahead[0].key in first else []
            told = f"{text}, and {self.done} comes later, or never: {ahead[0].key!r}{_others(ahead)}"
            return Wrong("ahead", told, (ahead[0], asked, *later))
        return _no_topic(self.each, evidence) or _no_group(self.group, evidence)


@dataclass(frozen=True, slots=True)
class NoZombieWrites:
    """No application does something for a record of a partition after the next owner of the partition has begun to.
    Keys that are in several partitions are left out."""

    each: Records
    done: Did
    group: str

    def judge(self, evidence: Evidence) -> Wrong | None:
        records: dict[Any, Fact] = {}
        in_several = set()
        for fact in evidence.facts(self.each):
            if records.setdefault(fact.key, fact).place != fact.place:
                in_several.add(fact.key)
        owners = self._owners(evidence)
        #: by partition and the time of its assignment: what the owner did first
        begun: dict[tuple[Place, float], Fact] = {}
        for done in evidence.facts(self.done):
            record = records.get(done.key)
            if record is None or record.place not in owners or done.key in in_several:
                continue
            place = record.place
            assert place is not None
            row = owners[place]
            index = bisect_right([turn.seconds for turn in row], done.seconds) - 1
            if index < 0:
                continue
            owned = row[index]
            if owned.app == done.app:
                begun.setdefault((place, owned.seconds), done)
                continue
            first = begun.get((place, owned.seconds))
            if first is None:
                continue
            named = place_name(place)
            text = f"{owned.app} gets {named} in generation {owned.generation} of group {self.group}"
            given = Fact(None, owned.seconds, text, owned.app, place)
            told = f"{done.app} {self.done} {done.key!r} of {named}, which belongs to {owned.app} by then"
            return Wrong("zombie", told, (record, given, first, done))
        return _no_topic(self.each, evidence) or _no_group(self.group, evidence)

    def _owners(self, evidence: Evidence) -> dict[Place, list[Assigned]]:
        """Return the assignments of each partition in order. One of an earlier generation, which a member gets that was
        held up, gives it nothing."""
        owners: dict[Place, list[Assigned]] = {}
        for turn in evidence.assignments:
            if turn.group == self.group:
                for place in turn.places:
                    row = owners.setdefault(place, [])
                    if not row or row[-1].generation <= turn.generation:
                        row.append(turn)
        return owners


@dataclass(frozen=True, slots=True)
class Followed:
    """Each fact of `first` is followed by exactly one of `then` with the same key, within this virtual time: "60s", or
    milliseconds. The time of a record is its timestamp."""

    first: Source
    then: Source
    within: str | float

    @property
    def within_seconds(self) -> float:
        return duration_ms(self.within) / 1000

    def judge(self, evidence: Evidence) -> Wrong | None:
        first, then = _by_key(evidence.facts(self.first)), _by_key(evidence.facts(self.then))
        waiting: Wrong | None = None
        for key, asked in first.items():
            answers = then.get(key, [])
            if len(answers) > len(asked):
                text = f"{self.then}: {key!r} {len(answers)} times, and {len(asked)} is right"
                return Wrong("again", text, (*asked, *answers))
            for number, fact in enumerate(asked):
                end = fact.seconds + self.within_seconds
                if number < len(answers):
                    answer = answers[number]
                    # Timestamps of records are whole milliseconds.
                    if answer.seconds < fact.seconds - 0.001:
                        return Wrong("early", f"{self.then}: {key!r} came before {self.first}", (fact, answer))
                    if answer.seconds > end + 0.001:
                        text = f"{self.then}: {key!r} came too late, {self.within} were allowed"
                        return Wrong("late", text, (fact, answer))
                elif evidence.needs_answer(fact):
                    is_over = evidence.seconds > end
                    text = f"{self.then}: {key!r} did not come" + (f" within {self.within}" if is_over else " yet")
                    found = Wrong("missing", text, (fact,), may_come=not is_over)
                    if is_over:
                        return found
                    waiting = waiting or found
        return waiting or _no_topic(self.first, evidence)


def _missing(missing: Sequence[Fact], done: Source, evidence: Evidence) -> Wrong | None:
    missing = [fact for fact in missing if evidence.needs_answer(fact)]
    if not missing:
        return None
    return Wrong("missing", f"{done}: {missing[0].key!r} is missing{_others(missing)}", (missing[0],), may_come=True)


def _no_topic(source: Source, evidence: Evidence) -> Wrong | None:
    """A claim about a topic that does not exist judges nothing."""
    if not isinstance(source, Records) or evidence.has_topic(source.topic):
        return None
    return Wrong("no topic", f"there is no topic {source.topic!r}", (), may_come=True)


def _no_group(group: str, evidence: Evidence) -> Wrong | None:
    if evidence.knows_group(group):
        return None
    text = f"no application was a member of group {group!r} or committed for it"
    return Wrong("no group", text, (), may_come=True)


def _others(facts: Sequence[Fact]) -> str:
    return f" (and {len(facts) - 1} more)" if len(facts) > 1 else ""


def _by_key(facts: Iterable[Fact]) -> dict[Any, list[Fact]]:
    found: dict[Any, list[Fact]] = {}
    for fact in sorted(facts, key=lambda fact: fact.seconds):
        found.setdefault(fact.key, []).append(fact)
    return found


def _by_place(facts: Iterable[Fact]) -> dict[Place, list[Fact]]:
    found: dict[Place, list[Fact]] = {}
    for fact in facts:
        assert fact.place is not None
        found.setdefault(fact.place, []).append(fact)
    return found
