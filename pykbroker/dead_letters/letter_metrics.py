"""The metrics of dead letters, by Apache Kafka's names (ShareGroupMetrics, KIP-1191). A group has them from its first
letter on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykbroker.metrics.registry import tag

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Metrics

_BEAN: Final = "kafka.server:type=ShareGroupMetrics,name=DeadLetterQueue"


class LetterMetrics:
    """The counters of one broker (`LetterCounts` of writer_machine.py)."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def sent(self, group_id: str) -> None:
        """Count that letters of a range are in a Produce. Ranges that share a Produce count one each."""
        self._count("TotalProduceRequestsPerSec", group_id, 1)

    def written(self, group_id: str, letters: int) -> None:
        self._count("RecordCount", group_id, letters)

    def failed(self, group_id: str) -> None:
        """Count that a range is given up after a Produce. A range whose topic the rules refuse is not counted."""
        self._count("FailedProduceRequestsPerSec", group_id, 1)

    def _count(self, name: str, group_id: str, amount: int) -> None:
        self._metrics.counter(f"{_BEAN}{name},group={tag(group_id)}").value += amount
