"""kafka-producer-perf-test and kafka-consumer-perf-test: their options, their lines, and their records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from kafka import KafkaConsumer

from pykbroker.testing import Broker
from pykbroker.tools.kafka import consumer_perf_test
from pykbroker.tools.kafka.__main__ import main
from pykbroker.tools.kafka.consumer_perf_test import Rebalances, whole_name
from pykbroker.tools.kafka.java_dates import date_format
from pykbroker.tools.kafka.java_text import java_fixed, java_ratio
from pykbroker.tools.kafka.perf_report import Read, print_metrics
from pykbroker.tools.kafka.perf_sending import parts_of
from pykbroker.tools.kafka.send_stats import SendStats
from pykbroker.tools.kafka.tool_options import Accepted, Options

SEND = ["--topic", "t", "--num-records", "3", "--throughput", "-1", "--bootstrap-server", "localhost:1"]
SIZED = [*SEND, "--record-size", "1"]
READ = ["--topic", "t", "--num-records", "1", "--bootstrap-server", "localhost:1", "--hide-header"]
HEADER = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec"
#: 2023-11-14 22:13:20 UTC; no time zone has another minute or second
MOMENT = 1_700_000_000.046


def ended(tool: str, words: list[str]) -> int:
    try:
        return main([tool, *words])
    except SystemExit as end:
        return int(end.code or 0)


# -- the lines of the producer ----------------------------------------------------------------------------------------


def test_the_last_line_of_the_producer_is_of_whole_milliseconds() -> None:
    stats = SendStats(4, 1000, 5000, lambda _: None)
    for latency in (1, 2, 3, 10):
        stats.record(latency, 1 << 20, 1500)
    assert stats.total_line(3000) == (
        "4 records sent, 2.000000 records/sec (2.00 MB/sec), 4.00 ms avg latency, 10.00 ms max latency, "
        "3 ms 50th, 10 ms 95th, 10 ms 99th, 10 ms 99.9th."
    )


def test_the_producer_prints_a_line_for_each_interval() -> None:
    lines: list[str] = []
    stats = SendStats(9, 0, 1000, lines.append)
    for now in (400, 1000, 1999, 2000):
        stats.record(now // 100, 1 << 20, now)
    assert lines == [
        "2 records sent, 2.0 records/sec (2.00 MB/sec), 7.0 ms avg latency, 10.0 ms max latency.",
        "2 records sent, 2.0 records/sec (2.00 MB/sec), 19.5 ms avg latency, 20.0 ms max latency.",
    ]


def test_the_steady_state_says_once_that_it_has_begun() -> None:
    lines: list[str] = []
    whole, steady = (SendStats(9, 0, 100, lines.append, is_steady=is_steady) for is_steady in (False, True))
    whole.silence()
    for stats in (whole, steady):
        stats.record(1, 1, 100)
        stats.record(1, 1, 200)
    assert [line.split(",")[0] for line in lines] == ["In steady state.", "1 records sent", "1 records sent"]
    assert steady.total_line(1000).startswith("2 steady state records sent, 2.000000 records/sec")


def test_a_run_without_an_acknowledgement_has_no_average() -> None:
    line = SendStats(2, 0, 5000, lambda _: None).total_line(1000)
    assert line == (
        "0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN ms avg latency, 0.00 ms max latency, "
        "0 ms 50th, 0 ms 95th, 0 ms 99th, 0 ms 99.9th."
    )


def test_java_rounds_a_half_away_from_zero_and_divides_by_zero() -> None:
    assert [java_fixed(value, 1) for value in (0.25, 0.05, -0.25, 1e9)] == ["0.3", "0.1", "-0.3", "1000000000.0"]
    assert [java_fixed(java_ratio(amount, 0), 4) for amount in (0, 1, -1)] == ["NaN", "Infinity", "-Infinity"]


@pytest.mark.parametrize(
    ("text", "delimiter", "parts"),
    [
        ("a\nbb\nccc\n", "\n", ["a", "bb", "ccc"]),
        ("\n\na\n\nb\n\n", "\n", ["", "a", "", "b", ""]),
        ("\n", "\n", []),
        ("a\nbb\nccc\n", "b+", ["a\n", "\nccc\n"]),
        ("a\nb", "", ["a", "\n", "b"]),
    ],
)
def test_a_payload_file_is_parted_as_a_scanner_of_java_does(text: str, delimiter: str, parts: list[str]) -> None:
    assert list(parts_of(text, re.compile(delimiter))) == parts


def test_metrics_are_printed_in_the_table_of_apache_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    class Named:
        group, name, tags = "g", "n", {"client-id": "c", "topic": "t"}

    class Metric:
        def value(self) -> float:
            return 1.5

    print_metrics({Named(): Metric()})
    assert capsys.readouterr().out.splitlines() == [
        "",
        "Metric Name                  Value",
        "g:n:{client-id=c, topic=t} : 1.500",
    ]


# -- the lines of the consumer ----------------------------------------------------------------------------------------


def test_the_row_of_the_consumer() -> None:
    row = consumer_perf_test.total_row(Read(4, 4 << 20), 1000, 3000, 1000, date_format("s.S"))
    assert row == "1.0, 3.0, 4.0000, 2.0000, 4, 2.0000, 1000, 1000, 4.0000, 4.0000"


def test_the_row_of_an_interval_has_sums_and_the_rates_since_the_last_row() -> None:
    row = consumer_perf_test.interval_row(Read(6, 3 << 20), Read(2, 1 << 20), 1000, 3000, 0, date_format("s"))
    assert row == "3, 0, 3.0000, 1.0000, 6, 2.0000, 0, 2000, 1.0000, 2.0000"
    row = consumer_perf_test.interval_row(Read(6, 3 << 20), Read(2, 1 << 20), 1000, 3000, 2000, date_format("s"))
    assert row.endswith(", 2000, 0, 0.0000, 0.0000")


def test_rebalance_time_is_the_time_without_partitions() -> None:
    rebalances = Rebalances(1000)
    rebalances.revoked([], 1010)
    rebalances.assigned([], 1100)
    rebalances.assigned(["a", "b"], 1200)
    rebalances.revoked(["a"], 1300)
    rebalances.assigned(["a"], 1400)
    assert rebalances.total_ms == 200
    rebalances.revoked(["a", "b"], 1500)
    rebalances.assigned(["b"], 1550)
    assert rebalances.total_ms == 250


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("yyyy-yy-y-yyyyy", "2023-23-2023-02023"),
        ("MM M MMM MMMM", "11 11 Nov November"),
        ("m mm s ss", "13 13 20 20"),
        ("S SS SSSSS", "46 46 00046"),
        ("'at' ''ss'' 'o''clock' :,;", "at '20' o'clock :,;"),
        ("", ""),
    ],
)
def test_dates_are_written_by_patterns_of_java(pattern: str, written: str, utc: None) -> None:
    assert date_format(pattern)(MOMENT) == written


def test_days_and_hours_are_of_local_time(utc: None) -> None:
    assert date_format("d dd H HHH")(MOMENT) == "14 14 22 022"


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import time

    with monkeypatch.context() as changed:
        changed.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("pattern", "refusal"),
    [
        ("yyyy b", "Illegal pattern character 'b'"),
        ("yyyy 'x", "Unterminated quote"),
        ("EEE", "The pattern letter 'E' of --date-format is not supported by pykbroker"),
    ],
)
def test_another_pattern_is_refused(pattern: str, refusal: str) -> None:
    with pytest.raises(ValueError, match=re.escape(refusal)):
        date_format(pattern)


@pytest.mark.parametrize(
    ("pattern", "name", "does_match"),
    [("a.", "ab", True), ("a", "ab", False), ("a|ab", "ab", True), ("(?i)A.", "ab", True), ("a", "a\n", False)],
)
def test_a_pattern_is_of_the_whole_name(pattern: str, name: str, does_match: bool) -> None:
    assert bool(re.compile(whole_name(pattern)).match(name)) is does_match


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (SEND, "one of the arguments --record-size --payload-file --payload-monotonic is required"),
        ([*SIZED, "--payload-monotonic"], "argument --payload-monotonic: not allowed with argument --record-size"),
        ([*SIZED, "--num-records", "0"], "--num-records should be greater than zero."),
        ([*SIZED, "--num-records", "x"], "argument --num-records: could not convert 'x' to Long"),
        ([*SEND, "--record-size", "0"], "--record-size should be greater than zero."),
        ([*SEND, "--record-size", "2147483648"], "could not convert '2147483648' to Integer"),
        ([*SIZED, "--warmup-records", "3"], "must be strictly fewer than the number of records in the test"),
        ([*SIZED, "--transaction-duration-ms", "0"], "--transaction-duration-ms should be greater than zero."),
        ([*SIZED, "--reporting-interval", "0"], "--reporting-interval should be greater than zero."),
        ([*SIZED, "--bogus"], "unrecognized arguments: '--bogus'"),
        ([*SIZED[2:]], "argument --topic is required"),
        (SIZED[:6] + SIZED[8:], "At least one of --bootstrap-server, --command-property, --producer-props, "),
        ([*SIZED, "--command-property", "a=b=c"], "Invalid property: a=b=c"),
        ([*SIZED, "--command-property", "a="], "Invalid property: a="),
        ([*SIZED, "--command-property", "a=1", "--producer-props", "a=1"], "cannot be specified together."),
        ([*SIZED, "--transactional-id", "x", "--command-property", "acks=1"], "Cannot set a transactional.id without"),
        ([*SEND, "--payload-file", "/nowhere"], "File does not exist or empty file provided."),
    ],
)
def test_the_producer_refuses(words: list[str], refusal: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("producer-perf-test", words) == 1
    assert refusal in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (READ[:4], 'Missing required argument "[bootstrap-server]"'),
        ([*READ, "--include", "t"], "Exactly one of the following arguments is required: [topic], [include]"),
        ([*READ, "--messages", "1"], "Exactly one of the following arguments is required: [messages], [num-records]"),
        ([*READ, "--fetch-size", "x"], "Cannot parse argument 'x' of option fetch-size"),
        ([*READ, "--consumer.config", "a", "--command-config", "b"], "can't be used with option"),
        ([*READ, "--command-config", "/nowhere"], "/nowhere"),
    ],
)
def test_the_consumer_refuses(words: list[str], refusal: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("consumer-perf-test", words) == 1
    assert refusal in capsys.readouterr().err


def test_an_optional_number_is_taken_if_it_is_one() -> None:
    options = Options("", [Accepted("timeout", "", "ms", int, "7", is_optional=True)])
    taken = [options.parse(["--timeout", *rest]).integer("timeout") for rest in ([], ["x"], ["-1"], ["5"])]
    assert taken == [7, 7, -1, 5]


# -- both on a broker -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def values(servers: str, topic: str, count: int, **settings: object) -> list[bytes]:
    """Return the values of the first `count` records of a topic."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings
    )
    with consumer:
        return [record.value for record in islice(consumer, count)]


