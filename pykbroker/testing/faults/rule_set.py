"""The active fault rules, and how often each has matched: `broker.faults`.

A test's threads set rules and wait; the nodes' threads ask for a verdict on each request. Responsible for the order of
the rules, their counts and their limit; not responsible for applying a verdict (testing/watched_dispatcher.py). Every
node of a cluster uses the same set, so that rules and counts survive the restart of a node.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from pykbroker.testing.faults.fault_rule import Callback, FaultError, FaultRule, SeenRequest
from pykbroker.testing.faults.named_parts import NamedPart

logger = logging.getLogger(__name__)

MOST_RULES = 100
_POLL_SECONDS = 0.02


class Fault:
    """A rule that is active until `remove` or the end of a `with` block."""

    def __init__(self, faults: Faults, number: int, rule: FaultRule) -> None:
        self._faults = faults
        #: unique in this set, never used twice
        self.number = number
        self.rule = rule
        #: requests that matched since the rule was added
        self.matched = 0
        #: requests on which it acted
        self.acted = 0
        #: the first exception of its callback, or None; requests are served as if the callback had returned None
        self.failure: Exception | None = None

    def wait_for(self, count: int = 1, timeout_seconds: float = 60.0) -> None:
        """Wait until this many requests have matched since the rule was added. Raises TimeoutError with the number so
        far."""
        self._faults.wait_for(self, count, timeout_seconds)

    async def wait_for_async(self, count: int = 1, timeout_seconds: float = 60.0) -> None:
        """Do what `wait_for` does, without blocking the running loop."""
        await self._faults.wait_for_async(self, count, timeout_seconds)

    def remove(self) -> None:
        """Remove the rule; its counts stay as they are. A second call changes nothing."""
        self._faults.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"Fault({self.number}, {self.rule.to_json()}, matched={self.matched}, acted={self.acted})"

    def to_json(self) -> dict[str, Any]:
        """Return the rule as the HTTP server (faults_server.py) returns it."""
        return {"id": self.number, "rule": self.rule.to_json(), "matched": self.matched, "acted": self.acted}


@dataclass(frozen=True, slots=True)
class ActingRule:
    """The rule that acts on a request, and the parts of the request that it applies to."""

    rule: FaultRule
    number: int
    chosen: tuple[NamedPart, ...]


class Faults:
    """Rules in the order in which they were added. Every rule counts each request that it matches. The first matching
    rule that has an action and whose turn it is (`nth`, `times`) acts."""

    def __init__(self) -> None:
        #: a new tuple for each change, because nodes read it without the lock
        self.rules: tuple[Fault, ...] = ()
        self._last_number = 0
        self._changed = threading.Condition()

    # -- for tests ----------------------------------------------------------------------------------------------------

    def add(
        self,
        api: str | int | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        node: int | None = None,
        between_brokers: bool | None = None,
        nth: int | None = None,
        times: int | None = None,
        error: str | int | None = None,
        delay_ms: int | None = None,
        drop: bool | None = None,
        disconnect: bool | None = None,
        change: dict[str, Any] | None = None,
        carried_out: bool | None = None,
        probability: float | None = None,
        seed: int | None = None,
        callback: Callback | None = None,
    ) -> Fault:
        """Add a rule after the others; without an action it only counts. FaultRule describes the arguments. Raises
        FaultError."""
        given = {name: value for name, value in locals().items() if name != "self"}
        return self.put(FaultRule.of(given))

    def put(self, rule: FaultRule) -> Fault:
        """Add a rule. Raises FaultError if there are MOST_RULES already."""
        with self._changed:
            if len(self.rules) >= MOST_RULES:
                raise FaultError(f"there are {MOST_RULES} fault rules already")
            self._last_number += 1
            fault = Fault(self, self._last_number, rule)
            self.rules = (*self.rules, fault)
            return fault

    def find(self, number: int) -> Fault | None:
        """Return the active rule with this number, or None."""
        return next((fault for fault in self.rules if fault.number == number), None)

    def remove(self, fault: Fault) -> None:
        """Remove a rule; has no effect if it was removed already."""
        with self._changed:
            self.rules = tuple(other for other in self.rules if other is not fault)
            self._changed.notify_all()

    def clear(self) -> None:
        """Remove every rule."""
        with self._changed:
            self.rules = ()
            self._changed.notify_all()

    def wait_for(self, fault: Fault, count: int, timeout_seconds: float) -> None:
        """Wait until a rule has matched this many requests. Raises TimeoutError, also if the rule is removed before."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while fault.matched < count:
                self._require_active(fault)
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    raise _too_few(fault, count, timeout_seconds)

    async def wait_for_async(self, fault: Fault, count: int, timeout_seconds: float) -> None:
        """Do what `wait_for` does, without blocking the running loop."""
        deadline = time.monotonic() + timeout_seconds
        while fault.matched < count:
            self._require_active(fault)
            if time.monotonic() >= deadline:
                raise _too_few(fault, count, timeout_seconds)
            # Looking again costs less than a thread for each wait, and a cancelled wait leaves nothing.
            await asyncio.sleep(_POLL_SECONDS)

    def _require_active(self, fault: Fault) -> None:
        if fault not in self.rules:
            raise TimeoutError(f"fault {fault.number} was removed when {fault.matched} requests had matched")

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    # -- for nodes ----------------------------------------------------------------------------------------------------

    def may_match(self, key: int) -> bool:
        """Return True if a rule may apply to this API."""
        return any(fault.rule.api is None or fault.rule.api == key for fault in self.rules)

    def judge(self, seen: SeenRequest) -> ActingRule | None:
        """Count a request, and return the rule that acts on it."""
        turns: list[tuple[Fault, tuple[NamedPart, ...]]] = []
        with self._changed:
            for fault in self.rules:
                chosen = fault.rule.chosen(seen)
                if chosen is None:
                    continue
                fault.matched += 1
                if fault.rule.acts and fault.rule.is_turn(fault.matched):
                    turns.append((fault, chosen))
                self._changed.notify_all()
        # Without the lock, because a callback may take its time, or may add and remove rules.
        for fault, chosen in turns:
            try:
                rule = fault.rule.answered(seen)
            except Exception as error:  # noqa: BLE001  # the code of a test, on a thread of the node
                fault.failure = fault.failure or error
                logger.warning("The callback of fault %d failed, and the request is served: %r", fault.number, error)
                continue
            if rule is not None:
                with self._changed:
                    fault.acted += 1
                return ActingRule(rule, fault.number, chosen)
        return None


def _too_few(fault: Fault, count: int, timeout_seconds: float) -> TimeoutError:
    return TimeoutError(
        f"fault {fault.number} matched {fault.matched} requests in {timeout_seconds:g} s, not {count}: "
        f"{fault.rule.to_json()}"
    )
