"""`pykbroker produce` and `pykbroker consume`; kcat checks what they write and read."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from compat_tests.command_line.asked import CommandLine
from compat_tests.topics import Topics
from testkit import needs
from testkit.clients import ALL_COMPRESSIONS, NOW_MS, wait_until

HOSTILE = b'k\xff\x00|v"\\\xc3\xa9\x1b,=\xfe'


@pytest.fixture
def topic(line: CommandLine) -> str:
    """A topic with two partitions, on the node of the command line."""
    return Topics(line.bootstrap).create(partitions=2)


def kcat(line: CommandLine, *words: str, stdin: bytes = b"") -> bytes:
    command = [needs.program("kcat"), "-b", line.bootstrap, *words]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=True).stdout


def started(line: CommandLine, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pykbroker", *words, "-b", line.bootstrap]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=_heed_interrupts)


def _heed_interrupts() -> None:
    """Restore SIGINT, because a shell's background process and all its children ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ran(line: CommandLine, *words: str, stdin: bytes = b"") -> bytes:
    with started(line, *words) as process:
        out, err = process.communicate(stdin, timeout=120)
    assert (process.returncode, err) == (0, b""), err
    return out


def fill(line: CommandLine, topic: str, times: list[int], partition: int = 0) -> None:
    """Write a record at each time; its value is its number."""
    lines = [json.dumps({"payload": str(number), "partition": partition, "ts": at}) for number, at in enumerate(times)]
    assert line("produce", topic, "-J", stdin="\n".join(lines)).status == 0


def values(line: CommandLine, topic: str, *words: str) -> list[str]:
    said = line("consume", topic, *words)
    assert (said.status, said.err) == (0, ""), said
    return said.out.split()


def whole(line: CommandLine, topic: str) -> str:
    """Return every record of a topic as JSON, a line each."""
    said = line("consume", topic, "-J")
    assert (said.status, said.err) == (0, ""), said
    return said.out


def test_kcat_and_we_print_the_same(line: CommandLine, topic: str) -> None:
    kcat(line, "-P", "-t", topic, "-p", "1", "-K", "|", "-H", "a=1", "-H", "b=", "-H", "c", "-H", "a=2",
         stdin=b"k1|one\nk2|\n|three\nfour\n")  # fmt: skip
    kcat(line, "-P", "-t", topic, "-p", "1", "-K", "|", "-Z", stdin=b"k1|\n|two\n")
    kcat(line, "-P", "-t", topic, "-p", "1", "-K", "|", "-D", "XX", stdin=HOSTILE)
    where = ["-t", topic, "-C", "-p", "1", "-o", "beginning", "-e", "-q"]
    for words in (
        ["-f", r"%t|%p|%o|%T|%k|%K|%s|%S|%h|%R|%%\n\t\x41\q"],
        ["-K", "::", "-D", r"\x01"],
    ):
        assert ran(line, "consume", topic, "-p", "1", *words) == kcat(line, *where, *words)
    # kcat reads an empty value as null; for null itself both print the same.
    form = ["-p", "1", "-c", "2", "-f", r"[%k][%s]\n", "-Z"]
    assert ran(line, "consume", topic, "--from", "4", *form) == b"[k1][NULL]\n[NULL][two]\n"
    assert kcat(line, *where[:-4], "-o", "4", *form, "-q") == b"[k1][NULL]\n[NULL][two]\n"
    # kcat writes bytes that are not text as they are; all others are the same.
    theirs = [json.loads(one) for one in kcat(line, *where, "-J", "-c", "6").splitlines()]
    ours = [json.loads(one) for one in ran(line, "consume", topic, "-J").splitlines()]
    assert ours[:6] == [{name: value for name, value in one.items() if name != "broker"} for one in theirs]
    assert ours[6]["key_encoding"] == ours[6]["payload_encoding"] == "base64"


