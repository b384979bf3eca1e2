"""The arguments and the file of a reset in kafka-consumer-groups and kafka-share-groups, and what both tools print when
a new offset is not the wanted one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pykbroker.tools.cluster.reset_plan import (
    BadReset,
    milliseconds_of_datetime,
    milliseconds_of_duration,
    rows_of_file,
)

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import PartitionName
    from pykbroker.tools.kafka.tool_options import Given


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


def target_value(given: Given, target: str) -> int:
    """Return the argument of the option for the new offsets, a time in milliseconds, or 0 if it has none. Raises
    BadReset."""
    if target == "to-datetime":
        return milliseconds_of_datetime(given.text(target) or "")
    if target == "by-duration":
        return milliseconds_of_duration(given.text(target) or "")
    return (given.number(target) or 0) if target in ("to-offset", "shift-by") else 0


def rows_of_path(path: str, groups: list[str]) -> dict[str, dict[PartitionName, int]]:
    """Return group -> partition -> offset, from the file of --from-file. Raises BadReset, also for a file that cannot
    be read."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        raise BadReset(f"Unable to read file {path}", "java.io.IOException") from None
    return rows_of_file(text, groups)
