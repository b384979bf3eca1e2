"""Finds brokers that have been down for so long that their replicas must move to other brokers. Pure."""

from __future__ import annotations

from collections.abc import Collection


class GoneBrokers:
    """`after_seconds`: the time for which a broker must be down without interruption before `note` returns it."""

    def __init__(self, after_seconds: float) -> None:
        self._after_seconds = after_seconds
        #: broker -> the time from which on it has been down
        self._since: dict[int, float] = {}

    def note(self, gone: Collection[int], now: float) -> list[int]:
        """Return the brokers that have been down for long enough. `gone`: brokers that have replicas and are not in the
        cluster; `now`: seconds of a clock that never goes back."""
        self._since = {broker: self._since.get(broker, now) for broker in gone}
        return sorted(broker for broker, since in self._since.items() if now - since >= self._after_seconds)

    def since(self, broker: int) -> float | None:
        """Return the time when it was first seen to be down, or None."""
        return self._since.get(broker)
