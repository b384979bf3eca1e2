"""Findings about logs whose checkpointed start is below their first segment. Pure.

The files are the same in two cases, and only the topic's metadata decides (docs/non-obvious.md). The first records of a
tiered log are in the tier, and the start of the node refuses its topic. In any other log these records are lost. The
start reports them as missing, and the log begins at its first segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pykbroker.metadata.image import ConfigResource, MetadataImage
from pykbroker.tools.node_migration.findings import NodeFinding, counted, some, stop, warn
from pykbroker_log import names
from pykbroker_log.log_dirs import LogDir


def log_start_findings(
    log_dir: LogDir, first_segments: Mapping[tuple[str, int], int], image: MetadataImage
) -> Iterator[NodeFinding]:
    """`first_segments`: partition -> base offset of the first segment in its folder."""
    starts = log_dir.checkpoints.log_starts
    tiered: list[str] = []
    lost: list[str] = []
    for topic, index in sorted(starts):
        start, first = starts[topic, index], first_segments.get((topic, index), -1)
        if start < first:
            found = tiered if _is_tiered(image, topic) else lost
            found.append(f"{names.partition_dir(topic, index)} (offset {start} to {first - 1})")
    if tiered:
        yield stop(
            f"The first records of {counted(len(tiered), 'tiered log')} are not in this directory: {some(tiered)}",
            log_dir.path,
            "Leave the cluster on Apache Kafka, or end remote.storage.enable for their topics first",
        )
    if lost:
        yield warn(
            f"The first records of {counted(len(lost), 'log')} are missing: {some(lost)}",
            log_dir.path,
            "Let these logs follow another replica that has the records; else the start begins them at the first "
            "segment, as Apache Kafka does",
        )


def _is_tiered(image: MetadataImage, topic: str) -> bool:
    return image.configs.of(ConfigResource.TOPIC, topic).get("remote.storage.enable") == "true"
