"""Apache Kafka on forks: its DumpLogSegments reads them, and its broker starts on a fork and on the forked source."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from compat_tests.on_disk.dumps import differences, verified
from compat_tests.on_disk.estate import unlike
from compat_tests.on_disk.home import Home, Owner
from compat_tests.on_disk.life import Life
from testkit import needs
from testkit.oracle.kafka import kafka_libs

CONFIG = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
}
#: The tools' arguments; test_handover.py has all of them.
READ = (("*/*.log", ("--print-data-log",)), ("*/*.index", ("--index-sanity-check",)))


@pytest.fixture(autouse=True)
def _judge() -> None:
    needs.java()
    kafka_libs()


def fork(home: Home, *words: str) -> list[Path]:
    """Fork all directories of a home in one command. Return the new ones."""
    forks = [path.with_name(f"{path.name}-fork") for path in home.log_dirs]
    pairs = [str(path) for pair in zip(home.log_dirs, forks, strict=True) for path in pair]
    subprocess.run([*needs.node_command(), "fork", *words, *pairs], check=True, capture_output=True)
    return forks


def contents(folders: list[Path]) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "words", "next_owner"),
    [("kafka", (), "kafka"), ("pykbroker", (), "kafka"), ("pykbroker", ("--link",), "pykbroker")],
)
def test_a_broker_starts_on_a_fork_and_on_its_source(owner: Owner, words: tuple[str, ...], next_owner: Owner) -> None:
    with Home(CONFIG, log_dirs=("one", "two")) as home:
        home.format(owner)
        home.start(owner)
        life = Life(home)
        life.settle()
        before = life.inventory()
        home.stop()
        sources = home.log_dirs
        forks = fork(home, *words)
        assert verified(forks) == ""
        assert differences(forks, READ) == []
        as_it_was = contents(sources)

        home.log_dirs = forks
        home.configure(CONFIG)
        home.start(next_owner)
        assert not unlike(before, life.inventory(), compacted=life.compacted()), home.tail(20)
        life.go_on()
        home.stop()
        assert contents(sources) == as_it_was
        assert verified(forks) == ""
        of_forks = contents(forks)

        home.log_dirs = sources
        home.configure(CONFIG)
        home.start(next_owner)
        again = Life(home)
        assert not unlike(before, again.inventory(), compacted=life.compacted()), home.tail(20)
        home.stop()
        assert contents(forks) == of_forks
