"""Executes a plan one decision at a time: takes the state of the cluster, and returns the requests to send. Pure.

The state of a partition follows from the cluster alone, never from earlier requests. So a new run can continue where a
killed run stopped, and a run notices changes by other programs. Not responsible for sending, throttles or time
(tools/cluster/plan_execution.py).

Invariants: no move begins or continues if a broker of its target is down. No partition below its min.insync.replicas
begins to move. The caps apply to the sum of the moves in progress and the moves that begin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from pykbroker.tools.balance.plan_file import PlaceName, PlannedMove


class MoveState(Enum):
    WAITING = "waiting"
    MOVING = "moving"
    #: its replicas are the replicas of the plan
    MOVED = "moved"
    #: another program moved it: its replicas are neither the replicas from before the plan nor the plan's
    CHANGED = "changed"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """A partition as the cluster describes it. `replicas` includes the replicas that are being added; `leader` is -1 if
    there is none."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    min_isr: int = 1
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def is_fragile(self) -> bool:
        """True without a leader, or below min.insync.replicas. If min.insync.replicas is above the number of replicas,
        all replicas in sync are enough."""
        settled = len(set(self.replicas) - set(self.adding))
        return self.leader < 0 or len(self.isr) < min(self.min_isr, settled)


@dataclass(frozen=True, slots=True)
class ExecutionCaps:
    """The most changes at the same time. A broker takes part in a move as the leader that replicas are copied from, or
    as a broker that they are copied to."""

    moves: int = 50
    moves_per_broker: int = 5
    leader_changes: int = 500


@dataclass(slots=True)
class ExecutionStep:
    """The requests to send now, and the progress of the plan. The texts are reasons."""

    #: moves to begin, or new orders of replicas to set
    start: dict[PlaceName, tuple[int, ...]] = field(default_factory=dict)
    #: moves to cancel, because they go to a broker that is down
    call_back: dict[PlaceName, str] = field(default_factory=dict)
    #: partitions whose preferred replica is not the leader yet
    elect: list[PlaceName] = field(default_factory=list)
    moving: list[PlaceName] = field(default_factory=list)
    #: moves that may not begin at present
    held: dict[PlaceName, str] = field(default_factory=dict)
    #: partitions that no longer fit the plan
    changed: dict[PlaceName, str] = field(default_factory=dict)
    #: the number of moves that wait for the caps, or for steps that come before copies
    waiting: int = 0
    done: int = 0

    @property
    def is_over(self) -> bool:
        return not (self.start or self.call_back or self.elect or self.moving or self.held or self.waiting)


def state_of(planned: PlannedMove, seen: PlacedPartition | None) -> MoveState:
    if seen is None:
        return MoveState.MISSING
    if seen.is_moving:
        on_its_way = set(seen.replicas) - set(seen.removing) == set(planned.replicas)
        return MoveState.MOVING if on_its_way else MoveState.CHANGED
    if seen.replicas == planned.replicas:
        return MoveState.MOVED
    # A cancelled move may leave the replicas in another order.
    if set(seen.replicas) == set(planned.now):
        return MoveState.WAITING
    # For a moment after the controller has ended a move, a broker may still return the replicas of both assignments.
    return MoveState.MOVING if set(seen.replicas) == {*planned.now, *planned.replicas} else MoveState.CHANGED


def changes_since(
    plan: Mapping[PlaceName, PlannedMove], seen: Mapping[PlaceName, PlacedPartition]
) -> dict[PlaceName, str]:
    """Return the partitions that another program has moved or deleted: their state is neither that from before the
    plan, nor that of the plan, nor a move from the first to the second."""
    found = {}
    for place, planned in plan.items():
        state = state_of(planned, seen.get(place))
        if state is MoveState.MISSING:
            found[place] = "is gone"
        elif state is MoveState.CHANGED:
            found[place] = f"was on {listed(planned.now)} and is on {listed(seen[place].replicas)}"
    return found


def next_step(
    plan: Mapping[PlaceName, PlannedMove],
    seen: Mapping[PlaceName, PlacedPartition],
    alive: Collection[int],
    caps: ExecutionCaps,
    *,
    may_copy: bool = True,
) -> ExecutionStep:
    """Return the next step. `may_copy`: True if replicas may begin to move to other brokers. If it is False, only moves
    that copy nothing may begin."""
    step = ExecutionStep(changed=changes_since(plan, seen))
    busy: Counter[int] = Counter()
    waits: list[PlaceName] = []
    for place, planned in plan.items():
        state = state_of(planned, seen.get(place))
        if state is MoveState.MOVING:
            if gone := _gone(planned, alive):
                step.call_back[place] = gone
            else:
                step.moving.append(place)
                busy.update(_takes_part(planned, seen[place]))
        elif state is MoveState.MOVED:
            _lead(step, place, seen[place], alive, caps)
        elif state is MoveState.WAITING:
            waits.append(place)
    fragile = next((place for place in step.moving if seen[place].is_fragile), None)
    # Changes without a copy come first.
    for place in sorted(waits, key=lambda each: bool(plan[each].added)):
        reason = _why_held(plan[place], seen[place], alive)
        if reason is None and fragile is not None:
            reason = f"{fragile[0]}-{fragile[1]}, which moves, has fewer replicas in sync than min.insync.replicas"
        if reason is not None:
            step.held[place] = reason
        elif (may_copy or not plan[place].added) and _fits(plan[place], seen[place], step, busy, caps):
            step.start[place] = plan[place].replicas
            busy.update(_takes_part(plan[place], seen[place]))
        else:
            step.waiting += 1
    return step


def listed(brokers: Collection[int]) -> str:
    return f"[{', '.join(map(str, brokers))}]"


def _lead(
    step: ExecutionStep, place: PlaceName, seen: PlacedPartition, alive: Collection[int], caps: ExecutionCaps
) -> None:
    preferred = seen.replicas[0]
    if seen.leader == preferred:
        step.done += 1
    elif preferred not in alive or preferred not in seen.isr:
        step.held[place] = f"broker {preferred}, which is to lead it, is not in sync"
    elif len(step.elect) < caps.leader_changes:
        step.elect.append(place)
    else:
        step.waiting += 1


def _fits(
    planned: PlannedMove, seen: PlacedPartition, step: ExecutionStep, busy: Counter[int], caps: ExecutionCaps
) -> bool:
    if not planned.added:
        return len(step.start) < caps.leader_changes
    if len(step.moving) + len(step.start) >= caps.moves:
        return False
    return all(busy[broker] < caps.moves_per_broker for broker in _takes_part(planned, seen))


def _takes_part(planned: PlannedMove, seen: PlacedPartition) -> set[int]:
    return {*planned.added, seen.leader} if planned.added else set()


def _gone(planned: PlannedMove, alive: Collection[int]) -> str | None:
    missing = sorted(set(planned.replicas) - set(alive))
    return f"broker {missing[0]} is gone" if missing else None


def _why_held(planned: PlannedMove, seen: PlacedPartition, alive: Collection[int]) -> str | None:
    if gone := _gone(planned, alive):
        return gone
    if seen.leader < 0:
        return "it has no leader"
    if seen.is_fragile:
        return "it has fewer replicas in sync than min.insync.replicas"
    if len(planned.replicas) < min(seen.min_isr, len(planned.now)):
        return "it would have fewer replicas than min.insync.replicas"
    return None
