"""kafka-console-share-consumer, kafka-share-consumer-perf-test and kafka-verifiable-share-consumer, theirs and ours."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from compat_tests.our_tools.both import BothTools, two_names
from compat_tests.our_tools.test_both_perf import first_error
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.tool_server import Ended, shared
from compat_tests.topics import Topics
from pykbroker.tools.cluster import configs
from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterSettings
from testkit.clients import NOW_MS, Record
from testkit.oracle.kafka import NEWEST, kafka_libs

COUNT = 20
EVERYTHING = [
    word
    for part in ("key", "headers", "offset", "partition", "epoch", "timestamp", "delivery")
    for word in ("--formatter-property", f"print.{part}=true")
]


@pytest.fixture(scope="module")
def queue(both: BothTools, topics: Topics) -> str:
    """A topic of one partition, so that records come in their order."""
    name = topics.create()
    records = [Record(b"k", b"%d" % number, (("h", b"x"),), NOW_MS + number, 0) for number in range(COUNT)]
    ConfluentClient().produce(both.bootstrap, name, records)
    return name


@pytest.fixture
def groups(both: BothTools) -> dict[str, tuple[str, str]]:
    """A group for each tool, which begins with the first record."""
    names = two_names("g")
    with AskedCluster(ClusterSettings((both.bootstrap,))) as cluster:
        for group in names["‹g›"]:
            changes = configs.changes_of({"share.auto.offset.reset": "earliest"})
            configs.alter(cluster, (configs.ResourceKind.GROUP, group), changes)
    return names


def test_both_print_and_acknowledge_the_same(both: BothTools, queue: str, groups: dict[str, tuple[str, str]]) -> None:
    base = ["--topic", queue, "--group", "‹g›", "--timeout-ms", "30000", "--max-messages"]

    def printed(count: int, *words: str) -> list[str]:
        read = both.agree("console-share-consumer", *base, str(count), *words, names=groups)
        assert (read.status, read.err) == (0, f"Processed a total of {count} messages")
        return read.out.splitlines()

    every = [str(number) for number in range(COUNT)]
    assert len(printed(COUNT, "--release", *EVERYTHING)) == COUNT
    assert printed(3, "--reject") == every[:3]
    assert printed(4) == every[3:7]
    assert printed(2, "--release") == every[7:9]
    assert printed(COUNT - 7) == every[7:]
    rest = [*base[:4], "--timeout-ms", "1500"]
    empty = both.agree("console-share-consumer", *rest, names=groups)
    assert (empty.status, empty.out) == (0, "")
    assert "org.apache.kafka.common.errors.TimeoutException" in empty.err


def test_both_reject_what_they_cannot_print(both: BothTools, queue: str, groups: dict[str, tuple[str, str]]) -> None:
    base = ["--topic", queue, "--group", "‹g›", "--timeout-ms", "30000", "--max-messages", str(COUNT)]
    longs = ["--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer"]
    for words in ([], ["--reject-message-on-error"]):
        theirs, mine = both.each("console-share-consumer", *base, *longs, *words, names=groups)
        assert (mine.status, mine.out) == (theirs.status, theirs.out)
        assert totals(mine) == totals(theirs)
    assert totals(mine) == [f"Processed a total of {COUNT} messages"]
    both.agree("console-share-consumer", *base[:4], "--timeout-ms", "1500", names=groups)


def totals(ended: Ended) -> list[str]:
    return [line for line in ended.err.splitlines() if line.startswith("Processed a total of ")]


READ = ["--topic", "never-made"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        READ,
        [*READ, "--reject", "--release"],
        [*READ, "--bogus"],
        [*READ, "--topic"],
        [*READ, "--consumer-property", "a=b", "--command-property", "a=b"],
        [*READ, "--consumer-config", "x", "--command-config", "x"],
        [*READ, "--property", "a=b", "--formatter-property", "a=b"],
        [*READ, "--consumer-config", "/nowhere"],
        [*READ, "--group", "a", "--command-property", "group.id=b"],
    ],
)
def test_the_console_refuses_with_the_same_words(both: BothTools, words: list[str]) -> None:
    theirs, mine = both.each("console-share-consumer", *words, where=words != READ)
    said, expected = ((ended.status, ended.out, told(ended)) for ended in (mine, theirs))
    assert said == expected
    assert said[0] == 1


def told(ended: Ended) -> str:
    """Return the refusal, without the order in which Apache Kafka takes group ids from a hash set."""
    return re.sub(r"Detectedgroupids:.*", "", first_error(ended.err))


PERFORMANCE = [*READ, "--num-records", "1"]


@pytest.mark.parametrize(
    "words",
    [
        READ,
        PERFORMANCE[2:],
        [*PERFORMANCE, "--messages", "1"],
        [*PERFORMANCE, "--consumer.config", "x", "--command-config", "x"],
        [*PERFORMANCE, "--bogus"],
        [*READ, "--num-records", "x"],
        [*PERFORMANCE, "--fetch-size", "x"],
        [*PERFORMANCE, "--date-format", "bogus"],
        [*PERFORMANCE, "--command-config", "/nowhere", "--hide-header"],
    ],
)
def test_the_performance_tool_refuses_with_the_same_words(both: BothTools, words: list[str]) -> None:
    theirs, mine = both.each("share-consumer-perf-test", *words)
    said, expected = ((ended.status, ended.out, first_error(ended.err)) for ended in (mine, theirs))
    assert said == expected
    assert said[0] == 1


@pytest.mark.parametrize("tool", ["console-share-consumer", "share-consumer-perf-test"])
def test_both_have_the_same_options(both: BothTools, tool: str) -> None:
    theirs, mine = both.each(tool, "--help", where=False)
    assert (mine.status, bool(mine.out)) == (theirs.status, bool(theirs.out))
    options, expected = (
        set(re.findall(r"^(--[\w.-]+)(?=[ \n])", ended.out + ended.err, re.M)) for ended in (mine, theirs)
    )
    assert options == expected
    assert len(options) > 14


def test_both_measure_the_same(both: BothTools, queue: str, groups: dict[str, tuple[str, str]]) -> None:
    words = ["--topic", queue, "--group", "‹g›", "--messages", str(COUNT), "--date-format", "'at'"]
    theirs, mine = both.each("share-consumer-perf-test", *words, "--show-consumer-stats", names=groups)
    assert (mine.status, without_rates(mine.out)) == (theirs.status, without_rates(theirs.out))
    assert mine.out.splitlines()[-1].split(", ")[5] == str(COUNT)


def without_rates(text: str) -> str:
    return re.sub(
        r", (?:\d+\.\d+|NaN|Infinity), (?:\d+\.\d+|NaN|Infinity), (\d+), \d+$", r", N, N, \1, N", text, flags=re.M
    )


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_both_print_the_same_events(both: BothTools, queue: str, groups: dict[str, tuple[str, str]], mode: str) -> None:
    words = ["--topic", queue, "--group-id", "‹g›", "--max-messages", str(COUNT), "--verbose"]
    how = ["--acknowledgement-mode", mode, "--offset-reset-strategy", "earliest"]
    theirs, mine = both.each("verifiable-share-consumer", *words, *how, names=groups)
    assert mine.status == theirs.status == 0
    shapes, expected = (shapes_of(ended.out) for ended in (mine, theirs))
    assert shapes == expected
    assert set(range(COUNT)) == shapes["offsets_acknowledged"][-1]


@pytest.mark.parametrize(
    ("pattern", "counts"),
    [
        ("accept,reject", {"ACCEPT": COUNT // 2, "REJECT": COUNT // 2}),
        ("renew,accept", {"ACCEPT": COUNT, "RENEW": COUNT // 2}),
    ],
)
def test_a_pattern_of_acknowledgements_is_that_of_4_4(
    pattern: str, counts: dict[str, int], both: BothTools, queue: str, groups: dict[str, tuple[str, str]]
) -> None:
    kafka_libs(NEWEST)
    most = str(sum(counts.values()))
    words = ["--topic", queue, "--group-id", "‹g›", "--max-messages", most, "--acknowledgement-mode", "sync"]
    newest = BothTools(both.bootstrap, shared(NEWEST))
    theirs, mine = newest.each("verifiable-share-consumer", *words, "--ack-pattern", pattern, names=groups)
    assert mine.status == theirs.status == 0
    ours, expected = (
        sum((Counter(json.loads(line).get("ackTypeCounts", {})) for line in ended.out.splitlines()), Counter[str]())
        for ended in (mine, theirs)
    )
    assert ours == expected == counts
    assert shapes_of(mine.out) == shapes_of(theirs.out)


def shapes_of(text: str) -> dict[str, list[Any]]:
    """Return for each event its keys, those of its partitions, and the offsets that all events of this name have."""
    found: dict[str, list[Any]] = {}
    for line in text.splitlines():
        event = json.loads(line)
        parts = event.get("partitions", [])
        _, _, offsets = found.setdefault(event["name"], [list(event), [list(part) for part in parts[:1]], set()])
        offsets.update(offset for part in parts for offset in part["offsets"])
        offsets.update([event["offset"]] if "offset" in event else [])
    return found
