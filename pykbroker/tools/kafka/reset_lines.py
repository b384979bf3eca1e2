"""The lines that kafka-consumer-groups and kafka-share-groups print when a new offset is not the wanted one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import PartitionName


class ResetLines:
    """A `ResetTold` of `tools/cluster/reset_targets.py` that prints the lines of Apache Kafka's tools."""

    def later(self, place: PartitionName) -> None:
        print(f"\nWarn: Partition {place[1]} from topic {place[0]} is empty. Falling back to latest known offset.")

    def bound(self, place: PartitionName, wanted: int, given: int) -> None:
        end, which = ("latest", "higher") if wanted > given else ("earliest", "lower")
        print(
            f"WARN New offset ({wanted}) is {which} than {end} offset for topic partition {place[0]}-{place[1]}. "
            f"Value will be set to {given}",
            file=sys.stderr,
        )
