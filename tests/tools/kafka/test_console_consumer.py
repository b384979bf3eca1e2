"""kafka-console-consumer against a broker in this process."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pykbroker.testing import Broker
from pykbroker.tools.kafka import console_consumer
from pykbroker.tools.kafka.record_text import RecordText
from pykbroker.tools.kafka.stop_signals import StopSignals


def read(bootstrap: str, count: int, group: str) -> int:
    words = ["--bootstrap-server", bootstrap, "--topic", "orders", "--group", group, "--from-beginning"]
    return console_consumer.run([*words, "--max-messages", str(count), "--timeout-ms", "60000"])


class Polled:
    """A consumer that has nothing more to read."""

    def __init__(self) -> None:
        self.closed_with: list[bool] = []

    def close(self, *, autocommit: bool = True) -> None:
        self.closed_with.append(autocommit)


class Printing(console_consumer._Reading):
    """The output of one record, by a consumer that is in a group."""

    def __init__(self) -> None:
        self._consumer = Polled()
        self._skips = self._tells_end = False
        self._stopped = StopSignals()
        self.count = 0

    def _records(self) -> Any:
        yield object()


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, BrokenPipeError, ValueError])
def test_positions_are_committed_only_after_all_records_are_printed(
    error: type[BaseException] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(self: RecordText, record: Any) -> bytes:
        if error is not None:
            raise error
        return b""

    monkeypatch.setattr(RecordText, "written", written)
    reading = Printing()
    with contextlib.suppress(KeyboardInterrupt):
        reading.print_records(RecordText({}))
    assert reading._consumer.closed_with == [error is None]


@pytest.mark.slow
def test_a_poll_that_ends_while_the_group_is_joined(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """kafka-python 3.0.12 loses a join that a change of the topic's metadata caused, if a poll ends before the join
    does. Then there is never a heartbeat or a partition. Short polls nearly always end like this."""
    with Broker() as broker:
        bootstrap = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result(60)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(9):
            producer.produce("orders", str(number), partition=number % 3)
        assert producer.flush(60) == 0
        monkeypatch.setattr(console_consumer, "_POLL_MS", 3)
        for number in range(4):
            assert read(bootstrap, 9, f"group-{number}") == 0
            assert sorted(capfd.readouterr().out.split()) == [str(value) for value in range(9)]
