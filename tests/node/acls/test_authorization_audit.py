"""The audit of a node: one object a line, nothing without the setting; and the authorizer's metrics."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest

import pykbroker
from pykbroker.config.kinds import ConfigError
from pykbroker.metrics.recent import RecentRate
from pykbroker.runtime import line_file
from pykbroker.runtime.line_file import LineFile
from pykbroker.security.audited_authorizer import AuditedAuthorizer
from pykbroker.security.authorizer import AllowAll, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from testkit.acting import acts
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch
from tests.deny_all import DenyAll
from tests.security.askers import AskingClient

pytestmark = pytest.mark.slow
STANDARD = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
FILE = "pykbroker.authorizer.audit.file"


def told(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def audited(path: Path, **more: str) -> tuple[list[dict[str, object]], dict[str, float]]:
    """Return a node's audit lines and metrics when a client writes a record that it may write."""
    config = {**STANDARD, FILE: str(path), "allow.everyone.if.no.acl.found": "true", **more}
    with pykbroker.Broker(config) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("t")
        assert wire.produce("t", batch(b"x")).error_code == ErrorCode.NONE
        metrics = broker.metrics()
    return told(path), metrics


@acts(broker=("pykbroker.authorizer.audit.file", "pykbroker.authorizer.audit.allowed"))
def test_the_audit_of_a_node(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    assert audited(path)[0] == []
    lines, metrics = audited(path, **{"pykbroker.authorizer.audit.allowed": "true"})
    assert path.stat().st_mode & 0o777 == 0o600
    (line,) = (line for line in lines if line["api"] == "Produce")
    about = {key: line[key] for key in ("allowed", "principal", "operation", "resource_name", "rule")}
    assert about == {
        "allowed": True,
        "principal": "User:ANONYMOUS",
        "operation": "WRITE",
        "resource_name": "t",
        "rule": "DefaultAllow",
    }
    where = "kafka.server:type=plugins,config=authorizer.class.name,class=StandardAuthorizer"
    assert metrics[f"{where},role=broker,name=acls-total-count"] == 0
    assert metrics[f"{where},role=controller,name=authorization-allowed-rate-per-minute"] > 0
    assert metrics[f"{where},role=broker,name=authorization-denied-rate-per-minute"] == 0


@acts(broker=("pykbroker.authorizer.audit.max.waiting",))
def test_a_queue_of_the_size_that_is_set(tmp_path: Path) -> None:
    more = {FILE: str(tmp_path / "audit.jsonl"), "pykbroker.authorizer.audit.max.waiting": "1"}
    with pykbroker.Broker({**STANDARD, **more}) as broker, Wire(broker.bootstrap_servers) as wire:
        names = [f"t{number}" for number in range(1000)]
        assert {topic.error_code for topic in wire.metadata(*names).topics} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert broker.metrics()["pykbroker:type=AuthorizerAudit,name=DroppedCount"] > 0


def test_an_audit_that_cannot_be_kept_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="cannot be opened"):
        pykbroker.Broker({**STANDARD, FILE: str(tmp_path / "no" / "audit.jsonl")}).start()
    with pytest.raises(ConfigError, match="nothing to audit"):
        pykbroker.Broker({FILE: str(tmp_path / "audit.jsonl")}).start()


