"""The limits of a cluster that was put back to an earlier state while some of its clients go on living.

The clients have seen epochs and producer ids of the time after that state. None of them may be handed out a second
time: a client would take old metadata for new, or a broker would take a fenced member or producer for the present one.
Responsible for the values alone. The controller and the coordinators of groups and transactions keep to them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Values from the last moment before the state was put back.

    `end_offset`: the end of the metadata log in the state that was put back. The processes of all brokers that
    registered before it have ended. `leader_epoch`, `group_epoch`: no leader epoch of a partition, and no generation or
    epoch of a group, was above it. `producer_id`: more than every producer id in a block that a broker got, and more
    than the next id in the state that was put back.
    """

    end_offset: int
    leader_epoch: int
    group_epoch: int
    producer_id: int
