"""Moves of partitions as kafka-reassign-partitions reads, proposes and prints them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from pykbroker.tools.cluster.json_input import parsed_json, partitions_of, repeated
from pykbroker.tools.cluster.replicas_on_disk import ReplicaName

_ANY_DIRECTORY: Final = "any"


class WantedMoves(NamedTuple):
    """The content of a reassignment file: the brokers of each partition, and the directories of replicas, as far as the
    file has them."""

    replicas: dict[tuple[str, int], list[int]]
    directories: dict[ReplicaName, str]


def wanted_moves(text: str) -> WantedMoves:
    """Read a reassignment file. Raises ValueError with Kafka's text."""
    found = WantedMoves({}, {})
    entries = partitions_of(parsed_json(text), "replicas")
    if not entries:
        raise ValueError("Partition reassignment list cannot be empty")
    if twice := repeated([(topic, number) for topic, number, _ in entries]):
        raise ValueError(f"Partition reassignment contains duplicate topic partitions: {','.join(twice)}")
    for topic, number, entry in entries:
        replicas = [int(broker) for broker in entry["replicas"]]
        if not replicas:
            raise ValueError("Partition replica list cannot be empty")
        if len(set(replicas)) < len(replicas):
            again = sorted({broker for broker in replicas if replicas.count(broker) > 1})
            raise ValueError(
                "Partition replica lists may not contain duplicate entries: "
                f"{topic}-{number} contains multiple entries for {','.join(map(str, again))}"
            )
        directories = entry.get("log_dirs", [_ANY_DIRECTORY] * len(replicas))
        if len(directories) != len(replicas):
            raise ValueError(
                f"Size of replicas list {replicas} is different from size of log dirs list {directories} for "
                f"partition {topic}-{number}"
            )
        found.replicas[topic, number] = replicas
        for broker, directory in zip(replicas, directories, strict=True):
            if directory != _ANY_DIRECTORY:
                found.directories[ReplicaName(topic, number, broker)] = str(directory)
    return found


def topics_to_move(text: str) -> list[str]:
    """Return the names in a file of --topics-to-move-json-file. Raises ValueError."""
    value = parsed_json(text)
    if not isinstance(value, dict) or not isinstance(value.get("topics"), list):
        raise ValueError("Missing topics field")
    names = [str(entry["topic"]) for entry in value["topics"] if isinstance(entry, dict) and "topic" in entry]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"List of topics to reassign contains duplicate entries: [{', '.join(twice)}]")
    return names


def brokers_of(text: str) -> list[int]:
    """Return the brokers of --broker-list. Raises ValueError."""
    brokers = [int(broker) for broker in text.split(",")]
    twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
    if twice:
        raise ValueError(f"Broker list contains duplicate entries: [{', '.join(map(str, twice))}]")
    return brokers


def as_json(
    assignment: Mapping[tuple[str, int], Sequence[int]], directories: Mapping[ReplicaName, str | None] | None = None
) -> str:
    """Return the file that --execute takes. A replica without an entry in `directories` may be in any directory."""
    lies_in = directories or {}
    partitions: list[dict[str, Any]] = [
        {
            "topic": topic,
            "partition": number,
            "replicas": list(assignment[topic, number]),
            "log_dirs": [
                lies_in.get(ReplicaName(topic, number, broker)) or _ANY_DIRECTORY
                for broker in assignment[topic, number]
            ],
        }
        for topic, number in sorted(assignment)
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def proposed(
    current: Mapping[tuple[str, int], Sequence[int]], racks: Mapping[int, str | None], chance: Random
) -> dict[tuple[str, int], list[int]]:
    """Spread each topic's partitions over these brokers, with as many replicas as before. If every broker has a rack,
    spread them over the racks too. Raises ValueError if there are too few brokers."""
    found: dict[tuple[str, int], list[int]] = {}
    brokers = _by_rack_in_turn(racks)
    for topic in sorted({name for name, _ in current}):
        numbers = sorted(number for name, number in current if name == topic)
        size = len(current[topic, numbers[0]])
        if size > len(brokers):
            raise ValueError(f"Replication factor: {size} larger than available brokers: {len(brokers)}")
        start = chance.randrange(len(brokers))
        for place, number in enumerate(numbers):
            # In each round over the brokers, the followers are at another distance from the first replica.
            step = 1 + (place // len(brokers)) % max(1, len(brokers) - 1) if _has_no_racks(racks) else 1
            first = start + place
            replicas = [brokers[first % len(brokers)]]
            position = first + step
            while len(replicas) < size:
                broker = brokers[position % len(brokers)]
                if broker not in replicas:
                    replicas.append(broker)
                position += 1
            found[topic, number] = replicas
    return found


def _has_no_racks(racks: Mapping[int, str | None]) -> bool:
    return any(rack is None for rack in racks.values())


def _by_rack_in_turn(racks: Mapping[int, str | None]) -> list[int]:
    """Return the brokers in an order in which neighbours have different racks where that is possible."""
    if _has_no_racks(racks):
        return sorted(racks)
    waiting: dict[str, list[int]] = {}
    for broker in sorted(racks):
        waiting.setdefault(racks[broker] or "", []).append(broker)
    ordered: list[int] = []
    while any(waiting.values()):
        for rack in sorted(waiting):
            if waiting[rack]:
                ordered.append(waiting[rack].pop(0))
    return ordered
