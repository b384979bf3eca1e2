"""A day of events goes through the whole pipeline while its driver and its broker are killed, and the answer is the
right one.

The generator writes; all jobs run in one driver, in small batches. A round starts the driver and kills it (SIGKILL,
Python and JVM) at a moment of some kind. The kinds are between a batch's commit in the lake and its commit in Spark's
checkpoint, between the growth of a sink topic and the commit, and any moment. In every second round the broker is
killed too. Then everything is read to the end and compared with what plain Python computes from the same records
(spark/example/expected.py).

`make test` kills the driver and the broker once, in the lake's moment, and reads to the end in the session that all
tests share; test_streams.py repeats a batch of a sink topic. A long run has all rounds, and another driver at the end.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import polars
import pytest

from compat_tests.node import Node, make_node
from compat_tests.spark.pipeline.driver import (
    LOOK_S,
    Checkpoint,
    Driver,
    LakeBetween,
    TopicBetween,
    write_config,
)
from compat_tests.spark.session import QUICK, short_lived
from example import results, topics
from example.expected import Expected, compute
from example.generator import CLOSING_USER, Workload, generate
from example.records import Record, Times
from example.results import Outcome, Place
from example.sending import Sender
from pipeline import config, job, lake
from pipeline.queries import ALL
from pipeline.sinks import Trigger
from testkit import needs
from testkit.ports import steady_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The slack is for records that wait in the producer while the broker is away. Records of one partition are written a
# moment before those of another, and a moment is an hour of the example's day.
DAY = Workload(users=250, partitions=2, times=Times(slack_s=3600))
#: Enough for one round and the rest.
SHORT_DAY = replace(DAY, users=60)
#: The number of records in each round, and their rate (records a second). After them records come slowly, however slow
#: the machine is.
PER_ROUND, RATE, TRICKLE = 450, 40, 0.5
#: The limit for something that happens in a driver that has to start first, on a machine that does other work too.
PATIENCE_S = 300
#: A kill may come too late if the commit was faster; then there is another round.
MOST_ROUNDS = 12


class World:
    """A node, the generator that writes into it, and the pipeline that reads from it."""

    def __init__(self, owner: str, home: Path, workload: Workload) -> None:
        self.workload = workload
        self.records = generate(workload)
        self.node: Node = make_node(owner, port=steady_port()).start()
        topics.create(self.node.bootstrap, workload.partitions)
        self.lake = home / "lake"
        self.home = home
        self.driver = Driver(home, self._configure(90))
        self.sender = Sender(self.node.bootstrap, rate=RATE)
        self.rounds = 0
        self.broker_kills = 0
        self._finishing = False
        self._sending = Thread(target=self.sender.send, args=(self._paced(self.records),), daemon=True)
        self._sending.start()

    def _paced(self, records: list[Record]) -> Iterator[Record]:
        for number, record in enumerate(records):
            if self._finishing:
                self.sender.rate = 0
            else:
                self.sender.rate = RATE if number < PER_ROUND * (self.rounds + 1) else TRICKLE
            yield record

    def _configure(self, max_offsets: int) -> Path:
        times = self.workload.times
        return write_config(
            self.home / "pipeline.toml",
            {
                "kafka": {"bootstrap.servers": self.node.bootstrap},
                "source": {"max_offsets_per_trigger": max_offsets},
                "times": {name: getattr(times, name) for name in times.__slots__},
                "lake": {"path": str(self.lake), "compact_min_files": 4},
                "spark": {
                    **QUICK,
                    "spark.driver.memory": "768m",
                    "spark.driver.extraJavaOptions": short_lived(),
                    "spark.driver.host": "127.0.0.1",
                    "spark.driver.bindAddress": "127.0.0.1",
                    "spark.sql.warehouse.dir": str(self.home / "warehouse"),
                },
            },
            checkpoints=str(self.home / "checkpoints"),
        )

    def checkpoint(self, job: str) -> Checkpoint:
        return Checkpoint(self.home / "checkpoints" / job)

    def start(self) -> None:
        self.driver.start("--continuous", "--trigger", "0", "--master", "local[2]")

    def wait_for_progress(self, job: str = "lake") -> None:
        before = self.checkpoint(job).committed
        self.driver.wait_for(
            lambda: self.checkpoint(job).committed > before, f"{job} commits a batch", timeout_s=PATIENCE_S
        )

    def restart_broker(self) -> None:
        self.node.kill()
        self.broker_kills += 1
        self.node.start()

    def kill_driver(self) -> None:
        self.driver.kill()
        self.rounds += 1

    def finish(self, spark: SparkSession | None) -> None:
        """Write everything that is left, and read it to the end, in this session or else in a driver of its own."""
        self._finishing = True
        self._sending.join(PATIENCE_S)
        assert not self._sending.is_alive()
        path = self._configure(1000)
        if spark is None:
            self.driver.run_to_the_end("--once", "--master", "local[2]", timeout_s=2 * PATIENCE_S)
        else:
            assert job.run(spark, ALL, config.load(path), Trigger(once=True)) == 0

    def close(self) -> None:
        self.driver.kill()
        self.node.close()


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    needs.java()
    needs.python_package("pyspark")
    owner, workload = request.param
    with closing(World(owner, tmp_path, workload)) as world:
        yield world


SHORT = ["lake"]
LONG = ["lake", "letters", "any", "conversions", "lake"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("world", "rounds"),
    [
        pytest.param(("pykbroker", SHORT_DAY), SHORT, id="pykbroker"),
        pytest.param(("pykbroker", DAY), LONG, marks=pytest.mark.long(amount="8 kills"), id="pykbroker-all-rounds"),
        pytest.param(("apache-kafka", DAY), LONG, marks=pytest.mark.long(amount="8 kills"), id="apache-kafka"),
    ],
    indirect=["world"],
)
def test_the_answer_is_right_whatever_was_killed(
    world: World, rounds: list[str], request: pytest.FixtureRequest
) -> None:
    answer = compute(world.records, world.workload.times)
    bootstrap = world.node.bootstrap
    between = LakeBetween(world.lake, world.checkpoint("lake"))
    letters = TopicBetween(bootstrap, "dead-letters", world.checkpoint("dead-letters"))
    conversions = TopicBetween(bootstrap, "conversions", world.checkpoint("conversions"))
    hits: Counter[str] = Counter()
    rng = random.Random(world.workload.seed)
    wanted = Counter(kind for kind in rounds if kind != "any")
    moments: dict[str, LakeBetween | TopicBetween] = {"lake": between, "letters": letters, "conversions": conversions}
    with closing(letters), closing(conversions):
        for number in range(MOST_ROUNDS):
            missing = [name for name, count in wanted.items() if hits[name] < count]
            if number >= len(rounds) and not missing:
                break
            kind = rounds[number] if number < len(rounds) else missing[0]
            world.start()
            world.wait_for_progress()
            if number % 2 == 0:
                world.restart_broker()  # while the driver runs and the generator writes
            if kind == "any":
                any_moment = partial(has_come, time.monotonic() + rng.random())
                world.driver.wait_for(any_moment, "any moment", timeout_s=10)
            else:
                what = f"{kind}: written, not committed"
                world.driver.wait_for(moments[kind], what, timeout_s=PATIENCE_S, look_s=LOOK_S)
            world.kill_driver()
            hits[kind] += 1 if kind == "any" else moments[kind].is_true()
    assert world.broker_kills >= (len(rounds) + 1) // 2
    assert world.rounds >= len(rounds)
    assert all(hits[name] >= count for name, count in wanted.items()), hits
    assert len(world.sender.delivered) < answer.records, "the generator was writing all the time"
    spark: SparkSession = request.getfixturevalue("spark")
    world.finish(spark if rounds is SHORT else None)
    print(f"\ndriver killed {world.rounds} times, {dict(hits)}; broker killed {world.broker_kills} times")
    found = results.read(lake.read(spark, str(world.lake)), bootstrap)
    # A reader that shares no code with the writer reads the same.
    theirs = polars.read_delta(str(world.lake)).filter(polars.col("user_id") != CLOSING_USER)["event_id"]
    assert sorted(theirs) == sorted(row.event.event_id for row in found.rows)
    print(f"written more than once, as at-least-once sinks do: {found.repeated}")
    compare(
        found, answer, {(one.topic, one.record.partition, one.offset): one.record for one in world.sender.delivered}
    )


def has_come(moment: float) -> bool:
    return time.monotonic() > moment


def compare(found: Outcome, answer: Expected, written: Mapping[Place, Record]) -> None:
    counts = Counter(row.event.event_id for row in found.rows)
    assert [event_id for event_id, count in counts.items() if count > 1] == [], "duplicates in the lake"
    assert found.events == answer.events
    assert all(row.date == row.event.date for row in found.rows)
    for row in found.rows:  # `place` names the record that it comes from
        record = written[row.place]
        assert row.event.event_id.encode() in (record.value or b"")
        assert (row.key, row.headers, row.timestamp_ms) == (record.key, record.headers, record.arrival_ms)

    assert found.dead == {
        place: answer.reasons[record] for place, record in written.items() if record in answer.reasons
    }
    for letter in found.letters:
        record = written[letter.place]
        assert (letter.key, letter.value, letter.headers) == (record.key, record.value, record.headers)
        assert letter.timestamp_ms == record.arrival_ms

    assert found.windows == answer.windows
    assert found.sessions == answer.sessions
    assert found.conversions == answer.conversions
