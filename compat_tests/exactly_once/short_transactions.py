"""Short transactions one after the other on a cluster (ShortTransactions.java), and checks of them."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from compat_tests.built import java_classes
from compat_tests.exactly_once import reading
from compat_tests.exactly_once.three_nodes import NUMBERS
from compat_tests.mixed_cluster.members import PATIENCE_S, Cluster
from testkit.nodes.wire import Wire
from testkit.oracle.kafka import java_command

PARTITIONS = 6
_numbers = count()


@dataclass(frozen=True, slots=True)
class Task:
    """`transactions` of each producer, or as many as it completes in `seconds`."""

    producers: int
    records: int
    transactions: int = 0
    seconds: int = 0
    replicas: int = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """`committed`: names of transactions; `in_doubt`: those whose end no client knows. Errors are counted by class."""

    committed: list[str]
    in_doubt: list[str]
    errors: dict[str, int]
    fatal: dict[str, int]
    seconds: float


class Transactions:
    """A running program with its topic."""

    def __init__(self, cluster: Cluster, task: Task) -> None:
        self._cluster = cluster
        self._task = task
        self.topic = f"short-{next(_numbers)}"
        with Wire(cluster.address(cluster.living()[0])) as wire:
            wire.create(self.topic, PARTITIONS, task.replicas)
        cluster.in_sync(self.topic)
        words = (
            cluster.bootstrap,
            self.topic,
            PARTITIONS,
            task.producers,
            task.transactions,
            task.records,
            task.seconds,
        )
        classes = java_classes(Path(__file__).with_name("ShortTransactions.java"))
        command = java_command("ShortTransactions", extra_classpath=classes)
        # Not into pipes, because clients whose brokers are killed write more than a pipe holds, and wait until it is
        # read.
        self._outcome, self._log = (cluster.folder / f"{self.topic}.{kind}" for kind in ("json", "log"))
        with self._outcome.open("wb") as out, self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, *map(str, words), self.topic], stdout=out, stderr=log)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def move(self, first: int) -> None:
        """Place the replicas of all partitions on the nodes from `first` on, and wait until they are there."""
        at = NUMBERS.index(first)
        replicas = [*NUMBERS[at:], *NUMBERS[:at]][: self._task.replicas]
        self._cluster.place(self.topic, replicas)

    def end(self) -> Outcome:
        self._process.wait(PATIENCE_S + 2 * self._task.seconds)
        assert self._process.returncode == 0, self._log.read_text(errors="replace")[-3000:]
        return Outcome(**json.loads(self._outcome.read_text()))

    def close(self) -> None:
        if self.is_running:
            self._process.kill()
            self._process.wait()

    def check_records(self, outcome: Outcome) -> None:
        """Check that readers of committed records find each committed transaction whole and once, in order, and no
        other one except those in doubt."""
        found: dict[str, list[int]] = defaultdict(list)
        for values in reading.values(self._cluster.bootstrap, self.topic).values():
            last: dict[str, tuple[int, int]] = {}
            for value in values:
                name, _, number = value.decode().rpartition("-")
                found[name].append(int(number))
                producer, _, transaction = name.rpartition("-")
                place = int(transaction), int(number)
                assert place > last.get(producer, (0, -1)), f"{value!r} after {last[producer]}"
                last[producer] = place
        whole = list(range(self._task.records))
        torn = {name: numbers for name, numbers in found.items() if sorted(numbers) != whole}
        assert not torn
        assert set(outcome.committed) <= found.keys()
        assert found.keys() - set(outcome.committed) <= set(outcome.in_doubt)
