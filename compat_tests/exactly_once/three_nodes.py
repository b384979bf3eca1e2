"""Three nodes as the one `Node` of this folder's tests. A kill hits one of them, in turn, and the restarted node leads
again."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

from compat_tests.mixed_cluster.members import Cluster, Kind, Member

NUMBERS = (1, 2, 3)
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class ThreeNodes:
    """A `compat_tests.node.Node`; `settings` are those of each node."""

    def __init__(self, against: str, settings: dict[str, str]) -> None:
        kind: Kind = "kafka" if against == "apache-kafka" else "pykbroker"
        members = {number: Member(kind) for number in NUMBERS}
        self.cluster = Cluster(members, settings={**REPLICATED, **settings}, directories=1)
        self.cluster.format()
        self._turn = cycle(NUMBERS)

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def data_dir(self) -> Path:
        return self.cluster.data(NUMBERS[0])

    @property
    def pid(self) -> int:
        return self.cluster.running[NUMBERS[0]].pid

    def start(self) -> ThreeNodes:
        """Restart the nodes that are down, and let one of them lead the topics that clients write to."""
        back, topics = self.come_back()
        for topic in topics:
            if not topic.startswith("__"):
                self.cluster.move(topic, back[0])
        return self

    def come_back(self) -> tuple[list[int], list[str]]:
        """Start the nodes that are down, and wait until everything is in sync, so that only one is down at a time.
        Returns these nodes, and all topics."""
        missing = [number for number in NUMBERS if number not in self.cluster.running]
        self.cluster.start(*missing)
        self.cluster.serving(*NUMBERS)
        topics = self.cluster.all_topics()
        self.cluster.in_sync(*topics)
        return missing, topics

    def stop(self) -> int | None:
        self.cluster.stop(*self.cluster.living())
        return 0

    def kill(self) -> None:
        self.cluster.kill(next(self._turn))

    def close(self) -> None:
        self.cluster.close()

    def tail(self, lines: int = 60) -> str:
        return self.cluster.tails(lines)
