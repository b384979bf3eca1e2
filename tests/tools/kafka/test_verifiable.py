"""kafka-verifiable-producer and kafka-verifiable-consumer: their events, the properties of their clients, their end."""

from __future__ import annotations

import json
import os
import signal
from typing import Any, NamedTuple

import pytest

from pykbroker.testing import Broker
from pykbroker.tools.kafka import stop_signals, verifiable_consumer, verifiable_producer
from pykbroker.tools.kafka.__main__ import main


def events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(list(event)[:2] == ["timestamp", "name"] for event in found)
    return found


@pytest.mark.slow
def test_what_one_sends_the_other_reads_in_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        at = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "numbers"]
        words = ["--max-messages", "5", "--value-prefix", "7", "--repeating-keys", "2", "--message-create-time", "1000"]
        assert main(["verifiable-producer", *at, *words]) == 0
        first, *sent, end, data = events(capsys)
        assert (first["name"], end["name"]) == ("startup_complete", "shutdown_complete")
        assert [(event["key"], event["value"], event["offset"]) for event in sent] == [
            (key, f"7.{number}", number) for number, key in enumerate("01010")
        ]
        assert (data["name"], data["sent"], data["acked"], data["target_throughput"]) == ("tool_data", 5, 5, -1)
        group = ["--group-id", "g", "--max-messages", "3", "--verbose"]
        assert main(["verifiable-consumer", *at, *group]) == 0
        seen = events(capsys)
        assert [event["name"] for event in seen if event["name"] != "partitions_revoked"] == [
            "startup_complete",
            "partitions_assigned",
            *["record_data"] * 3,
            "records_consumed",
            "offsets_committed",
            "shutdown_complete",
            "shutdown_requested",
        ]
        (committed,) = (event for event in seen if event["name"] == "offsets_committed")
        assert committed["offsets"] == [{"topic": "numbers", "partition": 0, "offset": 3}]
        assert committed["success"] is True
        # The group continues after the records that were counted, not after those that were read.
        assert main(["verifiable-consumer", *at, "--group-id", "g", "--max-messages", "2"]) == 0
        (consumed,) = (event for event in events(capsys) if event["name"] == "records_consumed")
        assert consumed["partitions"][0]["minOffset"] == 3


def test_a_record_that_is_refused_is_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        at = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "not a topic"]
        assert main(["verifiable-producer", *at, "--max-messages", "1"]) == 0
        _, failed, _, data = events(capsys)
        assert (failed["name"], failed["value"]) == ("producer_send_error", "0")
        assert failed["exception"].startswith("class ")
        assert (data["sent"], data["acked"]) == (1, 0)


def test_a_signal_ends_the_tool_with_its_last_words() -> None:
    with stop_signals.StopSignals() as stopped:
        assert not stopped
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped
        assert stopped.status == 143


def test_a_second_signal_does_what_it_did_before() -> None:
    heard: list[str] = []
    # A shell starts a process in the background with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stop_signals.StopSignals(lambda: heard.append("first")) as stopped:
            signal.raise_signal(signal.SIGINT)
            stopped.also(lambda: heard.append("late"))
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == ["first", "late"]
    assert stopped.status == 130


def test_the_properties_of_the_clients(tmp_path: Any) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=1\ngroup.id=of-the-file\nlinger.ms=3\n")
    producer = verifiable_producer._parser()
    at = ["--bootstrap-server", "h:1", "--topic", "t", "--command-config", str(file)]
    found = verifiable_producer.properties_of(producer.parse_args([*at, "--acks", "0"]))
    # The file overrides a producer's options, and a consumer's options override the file.
    assert (found["acks"], found["linger.ms"], found["retries"]) == ("1", "3", "0")
    consumer = verifiable_consumer._parser()
    given = consumer.parse_args([*at, "--group-id", "g", "--session-timeout", "7000", "--group-instance-id", "i"])
    read = verifiable_consumer.properties_of(given)
    assert (read["group.id"], read["session.timeout.ms"], read["group.instance.id"]) == ("g", "7000", "i")
    assert (read["enable.auto.commit"], read["auto.offset.reset"]) == ("false", "earliest")


class Place(NamedTuple):
    topic: str
    partition: int


class Read(NamedTuple):
    offset: int


def test_records_beyond_the_limit_do_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    polled = {Place("t", 0): [Read(4), Read(5), Read(9)], Place("t", 1): [Read(0), Read(1)], Place("t", 2): [Read(7)]}
    offsets = verifiable_consumer.print_records(polled, 4, verbose=False)
    assert offsets == {Place("t", 0): (10, 3), Place("t", 1): (1, 1)}
    (consumed,) = events(capsys)
    assert consumed["count"] == 6, "Apache Kafka's tool counts all that it polled"
    assert [(part["partition"], part["count"], part["maxOffset"]) for part in consumed["partitions"]] == [
        (0, 3, 9),
        (1, 1, 0),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--group-protocol", "consumer"], "joins classic groups"),
        (["--assignment-strategy", "com.example.Mine"], "names a Java class"),
    ],
)
def test_what_the_python_client_cannot_do_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--bootstrap-server", "localhost:1", "--topic", "t", "--group-id", "g"]
    assert main(["verifiable-consumer", *at, *words]) == 1
    assert said in capsys.readouterr().err
    assert main(["verifiable-consumer"]) == 0
    assert main(["verifiable-producer"]) == 0
