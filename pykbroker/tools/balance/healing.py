"""Which brokers have been gone for so long that their replicas shall go elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Collection


class GoneBrokers:
    """`after_seconds`: a broker that is back before begins anew."""

    def __init__(self, after_seconds: float) -> None:
        self._after_seconds = after_seconds
        #: broker -> since when
        self._since: dict[int, float] = {}

    def note(self, gone: Collection[int], now: float) -> list[int]:
        """`gone`: brokers with replicas that are not in the cluster; `now`: seconds that never go back. Returns those
        that have been gone for long enough."""
        self._since = {broker: self._since.get(broker, now) for broker in gone}
        return sorted(broker for broker, since in self._since.items() if now - since >= self._after_seconds)

    def since(self, broker: int) -> float | None:
        """When it was first seen to be gone."""
        return self._since.get(broker)
