"""kcat, the most common command-line client, on an older librdkafka than confluent-kafka's."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.suite import assert_same
from compat_tests.topics import Topics
from testkit import needs
from testkit.clients import ALL_COMPRESSIONS, NOW_MS, Record, wait_until


class Kcat:
    def __init__(self, bootstrap: str) -> None:
        self._command = [needs.program("kcat"), "-b", bootstrap]

    def run(self, *args: str, stdin: bytes = b"", timeout: float = 60) -> bytes:
        done = subprocess.run([*self._command, *args], input=stdin, capture_output=True, timeout=timeout)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    def fail(self, *args: str, stdin: bytes = b"") -> str:
        done = subprocess.run([*self._command, *args], input=stdin, capture_output=True, timeout=60)
        assert done.returncode != 0, done.stdout
        return done.stderr.decode(errors="replace")

    def read(self, topic: str, *args: str) -> list[dict[str, Any]]:
        """Return all records from `-o` (the beginning unless given) to the end, as kcat's own JSON."""
        where = [] if "-o" in args else ["-o", "beginning"]
        return [json.loads(line) for line in self.run("-C", "-t", topic, "-e", "-q", "-J", *where, *args).splitlines()]

    def start(self, *args: str, stdout: Path, stderr: Path) -> subprocess.Popen[bytes]:
        with stdout.open("wb") as out, stderr.open("wb") as err:
            return subprocess.Popen([*self._command, *args], stdin=subprocess.DEVNULL, stdout=out, stderr=err)


@pytest.fixture
def kcat(broker: Node) -> Kcat:
    return Kcat(broker.bootstrap)


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("compression", ALL_COMPRESSIONS)
def test_every_compression_comes_back_exactly(
    kcat: Kcat, broker: Node, topic: str, compression: str, idempotent: bool
) -> None:
    lines = b"".join(b"key-%d|value %d %s\n" % (i, i, b"x" * i) for i in range(100))
    kcat.run(
        "-P", "-t", topic, "-K", "|", "-z", compression, "-X", f"enable.idempotence={str(idempotent).lower()}",
        "-H", "kind=test", "-H", "empty=", "-H", "null",
        stdin=lines,
    )  # fmt: skip
    wanted = [(f"key-{i}", f"value {i} " + "x" * i, i) for i in range(100)]
    read = kcat.read(topic)
    assert [(r["key"], r["payload"], r["offset"]) for r in read] == wanted
    assert {tuple(r["headers"]) for r in read} == {("kind", "test", "empty", "", "null", None)}
    others = ConfluentClient().consume(broker.bootstrap, topic)
    assert [((r.key or b"").decode(), (r.value or b"").decode(), r.offset) for r in others] == wanted
    assert {r.headers for r in others} == {(("kind", b"test"), ("empty", b""), ("null", None))}


def test_tombstones(kcat: Kcat, topics: Topics) -> None:
    topic = topics.create(config={"cleanup.policy": "compact"})
    kcat.run("-P", "-t", topic, "-K", "|", "-Z", stdin=b"a|1\na|\nb|2\n")
    assert [(r["key"], r["payload"]) for r in kcat.read(topic)] == [("a", "1"), ("a", None), ("b", "2")]


