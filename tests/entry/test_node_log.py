"""The log of a node's process: what clients name is in one line of it, and steers no terminal."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.entry import failures
from pykbroker.entry.failures import one_line
from pykbroker.entry.node_log import OneLineFormatter
from pykbroker.entry.status_line import StatusLine
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from testkit.nodes.nodes import eventually
from testkit.nodes.processes import Process
from testkit.nodes.wire import Wire

FORGED = "x\n[2026-01-01 00:00:00,000] INFO forged\r\x1b[2J\u2028\u202e\x85"
SAID = r"x\n[2026-01-01 00:00:00,000] INFO forged\r\x1b[2J\u2028\u202e\x85"


def record(message: str, *args: object, exception: BaseException | None = None) -> logging.LogRecord:
    fault = None if exception is None else (type(exception), exception, exception.__traceback__)
    return logging.LogRecord("name", logging.INFO, "", 0, message, args, fault)


@pytest.mark.parametrize("make", [StatusLine, logging.StreamHandler])
def test_a_message_is_one_line(make: type[logging.StreamHandler[io.StringIO]]) -> None:
    handler = make(stream := io.StringIO())
    handler.setFormatter(OneLineFormatter("%(message)s (%(name)s)"))
    handler.emit(record("Group %s is gone", FORGED))
    assert stream.getvalue() == f"Group {SAID} is gone (name)\n"


def test_a_traceback_keeps_its_lines() -> None:
    """And what the exception says begins none that could be one of the log."""
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        text = OneLineFormatter("[at] %(message)s").format(record("Failed", exception=error))
    first, *rest = text.splitlines()
    assert first == "[at] Failed"
    assert rest[0] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") for line in rest)
    assert rest[-2:] == ["  ValueError: x", r"  [2026-01-01 00:00:00,000] INFO forged\r\x1b[2J\u2028\u202e\x85"]


@given(st.text(st.characters(), max_size=30))
def test_any_text_is_one_line_that_can_be_written(text: str) -> None:
    said = one_line(text)
    assert len(said.splitlines()) <= 1
    said.encode()
    assert said.isprintable() or any(not each.isprintable() for each in text)
    assert one_line(said) == said


def test_a_failure_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    failures.say(FORGED)
    assert capsys.readouterr().err == f"pykbroker: {SAID}\n"


@pytest.mark.slow
def test_what_a_client_names_forges_no_line(tmp_path: Path) -> None:
    """A node as a process, and the name of a group, which may be any text."""
    log = tmp_path / "log"
    with Process(log, "--ephemeral", "--port", "0", "--log-level", "DEBUG") as node:
        with Wire(node.ready().address) as wire:
            joins = ConsumerGroupHeartbeatRequest(
                group_id=FORGED,
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
            wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[FORGED]))
            eventually("the group has a member", lambda: wire.call(joins).error_code == ErrorCode.NONE)
        node.interrupt()
    text = log.read_text()
    assert SAID in text
    assert all(line.startswith("[20") for line in text.splitlines())
    assert "\n[2026-01-01 00:00:00,000]" not in text