def test_a_name_cannot_begin_a_line() -> None:
    lines: list[str] = []
    audited = AuditedAuthorizer(DenyAll(), lines.append, lambda: 1_700_000_000_123, with_allowed=False)
    asker = AskingClient("User:eve\n{}", "::1", client_id="c\r\n\u2028\ud800\x1b[2J")
    assert not audited.authorize(asker, Operation.READ, Resource.TOPIC, "t\n")
    assert not audited.authorize(asker, Operation.READ, Resource.TOPIC, "t", quiet=True)
    assert not audited.authorize_some(asker, Operation.WRITE, Resource.TOPIC)
    first, second = lines
    assert first.isascii()
    assert first.isprintable()
    assert json.loads(first) == {
        "time": "2023-11-14T22:13:20.123+00:00",
        "allowed": False,
        "principal": "User:eve\n{}",
        "host": "0:0:0:0:0:0:0:1",
        "client_id": "c\r\n\u2028\ud800\x1b[2J",
        "api": "Fetch",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource_name": "t\n",
        "rule": None,
    }
    assert json.loads(second)["resource_name"] is None
    assert AuditedAuthorizer(AllowAll(), lines.append, lambda: 0, with_allowed=False).authorize(
        asker, Operation.READ, Resource.TOPIC, "t"
    )
    assert len(lines) == 2


def test_what_is_allowed_is_told_where_a_refusal_is_not() -> None:
    """A cluster permission that covers topics is checked quietly, because one of the topic may be enough."""
    lines: list[str] = []
    audited = AuditedAuthorizer(AllowAll(), lines.append, lambda: 0, with_allowed=True)
    assert audited.authorize(AskingClient("User:a"), Operation.DELETE, Resource.CLUSTER, "kafka-cluster", quiet=True)
    assert json.loads(lines[0])["allowed"]
    assert audited.would_allow(AskingClient("User:a"), Operation.DELETE, Resource.CLUSTER, "kafka-cluster")
    assert len(lines) == 1


def test_lines_do_not_wait_for_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = LineFile(str(path), most_waiting=100)
    line = "x" * 10_000  # more than a pipe holds, and it is never read
    for _ in range(1000):
        file.write(line)
    assert file.dropped >= 800
    os.set_blocking(reader, True)
    closing = threading.Thread(target=file.close)
    closing.start()
    count = 0
    while data := os.read(reader, 1 << 16):
        count += data.count(b"\n")
    closing.join()
    os.close(reader)
    assert count + file.dropped == 1000


def test_waiting_lines_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_file, "MOST_BYTES", 1000)
    path = tmp_path / "lines"
    file = LineFile(str(path), most_waiting=100)
    file.write("x" * 1000)
    assert file.dropped == 1
    file.write("x" * 999)
    file.close()
    assert path.read_text() == "x" * 999 + "\n"


def test_a_line_that_was_cut_off_does_not_take_the_next_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that becomes full in the middle of a line, stays full for another, and has room again."""
    path, write, left = tmp_path / "lines", os.write, [5]

    def on_full_disk(file: int, data: bytes) -> int:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(file, data[: left[0]])
        left[0] -= written
        return written

    file = LineFile(str(path), most_waiting=100)
    monkeypatch.setattr(os, "write", on_full_disk)
    file.write("first line")
    eventually("the first line is lost", lambda: file.dropped == 1)
    file.write("second line")
    eventually("the second line is lost", lambda: file.dropped == 2)
    left[0] = 1000
    file.write("third line")
    file.close()
    assert path.read_text() == "first\nthird line\n"


def test_a_long_text_is_cut() -> None:
    lines: list[str] = []
    audited = AuditedAuthorizer(DenyAll(), lines.append, lambda: 0, with_allowed=False)
    assert not audited.authorize(
        AskingClient("User:a", client_id="c" * 30_000), Operation.READ, Resource.GROUP, "g" * 30_000
    )
    said = json.loads(lines[0])
    assert said["resource_name"] == "g" * 1024 + "... (30000 characters)"
    assert said["client_id"] == "c" * 1024 + "... (30000 characters)"


def test_a_rate_is_that_of_the_last_minute() -> None:
    now_s, total = 0.0, 0
    rate = RecentRate(lambda: total, lambda: now_s, unit_s=60.0)
    assert rate() == 0
    now_s, total = 30.0, 60
    assert rate() == 120
    now_s, total = 90.0, 60
    assert rate() == 0
    now_s, total = 1000.0, 70
    assert 0 < rate() < 1