def test_seek_by_time(kcat: Kcat, broker: Node, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    written = [Record(None, b"%d" % i, (), NOW_MS + 1000 * i, i % 2) for i in range(40)]
    ConfluentClient().produce(broker.bootstrap, topic, written)

    def values(*args: str) -> list[int]:
        return sorted(int(r["payload"]) for r in kcat.read(topic, *args))

    assert values("-o", f"s@{NOW_MS + 25_000}") == list(range(25, 40))
    assert values("-o", f"s@{NOW_MS + 24_001}") == list(range(25, 40))
    assert values("-o", f"s@{NOW_MS + 10_000}", "-o", f"e@{NOW_MS + 20_000}") == list(range(10, 20))
    assert values("-o", "-3", "-p", "0") == [34, 36, 38]


def test_offsets_are_queried_by_time(kcat: Kcat, broker: Node, topic: str) -> None:
    records = [Record(None, b"%d" % i, (), NOW_MS + 1000 * i) for i in range(10)]
    ConfluentClient().produce(broker.bootstrap, topic, records)
    assert kcat.run("-Q", "-t", f"{topic}:0:{NOW_MS + 3500}").decode().strip() == f"{topic} [0] offset 4"


def test_a_message_of_10_mb(kcat: Kcat, broker: Node, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(config={"max.message.bytes": str(11 << 20)})
    payload = tmp_path / "payload"
    payload.write_bytes(random.Random(3).randbytes(10 << 20))
    kcat.run("-P", "-t", topic, "-X", f"message.max.bytes={12 << 20}", str(payload))
    limits = ["-X", f"fetch.message.max.bytes={12 << 20}", "-X", f"receive.message.max.bytes={100 << 20}"]
    read = kcat.run("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-D", "", *limits)
    assert read == payload.read_bytes()


def test_a_message_larger_than_the_topic_allows_is_refused(kcat: Kcat, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(config={"max.message.bytes": "1000"})
    payload = tmp_path / "payload"
    payload.write_bytes(random.Random(3).randbytes(5000))
    said = kcat.fail("-P", "-t", topic, str(payload))
    assert "Message size too large" in said
    assert kcat.read(topic) == []


def test_metadata_of_a_thousand_partitions(kcat: Kcat, broker: Node, thousand_partitions: str) -> None:
    answer = json.loads(kcat.run("-L", "-J", "-t", thousand_partitions))
    assert [node["name"] for node in answer["brokers"]] == [broker.bootstrap]
    (described,) = answer["topics"]
    node = answer["brokers"][0]["id"]
    assert sorted(p["partition"] for p in described["partitions"]) == list(range(1000))
    assert {(p["leader"], p["replicas"][0]["id"], p["isrs"][0]["id"]) for p in described["partitions"]} == {(node,) * 3}


def test_records_spread_over_a_thousand_partitions(kcat: Kcat, broker: Node, thousand_partitions: str) -> None:
    keys = [b"kcat-%d" % i for i in range(2000)]
    kcat.run("-P", "-t", thousand_partitions, "-K", "|", stdin=b"".join(b"%s|%s\n" % (key, key) for key in keys))
    read = [r for r in ConfluentClient().consume(broker.bootstrap, thousand_partitions) if r.key in set(keys)]
    assert sorted(r.value or b"" for r in read) == sorted(keys)


@pytest.fixture
def members() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait(10)


def test_members_join_and_leave(
    kcat: Kcat, broker: Node, topics: Topics, tmp_path: Path, members: list[subprocess.Popen[bytes]]
) -> None:
    topic = topics.create(partitions=4)
    group = f"group-{topic}"

    def write(start: int) -> list[Record]:
        records = [Record(None, b"%d" % i, (), NOW_MS + i, i % 4) for i in range(start, start + 40)]
        ConfluentClient().produce(broker.bootstrap, topic, records)
        return records

    def join(name: str) -> tuple[Path, Path]:
        out, err = tmp_path / f"{name}.out", tmp_path / f"{name}.err"
        config = ["-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=300"]
        members.append(kcat.start("-G", group, *config, "-u", "-f", "%p %s\\n", topic, stdout=out, stderr=err))
        return out, err

    def values(*outs: Path) -> set[int]:
        """Return the values of all complete lines of kcat, which may be in the middle of the next one."""
        written = [line for out in outs for line in out.read_text().splitlines(keepends=True)]
        return {int(line.split()[1]) for line in written if line.endswith("\n")}

    def assigned(err: Path) -> int:
        """Return the number of partitions in the last (re)balance that kcat reported."""
        said = [line for line in err.read_text().splitlines() if "rebalanced" in line]
        return said[-1].count(f"{topic} [") if said and "assigned" in said[-1] else 0

    first, first_err = join("first")
    write(0)
    wait_until(lambda: values(first) == set(range(40)), "a lone member reads every record")
    second, second_err = join("second")
    wait_until(lambda: (assigned(first_err), assigned(second_err)) == (2, 2), "two members share the partitions")
    write(40)
    wait_until(lambda: values(first, second) == set(range(80)), "two members read every record")
    assert len(values(second)) == 20
    members[0].terminate()
    assert members[0].wait(30) == 0
    wait_until(lambda: assigned(second_err) == 4, "who stays gets every partition")
    write(80)
    wait_until(lambda: set(range(80, 120)) <= values(second), "who stays reads every record")
    lines = [line for out in (first, second) for line in out.read_text().splitlines()]
    assert len(lines) == 120, "each record was read once"


def test_the_two_faces_of_one_written_batch(kcat: Kcat, broker: Node, topic: str) -> None:
    """Another client reads kcat's records with the timestamps that kcat itself reads."""
    kcat.run("-P", "-t", topic, stdin=b"one\ntwo\nthree\n")
    mine = [Record(None, r["payload"].encode(), (), r["ts"], r["partition"]) for r in kcat.read(topic)]
    assert_same(mine, ConfluentClient().consume(broker.bootstrap, topic))
