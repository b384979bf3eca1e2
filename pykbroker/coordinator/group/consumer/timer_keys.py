"""The names of the timers of a consumer group and its members (consumer_heartbeat.py handles them)."""

from __future__ import annotations

from pykbroker.coordinator.result import TimerKey


def session_timer(group_id: str, member_id: str) -> TimerKey:
    return ("session", group_id, member_id)


def rebalance_timer(group_id: str, member_id: str) -> TimerKey:
    """The timer of a member that has partitions to revoke."""
    return ("rebalance", group_id, member_id)


def rejoin_timer(group_id: str, member_id: str) -> TimerKey:
    """The timer of a classic member that was asked to rejoin."""
    return ("rejoin", group_id, member_id)


def resync_timer(group_id: str, member_id: str) -> TimerKey:
    """The timer of a classic member that has joined and has to ask for its assignment."""
    return ("resync", group_id, member_id)


def regex_timer(group_id: str) -> TimerKey:
    return ("regex", group_id)
