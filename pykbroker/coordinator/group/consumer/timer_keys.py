"""The names of the timers of a consumer group and its members. What a timer does says consumer_heartbeat.py."""

from __future__ import annotations

from pykbroker.coordinator.result import TimerKey


def session_timer(group_id: str, member_id: str) -> TimerKey:
    return ("session", group_id, member_id)


def rebalance_timer(group_id: str, member_id: str) -> TimerKey:
    """A member has partitions to revoke."""
    return ("rebalance", group_id, member_id)


def rejoin_timer(group_id: str, member_id: str) -> TimerKey:
    """A classic member was told to rejoin."""
    return ("rejoin", group_id, member_id)


def resync_timer(group_id: str, member_id: str) -> TimerKey:
    """A classic member has joined and is to ask for its assignment."""
    return ("resync", group_id, member_id)


def regex_timer(group_id: str) -> TimerKey:
    return ("regex", group_id)