@pytest.mark.parametrize("compression", ALL_COMPRESSIONS)
def test_a_copy_through_json_is_exact(line: CommandLine, topic: str, name: str, compression: str) -> None:
    producer = Producer({"bootstrap.servers": line.bootstrap, "compression.type": compression, "log_level": 0})
    awkward: list[tuple[bytes | None, bytes | None]] = [
        (b"k", b"v"), (None, b"v"), (b"k", None), (None, None), (b"", b""), (HOSTILE, HOSTILE), (b"k", b"a\nb"),
        (b"k", "é\u2028\U0001f600".encode()), (b"k", b"x" * 100_000),
    ]  # fmt: skip
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", b""), ("é", b"\xff\x00")]
    for number, (key, value) in enumerate(awkward):
        producer.produce(topic, value, key, number % 2, timestamp=NOW_MS + number, headers=headers[: number % 4])
    assert producer.flush(60) == 0
    Topics(line.bootstrap).create(partitions=2, name=name)
    written = whole(line, topic)
    sent = line("produce", name, "-J", "-z", compression, "-o", "json", stdin=written).document
    assert (sent["records"], sent["failed"]) == (9, 0)

    def by_place(lines: str) -> dict[tuple[int, int], dict[str, Any]]:
        # Some characters in the text end a line for Python.
        found = [json.loads(one) for one in lines.encode().splitlines()]
        return {(one["partition"], one["offset"]): {**one, "topic": ""} for one in found}

    assert len(by_place(written)) == 9
    assert by_place(whole(line, name)) == by_place(written)
    # Byte by byte, by another client: %R %s is unambiguous.
    form = ["-C", "-p", "1", "-o", "beginning", "-e", "-q", "-f", r"%T|%K|%k|%R%s|%h\n"]
    assert kcat(line, "-t", name, *form) == kcat(line, "-t", topic, *form)


def test_what_we_produce_kcat_reads(line: CommandLine, topic: str, tmp_path: Path) -> None:
    at = ["-p", "1"]
    ran(line, "produce", "-q", topic, *at, "-K", "|", "-H", "a=1", "-H", "b=", "--timestamp", f"@{NOW_MS}",
        "--acks", "1", stdin=b"k1|one\n|two\n\nthree")  # fmt: skip
    ran(line, "produce", "-q", topic, *at, "-k", "fixed", "-Z", "-D", "::", "--no-idempotence", stdin=b"a\nb::::c::")
    ran(line, "produce", "-q", topic, *at, "--value-as", "hex", "--acks", "0", stdin=b"00ff\n")
    whole, empty = tmp_path / "whole", tmp_path / "empty"
    whole.write_bytes(b"x\ny\n")
    empty.write_bytes(b"")
    ran(line, "produce", "-q", topic, str(whole), str(empty), "-k", "file", *at, "-z", "lz4")
    found = kcat(line, "-C", "-t", topic, *at, "-o", "beginning", "-e", "-q", "-f", "%k,%K,%s,%S,%h;")
    assert found == (
        b"k1,2,one,3,a=1,b=;,0,two,3,a=1,b=;,-1,,0,a=1,b=;,-1,three,5,a=1,b=;"
        b"fixed,5,a\nb,3,;fixed,5,,-1,;fixed,5,c,1,;,-1,\x00\xff,2,;file,4,x\ny\n,4,;file,4,,0,;"
    )
    times = kcat(line, "-C", "-t", topic, *at, "-o", "beginning", "-c", "4", "-q", "-f", "%T ").split()
    assert times == [str(NOW_MS).encode()] * 4


