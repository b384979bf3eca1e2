"""Invariants between the two loops of a node (decision 30): after the end of a leadership nothing is appended (P14),
and a
broker whose broker loop stands still keeps no lease (C4).

The control loop has a change from the event in which its loader has it. The broker loop must take the change before it
appends. No run has so many metadata changes that some are held back (crossing/feed.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.metadata.image import MetadataImage
from pykbroker_worlds.simulated.world import LONGEST_HAND_OVER_SECONDS
from tests.simulation.invariants.broken import require

if TYPE_CHECKING:
    from pykbroker.replica.partition import Partition


def appends(node: int, partition: Partition, image: MetadataImage) -> None:
    """Check an append of a broker for a client. `image` is what the control loop of its node has."""
    topic = image.topics.by_id.get(partition.topic_id)
    known = None if topic is None else topic.partitions.get(partition.index)
    require(
        known is not None and (known.leader, known.leader_epoch) == (node, partition.leader_epoch),
        "P14",
        f"node {node} appends to {partition} for a client in leader epoch {partition.leader_epoch}; its control loop "
        f"has seen {known}",
    )


def sends_heartbeat(node: int, silent_seconds: float, session_seconds: float) -> None:
    """Check a heartbeat of a broker. `silent_seconds` is how long its broker loop has stood still while the control
    loop ran."""
    # An earlier sign of life may have been on its way for as long as the longest hand-over takes.
    require(
        silent_seconds <= session_seconds + LONGEST_HAND_OVER_SECONDS,
        "C4",
        f"broker {node} sends a heartbeat, and its broker loop has stood still for {silent_seconds:.3f} s; a session "
        f"is {session_seconds:g} s",
    )
