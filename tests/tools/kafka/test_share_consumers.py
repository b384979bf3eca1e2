"""kafka-console-share-consumer, -verifiable-share-consumer and -share-consumer-perf-test: options, lines and ends."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pykbroker.entry.lost_output import drop_output
from pykbroker.testing import Broker
from pykbroker.tools.cluster import share_groups
from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterSettings
from pykbroker.tools.cluster.delivered_records import DeliveredRecord
from pykbroker.tools.cluster.failure import AskFailed, failed
from pykbroker.tools.cluster.share_group_reader import ShareGroupReader, WantedShare
from pykbroker.tools.cluster.share_member_session import ACCEPT, REJECT, RELEASE
from pykbroker.tools.kafka import (
    console_share_consumer,
    share_consumer_perf_test,
    tool_share_member,
    verifiable_share_consumer,
)
from pykbroker.tools.kafka.__main__ import main
from pykbroker.tools.kafka.console_share_consumer import OPTIONS, consumer_properties
from pykbroker.tools.kafka.java_dates import date_format
from pykbroker.tools.kafka.perf_report import Read
from pykbroker.tools.kafka.record_text import RecordText
from pykbroker_wire.errors import ErrorCode

COUNT = 6


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def queue(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic with records, and a group of the same name that begins with them."""
    name = re.sub(r"\W", "-", request.node.name)
    broker.create_topic(name, partitions=1)
    for number in range(COUNT):
        broker.produce(name, b"%d" % number, partition=0)
    reset = ["--add-config", "share.auto.offset.reset=earliest", "--alter"]
    assert main(["configs", *at(broker), "--entity-type", "groups", "--entity-name", name, *reset]) == 0
    return name


def at(broker: Broker) -> list[str]:
    return ["--bootstrap-server", broker.bootstrap_servers]


def lag(broker: Broker, group: str) -> int | None:
    with AskedCluster(ClusterSettings((broker.bootstrap_servers,))) as cluster:
        found = share_groups.positions(cluster, group)[group, 0]
    assert not isinstance(found, AskFailed)
    return found.lag


