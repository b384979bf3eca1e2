"""The states of a broker in its cluster."""

from __future__ import annotations

from enum import IntEnum


class BrokerState(IntEnum):
    """Kafka's BrokerState. The numbers are those of the metric."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7