@pytest.mark.slow
def test_what_one_sends_the_other_reads(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--bootstrap-server", servers, "--topic", "load"]
    words = ["--num-records", "50", "--record-size", "20", "--throughput", "-1", "--producer-props", "acks=1",
             f"bootstrap.servers={servers}"]  # fmt: skip
    assert main(["producer-perf-test", "--topic", "load", *words]) == 0
    deprecated, line = capsys.readouterr().out.splitlines()
    assert deprecated.startswith("Option --producer-props has been deprecated")
    assert line.startswith("50 records sent, ")
    assert main(["consumer-perf-test", *at, "--messages", "50", "--group", "readers"]) == 0
    deprecated, header, row = capsys.readouterr().out.splitlines()
    assert deprecated == "Warning: --messages is deprecated. Use --num-records instead."
    assert header.startswith(f"start.time, end.time, {HEADER}")
    assert row.split(", ")[4] == "50"
    # The group has committed its offsets.
    again = ["--num-records", "1", "--timeout", "1", "--hide-header", "--date-format", "'d'"]
    assert main(["consumer-perf-test", *at, "--group", "readers", *again]) == 0
    warning, row = capsys.readouterr().out.splitlines()
    assert warning.startswith("WARNING: Exiting before consuming the expected number of records: timeout (1 ms)")
    assert row.startswith("d, d, 0.0000, 0.0000, 0, ")


@pytest.mark.slow
def test_detailed_rows_of_the_topics_of_a_pattern(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    for topic in ("many-a", "many-b", "many-more"):
        sent = ["--topic", topic, "--num-records", "5", "--payload-monotonic", "--throughput", "-1"]
        assert main(["producer-perf-test", *sent, "--bootstrap-server", servers]) == 0
    capsys.readouterr()
    wanted = ["--include", "many-.", "--num-records", "10", "--show-detailed-stats", "--reporting-interval", "1"]
    assert main(["consumer-perf-test", "--bootstrap-server", servers, *wanted]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.startswith(f"time, threadId, {HEADER}")
    assert rows
    assert all(re.fullmatch(r"[\d :-]+, 0(, -?[\d.]+){8}", row) for row in rows)


@pytest.mark.slow
def test_from_latest_reads_no_record_of_before(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    sent = ["--topic", "old", "--num-records", "5", "--payload-monotonic", "--throughput", "-1"]
    assert main(["producer-perf-test", *sent, "--bootstrap-server", servers]) == 0
    words = ["--topic", "old", "--num-records", "1", "--from-latest", "--timeout", "500", "--hide-header"]
    capsys.readouterr()
    assert main(["consumer-perf-test", "--bootstrap-server", servers, *words]) == 0
    assert capsys.readouterr().out.splitlines()[1].split(", ")[4] == "0"


def send(servers: str, topic: str, *words: str) -> int:
    return main(["producer-perf-test", "--bootstrap-server", servers, "--topic", topic, "--throughput", "-1", *words])


@pytest.mark.slow
def test_payloads_of_a_file_and_numbers(servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "payloads").write_text("one,two,snow ❄")
    words = ["--payload-file", str(tmp_path / "payloads"), "--payload-delimiter", ","]
    assert send(servers, "filed", "--num-records", "40", *words) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [f"Reading payloads from: {tmp_path / 'payloads'}", "Number of records read: 3"]
    assert {value.decode() for value in values(servers, "filed", 40)} == {"one", "two", "snow ❄"}
    assert send(servers, "counted", "--num-records", "4", "--payload-monotonic", "--warmup-records", "1") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("Warmup first 1 records. Steady state results will print after ")
    assert [line.split(",")[0] for line in said[1:]] == ["4 records sent", "3 steady state records sent"]
    assert values(servers, "counted", 4) == [b"0", b"1", b"2", b"3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["--transactional-id", "mine"], ["--transaction-duration-ms", "1"],
              ["--command-property", "transactional.id=theirs"]],
)  # fmt: skip
def test_transactions_are_committed(servers: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    topic = f"in-{words[0].strip('-')}"
    assert send(servers, topic, "--num-records", "30", "--payload-monotonic", *words) == 0
    assert capsys.readouterr().out.startswith("30 records sent, ")
    assert values(servers, topic, 30, isolation_level="read_committed") == [b"%d" % each for each in range(30)]
    assert main(["transactions", "--bootstrap-server", servers, "list"]) == 0
    listed = capsys.readouterr().out
    assert re.search({"--transactional-id": r"^mine\s", "--command-property": r"^theirs\s"}.get(
        words[0], r"^performance-producer-[\w-]{22}\s"), listed, re.M)  # fmt: skip


@pytest.mark.slow
def test_a_record_that_is_too_large_is_said_and_not_counted(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert send(servers, "large", "--num-records", "2", "--record-size", "1500000") == 0
    told = capsys.readouterr()
    assert told.out.startswith("0 records sent, ")
    assert len(re.findall("is 1500088 bytes when serialized", told.err)) == 2


@pytest.mark.parametrize("tool", ["producer-perf-test", "consumer-perf-test"])
def test_metrics_are_of_the_client(servers: str, tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert send(servers, "measured", "--num-records", "4", "--payload-monotonic", "--print-metrics") == 0
    if tool == "consumer-perf-test":
        capsys.readouterr()
        read = ["--topic", "measured", "--num-records", "4", "--print-metrics"]
        assert main([tool, "--bootstrap-server", servers, *read]) == 0
    assert re.search(rf":\w[\w-]+:{{client-id=perf-{tool.split('-')[0]}-client}} +: \d+\.\d{{3}}$",
                     capsys.readouterr().out, re.M)  # fmt: skip
