"""A failure as a story: what is wrong, who did what when, in Kafka's words, and the last state of the cluster.

Responsible for the choice of lines: what belongs to the failure is few lines among thousands. Not responsible for
finding the failure (claims.py).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from pykbroker.coordinator.transaction.records import Transaction
from pykbroker.runtime.later import Later
from pykbroker_wire.messages.list_groups import ListedGroup
from pykbroker_worlds.checking.claims import Claim, Wrong
from pykbroker_worlds.checking.conversations import Conversations
from pykbroker_worlds.checking.evidence import Effect
from pykbroker_worlds.checking.leaders import Leaders
from pykbroker_worlds.history.events import Place, place_name
from pykbroker_worlds.simulated.sim_cluster import SimCluster

#: Seconds before the first and after the last fact whose conversations are told.
_AROUND_SECONDS: Final = 15.0
#: The first and the last lines are told, if there are more.
_MOST_LINES: Final = 60

_LONGEST_ANSWER_SECONDS: Final = 10.0

#: virtual seconds, who, what
Line = tuple[float, str, str]


def story_of(
    claim: Claim,
    wrong: Wrong,
    events: Sequence[Line],
    effects: Sequence[Effect],
    conversations: Conversations,
    leaders: Leaders,
    state: Sequence[str],
) -> str:
    """Return the story of something wrong.

    `events`: what happened to brokers, applications and network, in order. `effects`: what applications did. `state`:
    lines about the end of the run.
    """
    lines = [wrong.text, f"  as {claim}", "", "what happened:"]
    lines += [f"  {line}" for line in _shortened(_lines(wrong, events, effects, conversations, leaders))]
    lines += ["", "at the end:", *(f"  {line}" for line in state)]
    return "\n".join(lines)


class _Row(NamedTuple):
    seconds: float
    #: rows of one moment are in this order
    rank: int
    who: str
    text: str
    is_commit: bool = False


def _lines(
    wrong: Wrong,
    events: Sequence[Line],
    effects: Sequence[Effect],
    conversations: Conversations,
    leaders: Leaders,
) -> Iterator[str]:
    facts = wrong.facts
    places = {fact.place for fact in facts if fact.place is not None}
    apps = {fact.app for fact in facts if fact.app is not None}
    first = min((fact.seconds for fact in facts), default=0.0) - _AROUND_SECONDS
    last = max((fact.seconds for fact in facts), default=0.0) + _AROUND_SECONDS
    if wrong.may_come:
        last = math.inf  # it was awaited to the end
    rows = [_Row(seconds, 0, who, text) for seconds, who, text in events]
    rows += [
        _Row(one.seconds, 1, one.app, one.text, one.is_commit)
        for one in conversations.answers
        # The application that had a record is known only by its partition.
        if first <= one.seconds <= last and (one.app in apps or places & one.places)
    ]
    rows += [
        _Row(one.seconds, 1, place_name(one.place), one.text)
        for one in leaders.changes
        if first <= one.seconds <= last and one.place in places
    ]
    rows += [_Row(fact.seconds, 2, "!", fact.text) for fact in facts]
    # Something else that was done about the same keys, for example that an order was refused.
    keys, known = {fact.key for fact in facts}, {fact.text for fact in facts}
    for effect in effects:
        text = f"{effect.app} {effect.what} {effect.key!r}"
        if effect.key in keys and effect.key is not None and text not in known:
            rows.append(_Row(effect.seconds, 2, "!", text))
    rows.sort(key=lambda row: row[:2])
    for index, row in enumerate(rows):
        following = rows[index + 1] if index + 1 < len(rows) else row
        # The last one of several commits in a row says everything.
        if not (row.is_commit and following.is_commit and following.who == row.who) or following is row:
            yield f"{row.seconds:10.3f}  {row.who:12}  {row.text}"


def _shortened(lines: Iterable[str]) -> list[str]:
    told = list(lines)
    half = _MOST_LINES // 2
    if len(told) <= _MOST_LINES:
        return told
    marked = [line for line in told[half:-half] if "  !  " in line or "fault " in line]
    left = len(told) - 2 * half - len(marked)
    return [*told[:half], f"  … {left} lines are left out", *marked, *told[-half:]]


# -- the state of the cluster -----------------------------------------------------------------------------------------


async def last_state(cluster: SimCluster, conversations: Conversations) -> list[str]:
    """Return lines about groups, transactions and partitions, as the brokers know them now."""
    lines = []
    for node in cluster.brokers.values():
        if not node.runs:
            continue
        services = node.node.services
        try:
            async with asyncio.timeout(_LONGEST_ANSWER_SECONDS):
                _, groups = await _now(services.groups.list_groups([], []))
                _, transactions = await _now(services.transactions.list_transactions(None, [], -1))
        except TimeoutError:
            lines.append(f"the coordinators of broker {node.number} do not answer")
            continue
        lines += [_of_group(group, conversations) for group in groups]
        lines += [_of_transaction(name, found) for name, found in transactions]
    return [*sorted(lines), *_of_partitions(cluster)]


async def _now(value: Later[Any]) -> Any:
    return await value if isinstance(value, asyncio.Future) else value


def _of_group(group: ListedGroup, conversations: Conversations) -> str:
    owners: dict[str, str] = {}
    for one in conversations.assignments:
        if one.group == group.group_id:
            places = ", ".join(place_name(place) for place in sorted(one.places)) or "nothing"
            owners[one.app] = f"{one.app} was last given {places} (generation {one.generation})"
    committed: dict[Place, int] = {}
    for commit in conversations.commits:
        if commit.group == group.group_id and commit.error == 0:
            committed[commit.place] = commit.offset
    offsets = ", ".join(f"{place_name(place)}@{offset}" for place, offset in sorted(committed.items()))
    parts = [f"{group.group_state}", *(owners[app] for app in sorted(owners))]
    if offsets:
        parts.append(f"committed {offsets}")
    return f"group {group.group_id}: {'; '.join(parts)}"


def _of_transaction(name: str, found: Transaction) -> str:
    places = ", ".join(f"{topic}-{index}" for topic, index in sorted(tuple(place) for place in found.partitions))
    producer = f"producer {found.producer_id}:{found.epoch}"
    return f"transactional id {name}: {found.state.name}, {producer}" + (f", {places}" if places else "")


def _of_partitions(cluster: SimCluster) -> Iterator[str]:
    for node in cluster.brokers.values():
        if not node.up:
            continue
        image = node.node.loader.image
        for partition in sorted(node.led(), key=lambda one: (one.topic, one.index)):
            topic = image.topics.by_name.get(partition.topic)
            known = None if topic is None else topic.partitions.get(partition.index)
            if partition.topic.startswith("__") or known is None:
                continue
            log = partition.log_if_open
            if log is None:
                yield f"partition {partition}: leader {node.number}, its log is not open"
                continue
            yield (
                f"partition {partition}: leader {node.number}, ISR {sorted(known.isr)}, "
                f"high watermark {log.high_watermark}, end {log.log_end_offset}"
            )
