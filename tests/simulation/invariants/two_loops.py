"""Invariants between the two loops of a node (decision 30): a leadership that is over appends nothing (P14), and a
broker whose broker loop stands still keeps no lease (C4).

The control loop has seen a change from the event in which its loader has it. The broker loop must take the change
before it appends. No run has so many changes of the metadata that some are held back (crossing/feed.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.metadata.image import MetadataImage
from tests.simulation.invariants.broken import require
from tests.simulation.world import LONGEST_HAND_OVER_SECONDS

if TYPE_CHECKING:
    from pykbroker.replica.partition import Partition


def appends(node: int, partition: Partition, image: MetadataImage) -> None:
    """A broker has appended for a client. `image`: what the control loop of its node has seen."""
    topic = image.topics.by_id.get(partition.topic_id)
    known = None if topic is None else topic.partitions.get(partition.index)
    require(
        known is not None and (known.leader, known.leader_epoch) == (node, partition.leader_epoch),
        "P14",
        f"node {node} appends to {partition} for a client in leader epoch {partition.leader_epoch}; its control loop "
        f"has seen {known}",
    )


def sends_heartbeat(node: int, silent_seconds: float, session_seconds: float) -> None:
    """A broker sends a heartbeat. `silent_seconds`: for how long its broker loop has stood still, while the control
    loop turned."""
    # A sign of life from before may have been on its way for as long as the longest hand-over takes.
    require(
        silent_seconds <= session_seconds + LONGEST_HAND_OVER_SECONDS,
        "C4",
        f"broker {node} sends a heartbeat, and its broker loop has stood still for {silent_seconds:.3f} s; a session "
        f"is {session_seconds:g} s",
    )
