"""kafka-producer-perf-test and kafka-consumer-perf-test: the same lines, refusals and statuses as Apache Kafka's."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from compat_tests.node import Node
from compat_tests.our_tools.both import BothTools, Printed, ours, two_names
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics

SEND = ["--topic", "never-made", "--num-records", "3", "--throughput", "-1"]
SIZED = [*SEND, "--record-size", "1"]
READ = ["--topic", "never-made", "--num-records", "1"]

PRODUCER_REFUSALS = [
    SEND,
    [*SIZED, "--payload-monotonic"],
    [*SIZED, "--payload-file", "x"],
    [*SIZED, "--num-records", "0"],
    [*SIZED, "--num-records", "x"],
    [*SEND, "--record-size", "0"],
    [*SEND, "--record-size", "2147483648"],
    [*SIZED, "--throughput", "x"],
    [*SIZED, "--warmup-records", "3"],
    [*SIZED, "--transaction-duration-ms", "0"],
    [*SIZED, "--reporting-interval", "0"],
    [*SIZED, "--bogus"],
    [*SIZED, "word"],
    [*SIZED, "--topic"],
    [*SIZED, "--command-property"],
    SIZED[2:],
    ["--record-size", "5"],
    [*SIZED, "--command-property", "acks=1", "--producer-props", "acks=1"],
    [*SIZED, "--command-config", "x", "--producer.config", "x"],
    [*SIZED, "--command-property", "word"],
    [*SIZED, "--command-property", "a=b=c"],
    [*SIZED, "--command-config", "/nowhere"],
    [*SEND, "--payload-file", "/nowhere"],
    [*SIZED, "--transactional-id", "x", "--command-property", "acks=1"],
]
CONSUMER_REFUSALS = [
    READ[:2],
    READ[2:],
    [*READ, "--include", "x"],
    [*READ, "--messages", "1"],
    [*READ, "--consumer.config", "x", "--command-config", "x"],
    [*READ, "--bogus"],
    [*READ, "--topic", "other"],
    [*READ[:2], "--num-records", "x"],
    [*READ, "--fetch-size", "x"],
    [*READ, "--timeout=x"],
    [*READ, "--reporting-interval", "0"],
    [*READ, "--reporting-interval", "x"],
    [*READ, "--date-format", "bogus"],
    [*READ, "--date-format", "yyyy 'x", "--show-detailed-stats"],
    [*READ, "--command-config", "/nowhere", "--hide-header"],
    [*READ[2:], "--include", ""],
]


def first_error(err: str) -> str:
    """Return the text of a refusal without spaces, because argparse4j fills its lines with them, and breaks names of
    options."""
    found = re.search(r"^kafka-producer-perf-test:\s+error:(.*)", err, re.M | re.S)
    if found is not None:
        return re.sub(r"\s", "", found[1])
    line = next((line for line in err.splitlines() if line and not line.startswith("[")), "")
    return re.sub(r"\s", "", re.sub(r"^(?:Exception in thread \S+ )?[\w.$]+(?:Exception|Error): ", "", line))


@pytest.mark.parametrize(
    ("tool", "refused"), [("producer-perf-test", PRODUCER_REFUSALS), ("consumer-perf-test", CONSUMER_REFUSALS)]
)
def test_both_refuse_with_the_same_words(both: BothTools, tool: str, refused: list[list[str]]) -> None:
    for words in refused:
        theirs, mine = both.each(tool, *words)
        said, expected = ((ended.status, ended.out, first_error(ended.err)) for ended in (mine, theirs))
        assert said == expected, words
        assert said[0] == 1


@pytest.mark.parametrize("tool", ["producer-perf-test", "consumer-perf-test"])
def test_both_have_the_same_options(both: BothTools, tool: str) -> None:
    theirs, mine = both.each(tool, "--help", where=False)
    assert (mine.status, bool(mine.out)) == (theirs.status, bool(theirs.out))
    options, expected = (
        set(re.findall(r"^ {0,2}(?:-h, )?(--[\w.-]+)(?=[ \n])", ended.out + ended.err, re.M))
        for ended in (mine, theirs)
    )
    assert options == expected
    assert len(options) > 14
    theirs, mine = both.each(tool, where=False)
    assert (mine.status, bool(mine.out)) == (theirs.status, bool(theirs.out))


def test_both_want_to_know_where_the_cluster_is(both: BothTools) -> None:
    for tool, words in (
        ("producer-perf-test", SIZED), ("producer-perf-test", [*SIZED, "--command-property", "acks=1"]),
        ("consumer-perf-test", READ), ("consumer-perf-test", []),
    ):  # fmt: skip
        theirs, mine = both.each(tool, *words, where=False)
        assert (mine.status, first_error(mine.err)) == (theirs.status, first_error(theirs.err)), words


def rates_hidden(text: str) -> str:
    """Return the lines without the values that differ from run to run. The number of windows depends on the machine."""
    lines = re.sub(r"(?<![\w-])(?:-?\d+\.\d+|NaN|Infinity)(?![\w.])|(?<=, )\d+(?= ms)", "N", text).splitlines()
    return "\n".join(line for line in lines if not re.match(r"\d+ records sent, .* max latency\.$", line))


def test_both_send_payloads_of_a_file(both: BothTools, broker: Node, topics: Topics, tmp_path: Path) -> None:
    payloads = tmp_path / "payloads"
    payloads.write_text("\none\n\ntwo\nsnow ❄\n")
    names = {"‹t›": (topics.create(), topics.create())}
    for words in (["--payload-delimiter", "\n+"], [], ["--payload-delimiter", "o"], ["--payload-delimiter", ""]):
        # Each payload is taken by chance, so there are enough records for all of them.
        said = agree(both, "producer-perf-test", "--topic", "‹t›", "--num-records", "600", "--throughput", "-1",
                     "--payload-file", str(payloads), *words, names=names)  # fmt: skip
        assert "Number of records read: " in said.out
    theirs, mine = (Counter(r.value for r in ConfluentClient().consume(broker.bootstrap, t)) for t in names["‹t›"])
    assert theirs.keys() == mine.keys()


def test_both_send_numbers_in_transactions(both: BothTools, broker: Node, topics: Topics) -> None:
    names = {"‹t›": (topics.create(), topics.create()), **two_names("id")}
    said = agree(
        both, "producer-perf-test", "--topic", "‹t›", "--num-records", "300", "--throughput", "300",
        "--payload-monotonic", "--transactional-id", "‹id›", "--transaction-duration-ms", "100", "--warmup-records",
        "50", "--reporting-interval", "200", names=names,
    )  # fmt: skip
    assert [line.split(",")[0] for line in said.out.splitlines()] == [
        "Warmup first 50 records. Steady state results will print after the complete test summary.",
        "In steady state.",
        "300 records sent",
        "250 steady state records sent",
    ]
    theirs, mine = (ConfluentClient().consume(broker.bootstrap, topic) for topic in names["‹t›"])
    assert [r.value for r in theirs] == [r.value for r in mine] == [b"%d" % number for number in range(300)]


def test_both_count_no_record_that_is_too_large(both: BothTools, topic: str) -> None:
    said = agree(both, "producer-perf-test", "--topic", topic, "--num-records", "2", "--record-size", "1500000",
                 "--throughput", "-1")  # fmt: skip
    assert said.out.startswith("0 records sent, ")


def test_both_read_in_a_group(both: BothTools, broker: Node, topics: Topics) -> None:
    names = {"‹t›": (topics.create(partitions=2), topics.create(partitions=2)), **two_names("g")}
    for topic in names["‹t›"]:
        ours("producer-perf-test", ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--num-records", "40",
                                    "--payload-monotonic", "--throughput", "-1"])  # fmt: skip
    dates = ["--date-format", "'at' ''"]
    for wanted, words in (
        ("40", ["--topic", "‹t›"]),
        ("40", ["--include", "‹t›", "--hide-header", "--timeout"]),
        ("0", ["--topic", "‹t›", "--from-latest", "--timeout", "300"]),
        ("0", ["--include", "‹t", "--timeout", "300"]),
        ("0", ["--topic", "‹t›", "--timeout", "-1"]),
        ("40", ["--topic", "‹t›", "--group", "‹g›", "--command-property", "max.poll.records=7"]),
        ("0", ["--topic", "‹t›", "--group", "‹g›", "--timeout", "300", "--socket-buffer-size", "65536"]),
    ):
        said = agree(both, "consumer-perf-test", "--num-records", "40", *dates, *words, names=names)
        row = said.out.splitlines()[-1].split(", ")
        assert row[:2] == ["at '", "at '"]
        assert row[4] == wanted, words
    said = agree(both, "consumer-perf-test", "--messages", "40", "--topic", "‹t›", "--show-detailed-stats", names=names)
    assert said.out.splitlines()[0] == "Warning: --messages is deprecated. Use --num-records instead."
    assert said.out.splitlines()[-1].startswith("time, threadId, ")


def agree(both: BothTools, tool: str, *words: str, names: dict[str, tuple[str, str]] | None = None) -> Printed:
    """Check for the same status and lines of both, except the rates; returns those of ours."""
    theirs, mine = both.each(tool, *words, names=names)
    hidden = [rates_hidden(times_hidden(ended.out)) for ended in (theirs, mine)]
    assert (mine.status, hidden[1]) == (theirs.status, hidden[0]), words
    return Printed(mine.status, re.sub(r"^\d+ records sent, .* max latency\.\n", "", mine.out, flags=re.M), mine.err)


def times_hidden(text: str) -> str:
    """Mask the times in whole milliseconds in rows of the consumer."""
    return re.sub(r"(, [\d.NaInfity]+), -?\d+, -?\d+(, [-\d.NaInfity]+, [-\d.NaInfity]+)$", r"\1, N, N\2", text,
                  flags=re.M)  # fmt: skip
