"""The reports of nodes in `__pykbroker_metrics`, summed up by plain Python."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pykbroker.load_reports.load_records import METRICS_TOPIC
from pykbroker.plugins import NewTopic, PolicyViolation
from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.nodes.wire import Wire

REPORTING: Mapping[str, object] = {
    "pykbroker.load.reporter.enable": True,
    "pykbroker.load.reporter.interval.ms": 200,
}
COUNTS = ("bytes_in", "messages_in", "bytes_out", "replication_bytes_in", "replication_bytes_out", "produce_requests")


def reports(wires: Iterable[Wire]) -> list[dict[str, Any]]:
    """Return all reports, each partition from its leader. `wires`: one to each broker."""
    found: list[dict[str, Any]] = []
    for wire in wires:
        answer = wire.call(MetadataRequest(topics=None))
        node = {one.port: one.node_id for one in answer.brokers}[wire.socket.getpeername()[1]]
        for topic in answer.topics:
            if topic.name == METRICS_TOPIC:
                for one in topic.partitions:
                    if one.leader_id == node:
                        found += map(json.loads, wire.values(METRICS_TOPIC, one.partition_index))
    return found


def sums(found: Iterable[Mapping[str, Any]], topic: str) -> dict[tuple[int, int], Counter[str]]:
    """Return the counts of each broker for each partition of a topic: (broker, partition) -> counts."""
    totals: dict[tuple[int, int], Counter[str]] = {}
    for report in found:
        for row in report["partitions"]:
            if row["topic"] == topic:
                counter = totals.setdefault((report["broker"], row["partition"]), Counter())
                counter.update({name: row[name] for name in COUNTS})
    return totals


class NoTopics:
    """A create.topic.policy that allows no topic."""

    def configure(self, configs: Mapping[str, str]) -> None:
        pass

    def validate(self, topic: NewTopic) -> None:
        raise PolicyViolation("no topics here")