def test_from_and_to(line: CommandLine, topic: str) -> None:
    fill(line, topic, [NOW_MS + 1000 * number for number in range(10)])
    whole = [str(number) for number in range(10)]
    assert values(line, topic) == whole
    assert values(line, topic, "--from", "7") == whole[7:]
    assert values(line, topic, "--from", "-2") == whole[8:]
    assert values(line, topic, "--from", "2", "--to", "-5") == whole[2:5]
    assert values(line, topic, "--to", "3") == whole[:3]
    assert values(line, topic, "--from", "end") == []
    assert values(line, topic, "--from", "3", "-c", "2") == whole[3:5]
    assert values(line, topic, "--from", f"@{NOW_MS + 3001}", "--to", f"@{NOW_MS + 6000}") == whole[4:6]
    iso = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime((NOW_MS + 8000) / 1000)) + f".{NOW_MS % 1000:03}Z"
    assert values(line, topic, "--from", iso) == whole[8:]
    assert values(line, topic, "--from", f"@{NOW_MS + 10**9}") == []
    assert values(line, topic, "-p", "1") == []
    assert "Write a time in milliseconds as @" in line("consume", topic, "--from", str(NOW_MS)).failure


def test_only_what_is_committed_is_read_where_that_is_asked_for(line: CommandLine, topic: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": line.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(60)
    for value, ends in (("yes", producer.commit_transaction), ("no", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        ends(60)
    assert values(line, topic) == ["yes", "no"]
    # The last records of the partition are control records, and the read ends nevertheless.
    assert values(line, topic, "--isolation", "read_committed") == ["yes"]
    assert values(line, topic, "-X", "isolation.level=read_committed") == ["yes"]
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    assert producer.flush(60) == 0
    assert values(line, topic, "--isolation", "read_committed") == ["yes"]
    assert values(line, topic, "--from", "-1") == ["open"]
    producer.abort_transaction(60)


def test_a_group_goes_on_where_it_stopped(line: CommandLine, topic: str, name: str) -> None:
    second = Topics(line.bootstrap).create()
    fill(line, topic, [NOW_MS] * 6)
    fill(line, second, [NOW_MS])
    assert values(line, topic, "--group", name, "-c", "2") == ["0", "1"]
    found = values(line, topic, second, "--group", name, "-f", r"%t:%s\n")
    assert sorted(found) == sorted([f"{second}:0", *[f"{topic}:{number}" for number in range(2, 6)]])
    assert values(line, topic, second, "--group", name) == []
    assert values(line, topic, "--from", "stored", "-X", f"group.id={name}") == []
    assert values(line, topic, "--group", f"{name}-2", "--from", "end") == []
    assert values(line, topic, "--from", "stored", "-X", f"group.id={name}-3") == [str(number) for number in range(6)]


def test_a_read_that_follows_ends_in_order(line: CommandLine, topic: str, name: str) -> None:
    fill(line, topic, [NOW_MS])
    with started(line, "consume", topic, "--follow", "--group", name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        assert line("produce", topic, "-p", "1", stdin="later\n").status == 0
        assert process.stdout.readline() == b"later\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=120) == (b"", b"")
    assert process.returncode == 130
    # The printed records were committed at the end.
    assert values(line, topic, "--group", name) == []


def test_a_read_that_follows_ends_at_a_record_that_comes_later(line: CommandLine, topic: str) -> None:
    with started(line, "consume", topic, "--follow", "-p", "0", "--to", f"@{NOW_MS + 500}") as process:
        assert process.stdout is not None
        fill(line, topic, [NOW_MS])
        assert process.stdout.readline() == b"0\n"
        fill(line, topic, [NOW_MS + 400, NOW_MS + 500, NOW_MS + 400])
        out, err = process.communicate(timeout=120)
    assert (out, err, process.returncode) == (b"0\n", b"", 0)


def test_a_pipe_that_closes_ends_it_quietly(line: CommandLine, topic: str, name: str) -> None:
    records = "\n".join("x" * 1000 for _ in range(2000))
    assert line("produce", topic, "-p", "0", stdin=records).status == 0
    with started(line, "consume", topic, "--group", name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x" * 1000 + b"\n"
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0
    # Records that did not get through are not committed: a pipe holds 64 KiB of 2 MB.
    assert len(values(line, topic, "--group", name)) > 1000


def test_each_record_that_fails_is_a_line(line: CommandLine, topic: str) -> None:
    lines = [
        {"payload": "a", "partition": 7, "key": "k"},
        {"payload": "b", "partition": 0},
        {"payload": "x" * 2_000_000},
        {"payload": "c", "headers": ["h", None]},
        {"payload": "d", "partition": 1},
    ]
    said = line("produce", topic, "-J", "-o", "json", stdin="\n".join(map(json.dumps, lines)))
    assert (said.status, json.loads(said.out)["records"], json.loads(said.out)["failed"]) == (1, 2, 3)
    first, second, third, hint = said.err.splitlines()  # and no line about what was sent, which JSON says
    assert first.startswith(f"pykbroker: record 1 (key 'k'): topic {topic} has no partition 7: it has 2, from 0")
    assert second.startswith("pykbroker: record 3: The message is 2000")
    assert third.startswith("pykbroker: record 4: a header without a value")
    assert hint.startswith("pykbroker: `-p -1` lets the producer choose")
    assert sorted(values(line, topic)) == ["b", "d"]


def test_what_the_broker_refuses_is_a_line_for_each_record(line: CommandLine) -> None:
    small = Topics(line.bootstrap).create(config={"max.message.bytes": "500"})
    said = line("produce", small, stdin="\n".join(["a", "x" * 1000, "x" * 1001]))
    assert said.status == 1
    *failures, told = said.err.splitlines()
    assert all("(MESSAGE_TOO_LARGE)" in each for each in failures), said.err
    assert 1 <= len(failures) <= 3
    assert told == f"Sent {3 - len(failures)} record{'s' * (len(failures) != 2)} ({told.partition('(')[2]}", said.err
    assert told.endswith(f" bytes) to {small}, and {len(failures)} failed.")


def test_input_that_is_no_record_is_a_line_and_what_stands_before_is_sent(line: CommandLine, topic: str) -> None:
    said = line("produce", topic, "-J", stdin='{"payload":"a"}\n{"payload":NaN}\n{"payload":"b"}\n')
    told, failure = said.err.splitlines()
    assert (said.status, told) == (1, f"Sent 1 record (1 bytes) to {topic}.")
    assert failure.startswith('pykbroker: line 2: "payload": ')
    assert values(line, topic) == ["a"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("consume ‹t› -p 9", 1, "has no partition 9: it has 2, from 0 on"),
        ("consume ‹t›-non", 1, "-non': did you mean '"),
        ("consume ‹t› -f %z", 2, "%z is no token"),
        ("consume ‹t› -f %s -J", 2, "does not go with"),
        ("consume ‹t› --from latest", 2, "'latest' is not beginning, end"),
        ("consume ‹t› --from stored", 2, "--from stored needs the name of a group"),
        ("consume ‹t› --to stored", 2, "--to stored is no end"),
        ("consume ‹t› --group g --from 5", 2, "--from is beginning or end with --group"),
        ("consume ‹t› --group g --to 5", 2, "--to does not go with --group"),
        ("consume ‹t› --group g -p 0", 2, "--partition does not go with --group"),
        ("consume ‹t› -X isolation.level=some", 1, "isolation_level"),
        ("consume", 2, "Missing argument"),
        ("produce ‹t› -p 9 -c 0 -l /nowhere", 0, ""),
        ("produce ‹t› -l /nowhere", 1, "/nowhere: No such file or directory"),
        ("produce ‹t› /nowhere", 1, "/nowhere: No such file or directory"),
        ("produce ‹t› /nowhere -l x", 2, "A FILE is one record"),
        ("produce ‹t› -H =x", 2, "is not NAME=VALUE"),
        ("produce ‹t› -J -K :", 2, "does not go with"),
        ("produce ‹t› --timestamp soon", 2, "'soon' is no time"),
        ("produce ‹t› --acks 1 --idempotence", 2, "--idempotence needs --acks all"),
        ("produce ‹t› -D \\300", 2, "is no byte"),
        ("produce ‹t› -X acks=some", 1, "Invalid value some for configuration acks: String must be one of: all, -1"),
        ("produce in:valid", 1, "in:valid"),
    ],
)
def test_what_is_refused(line: CommandLine, topic: str, words: str, status: int, said: str) -> None:
    found = line(*words.replace("‹t›", topic).split())
    assert found.status == status, found
    assert said in (found.failure if status else found.out)


def test_words_of_a_terminal_are_sent_as_they_come(line: CommandLine, topic: str) -> None:
    """A line is sent when it arrives, not when a block is full."""
    with started(line, "produce", "-q", topic, "-p", "0") as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        wait_until(lambda: values(line, topic) == ["first"], "the first line is in the topic")
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_what_was_sent_is_said_once_unless_it_shall_not_be(line: CommandLine, topic: str) -> None:
    told = line("produce", topic, "-K", ":", stdin="k:one\nk:two\n")
    assert (told.status, told.out, told.err) == (0, "", f"Sent 2 records (8 bytes) to {topic}.\n")
    quiet = line("produce", topic, "-q", stdin="three\n")
    assert (quiet.status, quiet.out, quiet.err) == (0, "", "")


def test_json_as_people_write_it_is_sent(line: CommandLine, topic: str) -> None:
    records = ['{"key": 7, "value": {"id": 1, "ok": true}, "headers": {"source": "shell", "n": 2}, "partition": 0}',
               '{"payload": "text", "timestamp": "2026-01-31T12:00", "partition": 1}']  # fmt: skip
    assert line("produce", topic, "-J", stdin="\n".join(records)).status == 0
    first, second = (json.loads(one) for one in line("consume", topic, "-J").out.splitlines())
    if first["partition"]:
        first, second = second, first
    assert (first["key"], first["payload"]) == ("7", '{"id":1,"ok":true}')
    assert first["headers"] == ["source", "shell", "n", "2"]
    assert (second["payload"], second["ts"]) == ("text", 1_769_860_800_000)


def test_a_read_begins_so_long_ago(line: CommandLine, topic: str) -> None:
    now = int(time.time() * 1000)
    fill(line, topic, [now - 7_200_000, now - 1_800_000, now])
    assert values(line, topic, "--from", "-1h") == ["1", "2"]
    assert values(line, topic, "--from", "3h", "--to", "-1h") == ["0"]
    assert values(line, topic, "--from", "now") == []


def test_only_records_that_match_are_printed(line: CommandLine, topic: str, name: str) -> None:
    records = [{"key": f"k{i}", "value": {"n": i, "status": 500 + i % 2}, "partition": 0} for i in range(20)]
    assert line("produce", topic, "-J", stdin="\n".join(map(json.dumps, records))).status == 0
    found = values(line, topic, "--grep", '"status":501')
    assert found == [f'{{"n":{i},"status":501}}' for i in range(1, 20, 2)]
    assert len(values(line, topic, "--grep", '"status":501', "-c", "3")) == 3
    assert values(line, topic, "--grep", "^K7$") == []
    assert values(line, topic, "--grep", "(?i)^K7$", "-f", "%k\\n") == ["k7"]
    # A member of a group commits what it has read, whether it was printed or not.
    assert values(line, topic, "--group", name, "--grep", "^k[67]$", "-f", "%k\\n") == ["k6", "k7"]
    assert values(line, topic, "--group", name) == []
    wrong = line("consume", topic, "--grep", "(")
    assert wrong.failure.startswith("'(' is no regular expression of RE2: missing )")


def test_topics_by_a_pattern(line: CommandLine, name: str) -> None:
    for end in ("a", "b", "c"):
        assert line("topics", "create", f"{name}-{end}", "-p", "1").status == 0
        assert line("produce", f"{name}-{end}", stdin=f"{end}\n").status == 0
    assert sorted(values(line, f"{name}-[ab]")) == ["a", "b"]
    assert sorted(values(line, f"{name}-a", f"{name}-.*")) == ["a", "b", "c"]
    assert line("consume", f"{name}-[xy]").failure.startswith(f"No topic matches '{name}-[xy]'")
