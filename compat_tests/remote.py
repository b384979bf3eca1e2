"""A client written in another language, as the suite's `Client`.

The program (java/, go/) is started once per session and answers requests on its standard input and output, one JSON
object per line: {"id": 1, "op": "produce", ...} -> {"id": 1, "result": ...} or {"id": 1, "error": "MESSAGE_TOO_LARGE"}.
Bytes travel as base64, null as null. Records are [key, value, [[header, value], ...], timestamp_ms, partition, offset].

The operations:

* produce (bootstrap, topic, compression, idempotent, max_request_bytes, records) -> [[partition, offset]]
* transact (bootstrap, topic, transactional_id, transactions: [[commit, records]]) -> null
* consume (bootstrap, topic, from_time_ms or null, committed) -> records
* join (bootstrap, topic, group, session_timeout_ms) -> member
* partitions (member) -> [int]
* assignment (member) -> [[topic, partition]]
* records (member, from) -> records from that index
* leave (member) -> null
* secured (bootstrap, topic, secured: {security_protocol, authority, mechanism, user, password, duration_ms})
  -> {values, connections, error}

The operation join may also have: protocol ("classic" or "consumer"), pattern (in place of the topic: a regular
expression), instance (group.instance.id), assignor (the server's), may_end. With any text as may_end, the end of a
session is no failure of the member. Only franz-go passes it to the application.
"""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testkit.clients import PATIENCE_S, Client, Member, ProduceError, Record


def to_wire(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def from_wire(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def record_to_wire(record: Record) -> list[Any]:
    headers = [[name, to_wire(value)] for name, value in record.headers]
    return [to_wire(record.key), to_wire(record.value), headers, record.timestamp_ms, record.partition]


def record_from_wire(row: Sequence[Any]) -> Record:
    key, value, headers, timestamp_ms, partition, offset = row
    named = tuple((name, from_wire(data)) for name, data in headers or ())
    return Record(from_wire(key), from_wire(value), named, timestamp_ms, partition, offset)


class Program:
    """The running program; it handles one request at a time."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
        self._lock = threading.Lock()
        self._last_id = 0

    def ask(self, op: str, **fields: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._last_id += 1
            request = {"id": self._last_id, "op": op, **fields}
            # A program that hangs must not hang the session: the timer kills it, and then the read below returns.
            timer = threading.Timer(2 * PATIENCE_S, self._process.kill)
            timer.start()
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            finally:
                timer.cancel()
            if not line:
                raise AssertionError(f"the program ended during {op}:\n{self._log.read_text(errors='replace')[-4000:]}")
            answer = json.loads(line)
            assert answer["id"] == self._last_id
        if answer.get("error"):
            raise ProduceError(answer["error"]) if op == "produce" else AssertionError(f"{op}: {answer['error']}")
        return answer.get("result")

    def kill(self) -> None:
        """Send SIGKILL, to a program whose death is the test."""
        self._process.kill()
        self._process.wait(15)

    def close(self) -> None:
        assert self._process.stdin is not None
        if self._process.poll() is not None:
            return
        self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(15)


class RemoteClient(Client):
    def __init__(self, name: str, program: Program, *, session_timeout_ms: int = 10_000) -> None:
        self.name = name
        self.session_timeout_ms = session_timeout_ms
        self._program = program

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        compression: str = "none",
        idempotent: bool = False,
        max_request_bytes: int = 1_000_000,
    ) -> list[tuple[int, int]]:
        placed = self._program.ask(
            "produce",
            bootstrap=bootstrap,
            topic=topic,
            compression=compression,
            idempotent=idempotent,
            max_request_bytes=max_request_bytes,
            records=[record_to_wire(record) for record in records],
        )
        return [(partition, offset) for partition, offset in placed]

    def transact(
        self, bootstrap: str, topic: str, transactional_id: str, transactions: Sequence[tuple[bool, Sequence[Record]]]
    ) -> None:
        rows = [[commit, [record_to_wire(record) for record in records]] for commit, records in transactions]
        self._program.ask(
            "transact", bootstrap=bootstrap, topic=topic, transactional_id=transactional_id, transactions=rows
        )

    def consume(
        self, bootstrap: str, topic: str, *, from_time_ms: int | None = None, committed: bool = False
    ) -> list[Record]:
        rows = self._program.ask(
            "consume", bootstrap=bootstrap, topic=topic, from_time_ms=from_time_ms, committed=committed
        )
        return [record_from_wire(row) for row in rows]

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        return RemoteMember(self._program, bootstrap, topic, group, self.session_timeout_ms)


class RemoteMember(Member):
    def __init__(
        self, program: Program, bootstrap: str, topic: str, group: str, session_timeout_ms: int, **options: str
    ) -> None:
        self._program = program
        self._member = program.ask(
            "join", bootstrap=bootstrap, topic=topic, group=group, session_timeout_ms=session_timeout_ms, **options
        )
        self._read: list[Record] = []
        self._left = False

    def partitions(self) -> set[int]:
        return set(self._program.ask("partitions", member=self._member))

    def assignment(self) -> set[tuple[str, int]]:
        return {(topic, partition) for topic, partition in self._program.ask("assignment", member=self._member)}

    def records(self) -> list[Record]:
        if not self._left:
            rows = self._program.ask("records", member=self._member, **{"from": len(self._read)})
            self._read += [record_from_wire(row) for row in rows]
        return list(self._read)

    def leave(self) -> None:
        if not self._left:
            self.records()
            self._program.ask("leave", member=self._member)
            self.records()
            self._left = True
