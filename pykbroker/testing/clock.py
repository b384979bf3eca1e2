"""`clock` of a Broker or Cluster: the time that its clients feel, which a test moves with `advance`.

Responsible for what users call and for the texts of durations. Not responsible for how clocks move (client_time.py).
"""

from __future__ import annotations

import datetime
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Final

from pykbroker.config.authorization import AUTHORIZER
from pykbroker.config.kinds import ConfigError
from pykbroker.config.typed_config import Config
from pykbroker.testing.asynchronous import on_thread
from pykbroker.testing.client_time import ClientTime

_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
}
_DURATION: Final = re.compile(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]+?)(s?)\s*")
#: the longest jump: years later no test waits for anything
_LONGEST_MS: Final = 3_660 * 86_400_000


class ClockError(ValueError):
    """A duration is not possible."""


def _no_duration(given: object) -> ClockError:
    return ClockError(f'a duration is text such as "45s", "10 min" or "7 d", or milliseconds, not {given!r}')


def duration_ms(given: str | float | datetime.timedelta) -> int:
    """Return the milliseconds of `"45s"`, `"10 min"`, `"7 d"`, a timedelta, or a number of milliseconds. Raises
    ClockError."""
    if isinstance(given, datetime.timedelta):
        found = given / datetime.timedelta(milliseconds=1)
    elif isinstance(given, str):
        match = _DURATION.fullmatch(given.lower())
        unit = None if match is None else _UNITS_MS.get(match[2] + match[3], _UNITS_MS.get(match[2]))
        if match is None or unit is None:
            raise _no_duration(given)
        found = float(match[1]) * unit
    elif isinstance(given, int | float) and not isinstance(given, bool):
        found = float(given)
    else:
        raise _no_duration(given)
    if not 1 <= found <= _LONGEST_MS:
        raise ClockError(f"a clock moves by 1 ms up to 10 years, not by {given!r}")
    return round(found)


class Clock:
    """The time that clients feel. It runs like real time, and `broker.clock.advance("45s")` moves it forward."""

    def __init__(
        self, moved: ClientTime, configs: Callable[[], Iterable[Config]], is_asked: Callable[[int | None], bool]
    ) -> None:
        """`configs` returns the configurations of the nodes, and `is_asked` True for a node that takes part."""
        self._moved = moved
        self._configs = configs
        self._is_asked = is_asked

    @property
    def advanced(self) -> datetime.timedelta:
        """The sum of all advances."""
        return datetime.timedelta(milliseconds=round(self._moved.offset_s * 1000))

    def advance(self, by: str | float | datetime.timedelta, *, wall_clock: bool = False) -> None:
        """Let this time pass for the clients, at once: `"45s"`, `"10 min"`, `"7 d"`, a timedelta, or milliseconds.

        Sessions of group members, rebalances, transactions and locks of share groups that end in this time have ended
        when this returns, in the order of their ends. Retention and the expiry of offsets, producers and transactional
        ids have run if the time of their interval has come. Records from before are older by this
        time. `wall_clock`: the timestamps that the broker writes follow too, for clients whose own clock is moved as
        well; a record with the timestamp of a clock that stays then looks old. Raises ClockError (a ValueError) for a
        duration that is not possible, ConfigError beside an authorizer, RuntimeError if nothing runs, or if every node
        ends before the clock has moved.
        """
        by_ms = duration_ms(by)
        require_movable(self._configs())
        self._moved.advance(by_ms, self._is_asked, wall_clock=wall_clock)

    advance_async = on_thread(advance)


def require_movable(configs: Iterable[Config]) -> None:
    """Raise ConfigError if the clock of nodes with these configurations must not be moved."""
    if any(config.optional_str(AUTHORIZER) for config in configs):
        raise ConfigError(f"the clock is not moved beside an authorizer ({AUTHORIZER})")


class HasClock(ABC):
    """A broker or cluster with a clock. Its nodes get `_client_time.clock_of`."""

    _client_time: ClientTime

    @property
    def clock(self) -> Clock:
        """The time that clients feel."""
        return Clock(self._client_time, self._configs, self._takes_part)

    @abstractmethod
    def _configs(self) -> Iterable[Config]:
        """Return the configurations of its nodes. Raises RuntimeError before the start."""

    @abstractmethod
    def _asked_nodes(self) -> tuple[int, ...]:
        """Return the nodes that serve and are not paused."""

    def _takes_part(self, node: int | None) -> bool:
        return node is None or node in self._asked_nodes()
