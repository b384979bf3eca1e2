"""kafka-get-offsets: print the offsets of partitions at an end or at a time."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.kafka.reach import BOOTSTRAP, COMMAND_CONFIG, begun, exit_status, opened
from pykbroker.tools.kafka.tool_options import Accepted, Given, Options
from pykbroker.tools.kafka.topic_filter import topic_pattern

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster

_TIMES: Final = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_RULE: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
Wants = Callable[[str, int], bool]

OPTIONS = Options(
    "An interactive shell for getting topic-partition offsets.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("exclude-internal-topics", "Leave internal topics out."),
        Accepted("partitions", "Only these partitions.", "0,1,..."),
        Accepted(
            "time", "A time in milliseconds, latest (-1), earliest (-2) and so on to -6.", "time", default="latest"
        ),
        Accepted("topic", "A regular expression of the topics.", "topic"),
        Accepted("topic-partitions", "Patterns topic:1, topic:0-3, topic:5-, topic:-3, topic.", "patterns"),
    ],
)


def run(words: Sequence[str]) -> int:
    given = begun(OPTIONS, words, "bootstrap-server")

    def work() -> None:
        wants, timestamp = filter_of(given), timestamp_of(given.text("time") or "")
        with opened(given) as cluster:
            _print_offsets(cluster, wants, timestamp, excludes_internal=given.has("exclude-internal-topics"))

    return exit_status(work, "Error occurred: ")


def _print_offsets(cluster: AskedCluster, wants: Wants, timestamp: int, *, excludes_internal: bool) -> None:
    from pykbroker.tools.cluster import log_offsets, topics

    places = [
        (topic.name, number)
        for topic in topics.listed(cluster)
        if not (excludes_internal and topic.is_internal)
        for number in topic.partitions
        if wants(topic.name, number)
    ]
    if not places:
        raise ValueError("Could not match any topic-partitions with the specified filters")
    told = log_offsets.found(cluster, dict.fromkeys(places, timestamp))
    # Apache Kafka's tool sorts the numbers of partitions as text.
    for (topic, number), found in sorted(told.items(), key=lambda one: (one[0][0], str(one[0][1]))):
        if isinstance(found, AskFailed):
            print(f"Skip getting offsets for topic-partition {topic}:{number} due to error: {found}", file=sys.stderr)
        elif found.offset >= 0:
            print(f"{topic}:{number}:{found.offset}")


def timestamp_of(written: str) -> int:
    """Return a time in milliseconds, or the number that stands for an end of the log. Raises ValueError."""
    if written in _TIMES:
        return _TIMES[written]
    try:
        return int(written)
    except ValueError:
        raise ValueError(
            f"Malformed time argument {written}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / "
            "-4 or earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format "
            "timestamp"
        ) from None


def filter_of(given: Given) -> Wants:
    """Return the filter of partitions that the options describe. Raises ValueError."""
    patterns = given.text("topic-partitions")
    if patterns is not None:
        if given.has("topic") or given.has("partitions"):
            raise ValueError("--topic-partitions cannot be used with --topic or --partitions")
        rules = [_rule(text) for text in patterns.split(",")]
        return lambda topic, number: any(rule(topic, number) for rule in rules)
    name = given.text("topic")
    pattern = topic_pattern(name) if name is not None else None
    written = given.text("partitions")
    numbers = None
    if written:
        try:
            numbers = {int(text) for text in written.split(",")}
        except ValueError:
            raise ValueError(
                f"--partitions expects a comma separated list of numeric partition ids, but received: {written}"
            ) from None
    return lambda topic, number: (
        (pattern is None or pattern.fullmatch(topic) is not None) and (numbers is None or number in numbers)
    )


def _rule(text: str) -> Wants:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError(f"Invalid rule specification: {text}")
    pattern = topic_pattern(found[1]) if found[1] else re.compile(".*")
    exact, lower, upper = found.group(2, 3, 4)
    if exact:
        least, behind = int(exact), int(exact) + 1
    else:
        least = int(lower) if lower else 0
        behind = int(upper) if upper else sys.maxsize
    return lambda topic, number: pattern.fullmatch(topic) is not None and least <= number < behind
