"""The options of a read, parsed: the names, defaults and rules of Spark's Kafka source, and the directories.

Pure. Responsible for the request of one read. Not responsible for the data on the disk (directories.py, ranges.py).

Invariants: an unknown option is refused. Only the `kafka.*` options in `_HONOURED` change what is read. The others are
kept by name for one log line (never by value, because some are secrets).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from enum import Enum

from pyspark_pykbroker.faults import WrongOption

TopicPartition = tuple[str, int]
Offsets = Mapping[TopicPartition, int]

#: Spark's numbers for them in JSON.
LATEST = -1
EARLIEST = -2

#: One task reads about this much. A task costs a Python worker 0.1 s of CPU, as much as 100 MB of a log.
DEFAULT_SPLIT_BYTES = 512 * 1024 * 1024
DEFAULT_ROWS = 20_000

#: Topics that a pattern does not match, as for a consumer.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_STRATEGIES = ("subscribe", "subscribepattern", "assign")
_OWN = {
    "path",
    "directories",
    *_STRATEGIES,
    "startingoffsets",
    "endingoffsets",
    "startingtimestamp",
    "endingtimestamp",
    "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
    "minpartitions",
    "maxrecordsperpartition",
    "maxoffsetspertrigger",
    "failondataloss",
    "includeheaders",
    "isolation.level",
    "splitbytes",
    "rowsperbatch",
}
#: They control how the Kafka source asks a broker, and this source asks none.
_WITHOUT_EFFECT = {
    "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
    "groupidprefix",
    "kafkaconsumer.polltimeoutms",
    "maxtriggerdelay",
    "minoffsetspertrigger",
}
_HONOURED = {"kafka.isolation.level"}


class Isolation(Enum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions of a read; exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: frozenset[TopicPartition] = frozenset()

    def topics_of(self, known: set[str]) -> list[str]:
        """Return the topics to read, in order. Raises WrongOption for a topic that does not exist."""
        if self.pattern:
            matches = re.compile(self.pattern).fullmatch
            return sorted(topic for topic in known - INTERNAL_TOPICS if matches(topic))
        wanted = set(self.topics) | {topic for topic, _ in self.partitions}
        if missing := sorted(wanted - known):
            raise WrongOption(
                f"no directory has a partition of {', '.join(missing)}: name every directory of log.dirs, "
                "and look for the topic with `ls`"
            )
        return sorted(wanted)

    def without(self, topics: Set[str], partitions: Set[TopicPartition]) -> Subscription:
        """Return the same without these missing topics and partitions. A pattern needs no change."""
        named = tuple(topic for topic in self.topics if topic not in topics)
        return replace(self, topics=named, partitions=self.partitions - partitions)


@dataclass(frozen=True, slots=True)
class Limit:
    """One end of a read: EARLIEST or LATEST for all, an offset or one of these two for each partition, a timestamp (ms)
    for all, or one for each partition."""

    everywhere: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp: int | None = None
    timestamps: Mapping[TopicPartition, int] | None = None

    @property
    def named(self) -> set[TopicPartition] | None:
        """The partitions that it names; None if it is for all."""
        by_partition = self.offsets if self.offsets is not None else self.timestamps
        return set(by_partition) if by_partition is not None else None

    def without(self, keys: Set[TopicPartition]) -> Limit:
        """Return the same without some missing partitions."""
        return replace(self, offsets=_without(self.offsets, keys), timestamps=_without(self.timestamps, keys))


def _without(numbers: Offsets | None, keys: Set[TopicPartition]) -> Offsets | None:
    return None if numbers is None else {key: number for key, number in numbers.items() if key not in keys}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    directories: tuple[str, ...]
    subscription: Subscription
    starting: Limit
    ending: Limit
    #: a starting timestamp that no record reaches means the end, instead of an error
    latest_without_match: bool = False
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    include_headers: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int = 0
    max_records_per_partition: int = 0
    max_offsets_per_trigger: int = 0
    split_bytes: int = DEFAULT_SPLIT_BYTES
    rows_per_batch: int = DEFAULT_ROWS
    #: names of options that were accepted and have no effect
    without_effect: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
        """Raises WrongOption. Names are compared without regard to case, as in Spark."""
        options = {key.lower(): value for key, value in given.items()}
        kafka = {key for key in options if key.startswith("kafka.")}
        if unknown := sorted(options.keys() - _OWN - _WITHOUT_EFFECT - kafka):
            raise WrongOption(f"unknown options: {', '.join(unknown)} (docs/segments.md lists those that there are)")
        if "isolation.level" in options and "kafka.isolation.level" in options:
            raise WrongOption("give isolation.level or kafka.isolation.level, not both")
        isolation = options.get("isolation.level", options.get("kafka.isolation.level", "read_uncommitted"))
        try:
            level = Isolation(isolation.strip().lower())
        except ValueError:
            raise WrongOption(f"isolation.level is read_uncommitted or read_committed, not {isolation!r}") from None
        strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
        if strategy not in ("error", "latest"):
            raise WrongOption(f"startingOffsetsByTimestampStrategy is error or latest, not {strategy!r}")
        return cls(
            directories=_directories(options),
            subscription=_subscription(options),
            starting=_limit(options, "starting", LATEST if streaming else EARLIEST, None if streaming else LATEST),
            ending=_limit(options, "ending", LATEST, EARLIEST),
            latest_without_match=strategy == "latest",
            isolation=level,
            include_headers=_flag(options, "includeHeaders", False),
            fail_on_data_loss=_flag(options, "failOnDataLoss", True),
            min_partitions=_number(options, "minPartitions", 0),
            max_records_per_partition=_number(options, "maxRecordsPerPartition", 0),
            max_offsets_per_trigger=_number(options, "maxOffsetsPerTrigger", 0),
            split_bytes=_number(options, "splitBytes", DEFAULT_SPLIT_BYTES),
            rows_per_batch=_number(options, "rowsPerBatch", DEFAULT_ROWS),
            without_effect=tuple(sorted((kafka - _HONOURED) | (options.keys() & _WITHOUT_EFFECT))),
        )


def _directories(options: Mapping[str, str]) -> tuple[str, ...]:
    found = [text for text in (options.get("path"), options.get("directories")) if text]
    if len(found) != 1:
        raise WrongOption("give the data directories (those of log.dirs, with commas) once: as path or as directories")
    directories = tuple(part.strip().removeprefix("file://") for part in found[0].split(","))
    if not all(directories):
        raise WrongOption(f"an empty name between the commas of {found[0]!r}")
    if remote := [each for each in directories if re.match(r"[a-z0-9]+://", each)]:
        raise WrongOption(f"{remote[0]}: only directories of a file system that every executor has mounted can be read")
    return directories


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in _STRATEGIES if name in options]
    if len(given) != 1:
        raise WrongOption(f"one of subscribe, subscribePattern and assign is needed, {len(given)} are given")
    text = options[given[0]].strip()
    if given[0] == "subscribepattern":
        try:
            re.compile(text)
        except re.error as error:
            raise WrongOption(f"subscribePattern {text!r}: {error}") from None
        found = Subscription(pattern=text)
    elif given[0] == "subscribe":
        found = Subscription(topics=tuple(topic.strip() for topic in text.split(",") if topic.strip()))
    else:
        assigned = _json("assign", text)
        partitions: set[TopicPartition] = set()
        for topic, numbers in assigned.items():
            if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
                raise WrongOption('assign looks like {"topic": [0, 1]}')
            partitions |= {(topic, number) for number in numbers}
        found = Subscription(partitions=frozenset(partitions))
    if found == Subscription():
        raise WrongOption(f"{given[0]} names nothing")
    return found


def _limit(options: Mapping[str, str], which: str, default: int, refused: int | None) -> Limit:
    """Return one end. The options are looked up in Spark's order: timestamp, offsets by timestamp, offsets."""
    if (text := options.get(f"{which}timestamp")) is not None:
        return Limit(timestamp=_timestamp(f"{which}Timestamp", text))
    if (text := options.get(f"{which}offsetsbytimestamp")) is not None:
        name = f"{which}OffsetsByTimestamp"
        return Limit(timestamps={key: _timestamp(name, value) for key, value in _by_partition(name, text).items()})
    text = options.get(f"{which}offsets", "").strip()
    if not text:
        return Limit(everywhere=default)
    words = {"earliest": EARLIEST, "latest": LATEST}
    if (word := words.get(text.lower())) is not None:
        if word == refused:
            raise WrongOption(f"{which}Offsets cannot be {text}")
        return Limit(everywhere=word)
    offsets = _by_partition(f"{which}Offsets", text)
    for (topic, partition), offset in offsets.items():
        if offset == refused or offset < EARLIEST:
            raise WrongOption(f"{which}Offsets: {topic}-{partition} cannot be {offset}")
    return Limit(offsets=offsets)


def _json(name: str, text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise WrongOption(f"{name} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise WrongOption(f"{name} is no JSON object: {text!r}")
    return found


def _by_partition(name: str, text: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json(name, text).items():
        if not isinstance(numbers, dict):
            raise WrongOption(name + ' looks like {"topic": {"0": 23, "1": -2}}')
        for partition, number in numbers.items():
            if not partition.isdigit() or not isinstance(number, int) or isinstance(number, bool):
                raise WrongOption(f"{name}: {partition!r}: {number!r} of {topic} is no partition and number")
            found[topic, int(partition)] = number
    return found


def _timestamp(name: str, value: object) -> int:
    try:
        timestamp = int(str(value))
    except ValueError:
        raise WrongOption(f"{name} is a number of milliseconds, not {value!r}") from None
    if timestamp < 0:
        raise WrongOption(f"{name} is a number of milliseconds since 1970, not {timestamp}")
    return timestamp


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    if not text.strip().isdigit() or not int(text):
        raise WrongOption(f"{name} is a number above zero, not {text!r}")
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise WrongOption(f"{name} is true or false, not {text!r}")
    return text == "true"
