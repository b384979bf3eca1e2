"""Kafka Streams counts words with processing.guarantee=exactly_once_v2, while its instances and the broker are killed.

The lines go through a repartition topic, the counts through a changelog, and the results into a topic: three
transactional hops. At the end the last count of every word is the number of times that it was written, and the counts
of each word went up by one, with none missing and none twice.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.built import java_classes
from compat_tests.exactly_once import reading
from compat_tests.exactly_once.hanging import wait_with_mending
from compat_tests.exactly_once.kills import Kills
from compat_tests.node import Node, Reached
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, PATIENCE_S, Record
from testkit.oracle.kafka import java_command, kafka_libs
from testkit.programs import Slot

# Each start of a broker takes 20 s on a busy machine.
pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).parent / "streams"
WORDS = [f"word{number}" for number in range(20)]


class WordCount:
    def __init__(self, node: Reached, folder: Path) -> None:
        self.node = node
        topics = Topics(node.bootstrap)
        self.source = topics.create(partitions=2)
        self.target = topics.create(partitions=2)
        self._random = random.Random(1)
        self.written: Counter[str] = Counter()
        self._lines = 0
        self.write(100)
        self.slots = []
        for number in range(2):
            command = java_command(
                "WordCount", extra_classpath=java_classes(HERE / "WordCount.java", pom=HERE / "pom.xml")
            )
            # The directory stays when its instance is killed, as on a real machine.
            arguments = [node.bootstrap, self.source, self.target, str(folder / f"state-{number}")]
            self.slots.append(Slot(f"instance-{number}", [*command, *arguments], folder))

    def write(self, lines: int) -> None:
        records = []
        for _ in range(lines):
            words = self._random.choices(WORDS, k=5)
            self.written.update(words)
            records.append(Record(b"%d" % self._lines, " ".join(words).encode(), (), NOW_MS, self._lines % 2))
            self._lines += 1
        ConfluentClient().produce(self.node.bootstrap, self.source, records, idempotent=True)

    def progress(self) -> int:
        """Return the number of counted words, in committed and aborted transactions; there is always more to count."""
        done: int = sum(e["records"] for slot in self.slots for e in list(slot.events) if e["did"] == "counted")
        if done + 500 > self.written.total():
            self.write(200)
        return done

    def counts(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for results in reading.values(self.node.bootstrap, self.target).values():
            for result in results:
                word, _, count = result.decode().partition("=")
                found[word].append(int(count))
        return found

    def finish(self) -> None:
        def whole() -> bool:
            for slot in self.slots:
                slot.tend()
            return sum(map(len, self.counts().values())) >= self.written.total()

        wait_with_mending(self.node, whole, f"all {self.written.total()} words are counted", timeout_s=PATIENCE_S)
        found = self.counts()
        assert {word: counts[-1] for word, counts in found.items()} == dict(self.written)
        for word, counts in found.items():
            assert counts == list(range(1, len(counts) + 1)), f"{word}: each count once"
        print(f"{self.written.total()} words in {self._lines} lines")

    def close(self) -> None:
        for slot in self.slots:
            slot.close()


@pytest.fixture
def word_count(killable: Node, tmp_path: Path) -> Iterator[WordCount]:
    kafka_libs()
    made = WordCount(killable, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    "rounds", [3, pytest.param(40, marks=[pytest.mark.long(amount="40 kills"), pytest.mark.timeout(3600)])]
)
def test_the_counts_are_the_words(killable: Node, word_count: WordCount, rounds: int) -> None:
    Kills(killable, word_count.slots, broker_share=0.3).run(rounds, word_count.progress, least=100)
    word_count.finish()