@pytest.mark.parametrize(
    ("error", "closed"), [(None, [True]), (ValueError, [False]), (SystemExit, [False]), (KeyboardInterrupt, [])]
)
def test_the_end_of_a_member(
    error: type[BaseException] | None, closed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def close(self: ShareGroupReader, *, printed_all: bool = True) -> None:
        seen.append(printed_all)

    monkeypatch.setattr(ShareGroupReader, "close", close)
    wanted = WantedShare("g", ["t"], ACCEPT)
    with (
        suppress(*([error] if error else [])),
        tool_share_member.share_member({"group.id": "g"}, "localhost:1", wanted, lambda *_: None),
    ):
        if error is not None:
            raise error
    assert seen == closed


# -- the console ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_printed_records_are_accepted_released_or_rejected(
    broker: Broker, queue: str, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()

    def printed(*words: str) -> list[str]:
        base = ["console-share-consumer", *at(broker), "--topic", queue, "--group", queue]
        shown = ["--formatter-property", "print.delivery=true", "--formatter-property", "print.offset=true"]
        assert main([*base, "--timeout-ms", "30000", *shown, *words]) == 0
        out, err = capfd.readouterr()
        assert err == f"Processed a total of {len(out.splitlines())} messages\n"
        return out.splitlines()

    assert printed("--release", "--max-messages", "2") == ["Offset:0\tDelivery:1\t0", "Offset:1\tDelivery:1\t1"]
    assert printed("--reject", "--max-messages", "1") == ["Offset:0\tDelivery:2\t0"]
    assert printed("--max-messages", "2") == ["Offset:1\tDelivery:2\t1", "Offset:2\tDelivery:1\t2"]
    assert lag(broker, queue) == COUNT - 3


@pytest.mark.slow
def test_a_record_that_cannot_be_printed(broker: Broker, queue: str, capfd: pytest.CaptureFixture[str]) -> None:
    broker.produce(queue, b"12345678", partition=0)
    broker.produce(queue, b"1", partition=0)
    capfd.readouterr()
    base = ["console-share-consumer", *at(broker), "--topic", queue, "--group", queue, "--max-messages"]
    longs = ["--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer"]
    assert main([*base, "3", *longs]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "ERROR Unknown error when running consumer: "
    assert err.splitlines()[-1] == "Processed a total of 1 messages"
    # The record was released, and those after it too.
    assert main([*base, str(COUNT + 1), *longs, "--reject-message-on-error", "--timeout-ms", "30000"]) == 0
    out, err = capfd.readouterr()
    assert out == "3544952156018063160\n"
    assert err.count("rejecting this message: Size of data received by LongDeserializer is not 8") == COUNT
    assert lag(broker, queue) == 1


class Scripted(ShareGroupReader):
    """A reader that yields these batches, and keeps the acknowledgements that a tool chooses."""

    def __init__(self, *batches: list[DeliveredRecord], error: AskFailed | None = None) -> None:
        self._scripted = batches
        self._error = error
        self.chosen: dict[int, int] = {}

    def batches(self) -> Iterator[list[DeliveredRecord]]:
        yield from self._scripted
        if self._error is not None:
            raise self._error

    def acknowledge_as(self, record: DeliveredRecord, kind: int) -> None:
        self.chosen[record.offset] = kind

    def acknowledge(self) -> None:
        pass


def records(*values: bytes) -> list[DeliveredRecord]:
    return [DeliveredRecord("t", 0, place, 1, 0, None, value, (), 1) for place, value in enumerate(values)]


def test_records_before_a_bad_one_are_not_given_back(capfd: pytest.CaptureFixture[str]) -> None:
    text = RecordText({"value.deserializer": "ShortDeserializer"})
    reader = Scripted(records(b"\0\1", b"x", b"\0\2"))
    printing = console_share_consumer._Printing(text, rejects_on_error=False)
    with pytest.raises(ValueError, match="ShortDeserializer"):
        printing.print_all(reader, None)
    assert reader.chosen == {1: RELEASE, 2: RELEASE}
    reader = Scripted(records(b"\0\1", b"x", b"\0\2"))
    console_share_consumer._Printing(text, rejects_on_error=True).print_all(reader, None)
    assert reader.chosen == {1: REJECT}
    assert capfd.readouterr().out.split() == ["1", "1", "2"]


def test_a_timeout_and_a_failure_are_lines_and_no_failure_of_the_tool(capfd: pytest.CaptureFixture[str]) -> None:
    printing = console_share_consumer._Printing(RecordText({}), rejects_on_error=False)
    printing.print_all(Scripted([], [], error=failed(ErrorCode.GROUP_AUTHORIZATION_FAILED)), -1)
    said = capfd.readouterr().err.splitlines()
    assert said == [
        "ERROR Error processing message, terminating consumer process: ",
        "org.apache.kafka.common.errors.TimeoutException",
    ]
    printing.print_all(Scripted(error=failed(ErrorCode.GROUP_AUTHORIZATION_FAILED)), None)
    said = capfd.readouterr().err.splitlines()
    assert said[1].startswith("org.apache.kafka.common.errors.GroupAuthorizationException: ")


def test_a_closed_output_gives_the_batch_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(self: RecordText, record: Any) -> bytes:
        raise BrokenPipeError

    monkeypatch.setattr(RecordText, "written", closed)
    reader = Scripted(records(b"a", b"b"))
    with pytest.raises(BrokenPipeError):
        console_share_consumer._Printing(RecordText({}), rejects_on_error=False).print_all(reader, None)
    assert reader.chosen == {0: RELEASE, 1: RELEASE}


def test_a_printed_record_is_kept_only_when_the_output_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = RecordText({"value.deserializer": "ShortDeserializer"})
    reader = Scripted(records(b"\0\1", b"x", b"\0\2"))
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OSError, match="No space left"):
            console_share_consumer._Printing(text, rejects_on_error=False).print_all(reader, None)
        drop_output()
    assert reader.chosen == {0: RELEASE, 1: RELEASE, 2: RELEASE}


@pytest.mark.slow
@pytest.mark.parametrize("output", ["/dev/full", None])
def test_records_that_standard_output_did_not_take_come_again(
    broker: Broker, queue: str, output: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    words = [*at(broker), "--topic", queue, "--group", queue, "--max-messages", str(COUNT), "--timeout-ms", "30000"]
    with open(output or "/dev/null", "w") as file:
        monkeypatch.setattr(sys, "stdout", file if output else None)
        assert main(["console-share-consumer", *words, "--enable-systest-events"]) == 0
    assert capsys.readouterr().err.splitlines()[0] == "Unable to write to standard out, closing consumer."
    assert lag(broker, queue) == COUNT


def test_a_timeout_ends_a_tool_that_no_broker_answers(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--bootstrap-server", "127.0.0.1:1", "--topic", "t"]
    assert main(["console-share-consumer", *words, "--timeout-ms", "1"]) == 0
    assert capsys.readouterr().err.splitlines()[1:] == [
        "ERROR Error processing message, terminating consumer process: ",
        "org.apache.kafka.common.errors.TimeoutException",
        "Processed a total of 0 messages",
    ]
    assert main(["share-consumer-perf-test", *words, "--num-records", "1", "--timeout", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("WARNING: Exiting before consuming the expected number of records: timeout (1 ms)")
    assert lines[-1].split(", ")[5] == "0"


AT = ["--bootstrap-server", "localhost:1", "--topic", "t"]


def ended(tool: str, words: Sequence[str]) -> int:
    try:
        return main([tool, *words])
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (AT[:2], "--topic is a required argument"),
        (AT[2:], 'Missing required argument "[bootstrap-server]"'),
        ([*AT, "--reject", "--release"], "At most one of --reject and --release may be specified."),
        (
            [*AT, "--consumer-property", "a=b", "--command-property", "a=b"],
            "Options --consumer-property and --command-property cannot be specified together.",
        ),
        ([*AT, "--group", "a", "--command-property", "group.id=b"], "Detected group ids: 'a', 'b'"),
        ([*AT, "--formatter", "com.example.Mine"], "it names a Java class"),
        ([*AT, "--command-property", "max.poll.records=x"], "Invalid value x for configuration max.poll.records"),
        (
            [*AT, "--command-property", "max.poll.records=0"],
            "Invalid value 0 for configuration max.poll.records: Value must be at least 1",
        ),
        ([*AT, "--group", ""], "The group must not be empty."),
        ([*AT[:2], "--topic", ""], "The topic must not be empty."),
        ([*AT, "--max-messages", "x"], "Cannot parse argument 'x' of option max-messages"),
    ],
)
def test_what_the_console_refuses(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("console-share-consumer", words) == 1
    assert said in capsys.readouterr().err


def test_the_properties_of_the_console(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text("group.id=of-the-file\nfetch.max.wait.ms=3\n")
    given = OPTIONS.parse([*AT, "--consumer-config", str(file)])
    found = consumer_properties(given)
    assert (found["group.id"], found["client.id"]) == ("of-the-file", "console-share-consumer")
    assert consumer_properties(OPTIONS.parse(AT))["group.id"] == "console-share-consumer"
    # The addresses are read last, when the properties have been looked at.
    words = ["--bootstrap-server", "none", "--topic", "t", "--consumer-config", str(file)]
    assert ended("console-share-consumer", words) == 1
    out, err = capsys.readouterr()
    assert out.startswith("Option --consumer-config is deprecated and will be removed in a future version.")
    assert "WARN fetch.max.wait.ms is no setting of the Python share consumer and has no effect" in err
    assert "Invalid url in bootstrap.servers: none" in err


# -- the verifiable consumer ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_events(broker: Broker, queue: str, mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    group = f"fresh-{queue}"
    capsys.readouterr()
    words = [*at(broker), "--topic", queue, "--group-id", group, "--max-messages", str(COUNT), "--verbose"]
    how = ["--acknowledgement-mode", mode, "--offset-reset-strategy", "Earliest"]
    assert main(["verifiable-share-consumer", *words, *how]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = [event["name"] for event in events]
    assert names[:2] == ["startup_complete", "offset_reset_strategy_set"]
    assert names[-1] == "shutdown_complete"
    values = [event["value"] for event in events if event["name"] == "record_data"]
    assert values == [str(number) for number in range(COUNT)]
    for name in ("records_consumed", "offsets_acknowledged"):
        found = [event for event in events if event["name"] == name]
        assert sum(event["count"] for event in found) == COUNT
        offsets = [offset for event in found for part in event["partitions"] for offset in part["offsets"]]
        assert offsets == list(range(COUNT))
    assert all(event["success"] for event in events if event["name"] == "offsets_acknowledged")


@pytest.mark.slow
def test_records_are_acknowledged_by_a_pattern(broker: Broker, queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    words = [*at(broker), "--topic", queue, "--group-id", queue, "--max-messages", str(COUNT)]
    how = ["--acknowledgement-mode", "sync", "--ack-pattern", "accept, Release,reject"]
    assert main(["verifiable-share-consumer", *words, *how]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counts: Counter[str] = Counter()
    for event in events:
        counts.update(event.get("ackTypeCounts", {}))
    assert counts == {"ACCEPT": 2, "RELEASE": 2, "REJECT": 2}
    assert main(["console-share-consumer", *at(broker), "--topic", queue, "--group", queue, "--max-messages", "2"]) == 0
    assert capsys.readouterr().err == "Processed a total of 2 messages\n"
    assert lag(broker, queue) == 0


@pytest.mark.slow
def test_a_record_that_is_renewed_comes_again_and_gets_the_next_type(
    broker: Broker, queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    # Records with even offsets are renewed first, and each renewal counts.
    most = COUNT + COUNT // 2
    words = [*at(broker), "--topic", queue, "--group-id", queue, "--max-messages", str(most), "--verbose"]
    how = ["--acknowledgement-mode", "sync", "--ack-pattern", "renew,accept"]
    assert main(["verifiable-share-consumer", *words, *how]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counts: Counter[str] = Counter()
    for event in events:
        counts.update(event.get("ackTypeCounts", {}))
    assert counts == {"RENEW": COUNT // 2, "ACCEPT": COUNT}
    seen = Counter(event["offset"] for event in events if event["name"] == "record_data")
    assert seen == {offset: 1 + (offset % 2 == 0) for offset in range(COUNT)}
    assert lag(broker, queue) == 0


@pytest.mark.slow
def test_a_renewal_that_the_group_refuses_is_an_event(
    broker: Broker, queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refuses = ["--add-config", "share.renew.acknowledge.enable=false", "--alter"]
    assert main(["configs", *at(broker), "--entity-type", "groups", "--entity-name", queue, *refuses]) == 0
    capsys.readouterr()
    events = verifiable_share_consumer._Events(["RENEW", "ACCEPT"], verbose=False)
    wanted = WantedShare(queue, [queue], ACCEPT)
    with tool_share_member.share_member(
        {"group.id": queue}, broker.bootstrap_servers, wanted, events.acknowledged
    ) as it:
        batch = next(found for found in it.batches() if found)
        for record in batch:
            it.acknowledge_as(record, verifiable_share_consumer._KINDS[events.kind_of(record)])
        it.acknowledge()
    event = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not event["success"]
    assert events.count == 0


@pytest.mark.parametrize("output", ["narrow", "none"])
def test_an_event_that_cannot_be_printed_ends_the_tool(
    output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[str] = []

    @contextmanager
    def member(*_: object) -> Iterator[Scripted]:
        try:
            yield Scripted(records("\u00e9".encode()))
            ends.append("well")
        except BaseException as error:
            ends.append(type(error).__name__)
            raise

    monkeypatch.setattr(tool_share_member, "share_member", member)
    with open("/dev/null", "w", encoding="ascii") as narrow:
        monkeypatch.setattr(sys, "stdout", narrow if output == "narrow" else None)
        assert main(["verifiable-share-consumer", *AT, "--group-id", "g", "--verbose"]) == 1
    said = {"narrow": ("UnicodeEncodeError", "can't encode"), "none": ("LostOutput", "Bad file descriptor")}[output]
    assert ends == [said[0]]
    assert said[1] in capsys.readouterr().err


def test_a_refused_acknowledgement_is_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    events = verifiable_share_consumer._Events(verbose=False)
    events.acknowledged(("t", 0), [], None)
    events.acknowledged(("t", 0), [4, 5], failed(ErrorCode.INVALID_RECORD_STATE, "late"))
    (event,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (event["count"], event["success"], event["error"]) == (2, False, "late")
    assert events.count == 0


def test_the_properties_of_the_verifiable_consumer(tmp_path: Path) -> None:
    words = ["--bootstrap-server", "h:1", "--topic", "t", "--group-id", "g"]
    parser = verifiable_share_consumer._parser()
    found = verifiable_share_consumer.properties_of(parser.parse_args(words))
    assert found == {"group.id": "g", "client.id": "consumer-g-1"}
    file = tmp_path / "client.properties"
    file.write_text("client.id=mine\n")
    found = verifiable_share_consumer.properties_of(parser.parse_args([*words, "--command-config", str(file)]))
    assert found["client.id"] == "mine"


def test_what_the_verifiable_consumer_refuses(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*at(broker), "--topic", "t", "--group-id", "g"]
    assert main(["verifiable-share-consumer"]) == 0
    assert ended("verifiable-share-consumer", [*words, "--acknowledgement-mode", "never"]) == 1
    assert "No enum constant" in capsys.readouterr().err
    assert ended("verifiable-share-consumer", words[2:]) == 1
    for how, said in (
        (["--ack-pattern", "accept"], "--ack-pattern requires --acknowledgement-mode to be 'sync' or 'async'"),
        (
            ["--ack-pattern", "renew, Renew", "--acknowledgement-mode", "sync"],
            "a pattern of only 'renew' would re-deliver",
        ),
        (["--ack-pattern", "keep", "--acknowledgement-mode", "sync"], "AcknowledgeType.KEEP"),
    ):
        assert ended("verifiable-share-consumer", [*words, *how]) == 1
        assert said in capsys.readouterr().err
    capsys.readouterr()
    # The tool reports this late, and its status is 0.
    assert main(["verifiable-share-consumer", *words, "--offset-reset-strategy", "middle"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["startup_complete", "shutdown_complete"]
    assert "Unknown share auto offset reset strategy: middle" in err


# -- the performance --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2"])
def test_all_members_read_the_records_together(
    broker: Broker, queue: str, threads: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    words = [*at(broker), "--topic", queue, "--group", queue, "--messages", str(COUNT), "--threads", threads]
    assert main(["share-consumer-perf-test", *words, "--show-consumer-stats", "--date-format", "y"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Warning: --messages is deprecated. Use --num-records instead."
    heads, row = lines[1].split(", "), lines[-1].split(", ")
    assert dict(zip(heads, row, strict=True))["data.consumed.in.nMsg"] == str(COUNT)
    of_members = [line for line in lines if line.startswith("Share consumer ")]
    suffixes = [""] if threads == "1" else ["-1", "-2"]
    assert [line.partition(" consumption metrics- ")[0] for line in of_members] == [
        f"Share consumer {place} having client id perf-share-consumer-client{suffix}"
        for place, suffix in enumerate(suffixes, 1)
    ]
    # All of them are acknowledged.
    short = [*words, "--timeout", "300", "--hide-header"]
    assert main(["share-consumer-perf-test", *short]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("WARNING: Exiting before consuming the expected number of records: timeout (300 ms)")
    assert lines[2].split(", ")[5] == "0"


def test_rows_of_the_performance_tool() -> None:
    dates = date_format("s")
    row = share_consumer_perf_test.total_row(Read(4, 4 << 20), 1000, 3000, dates)
    assert row == "1, 3, 4.0000, 2.0000, 2.0000, 4, 2000"
    row = share_consumer_perf_test.interval_row(Read(6, 3 << 20), Read(2, 1 << 20), 1000, 3000, dates)
    assert row == "1, 3, 3.0000, 1.0000, 2.0000, 6, 2000"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (AT, "Exactly one of the following arguments is required: [messages], [num-records]"),
        ([*AT[:2], "--num-records", "1"], 'Missing required argument "[topic]"'),
        ([*AT, "--num-records", "1", "--reporting-interval", "0"], "Reporting interval must be greater than 0."),
        ([*AT, "--num-records", "1", "--threads", "0"], "--threads must be at least 1"),
        ([*AT, "--num-records", "1", "--date-format", "b"], "Illegal pattern character 'b'"),
    ],
)
def test_what_the_performance_tool_refuses(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("share-consumer-perf-test", words) == 1
    assert said in capsys.readouterr().err
