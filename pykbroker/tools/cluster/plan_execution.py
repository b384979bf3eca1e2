"""Executes a plan of `balance` in a cluster: sends the requests that tools/balance/execution.py decides, until no move
is left.

Responsible for the marks and the throttle of a run (run_marks.py), which it removes when it ends, unless SIGKILL ends
it. Also responsible for cancelling moves when the run is interrupted, and for new connections when brokers stop. Not
responsible for the decisions, nor for text on a terminal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pykbroker.tools.balance.execution import ExecutionCaps, ExecutionStep, PlacedPartition, changes_since, next_step
from pykbroker.tools.balance.plan_file import PlanFile
from pykbroker.tools.cluster import configs, leader_choice, reassignments, replicas_on_disk, run_marks, topics
from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.configs import ResourceKind
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.replicas_on_disk import ReplicaName
from pykbroker.tools.cluster.run_marks import RunMarks
from pykbroker_wire.errors import ErrorCode

T = TypeVar("T")
#: Opens a connection to one of the addresses. If the list is empty, it uses the addresses of the command line.
Connect = Callable[[Sequence[str]], AskedCluster]

_ASK_AGAIN_SECONDS: Final = 0.25
_RECONNECT_SECONDS: Final = 30.0
_SHOWN: Final = 5
#: A run stops only if its marks are missing this many times in a row, because a broker may apply them late.
_MISSED: Final = 4


class RunStopped(Exception):
    """The run ended before the plan was complete. The message is one line with the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Rates in bytes per second, per broker; None means no limit."""

    throttle: int | None = None
    throttle_directories: int | None = None
    caps: ExecutionCaps = field(default_factory=ExecutionCaps)
    #: how long a run waits while no partition moves, but a move is held
    patience_seconds: float = 10.0


@dataclass(slots=True)
class ExecutionResult:
    """`left`: the partitions that the run did not move, and the reasons."""

    done: int = 0
    directories: int = 0
    left: dict[PartitionName, str] = field(default_factory=dict)


class PlanExecution:
    """Call `PlanExecution(connect, plan, options, tell).run()`. `tell` is called with each line for the user, `show`
    with each step."""

    def __init__(
        self,
        connect: Connect,
        plan: PlanFile,
        options: RunOptions,
        tell: Callable[[str], None],
        show: Callable[[ExecutionStep], None] = lambda step: None,
    ) -> None:
        self._connect = connect
        self._plan = plan
        self._moves = dict(plan.moves)
        self._directories = {ReplicaName(*name): path for name, path in plan.directories.items()}
        self._options = options
        self._tell = tell
        self._show = show
        self._cluster = connect(())
        self._addresses: list[str] = []
        throttled = options.throttle is not None or options.throttle_directories is not None
        self._marks = RunMarks(has_rate=throttled)
        self._least: dict[str, int] = {}
        self._result = ExecutionResult()
        self._told: dict[PartitionName, str] = {}
        self._missed = 0
        self._may_copy = not self._directories

    def run(self) -> ExecutionResult:
        """Execute the plan. Raises RunStopped, AskFailed, and ValueError if the plan no longer fits the cluster. If a
        signal interrupts the run, moves in progress are cancelled; moves that are complete stay."""
        try:
            self._check(self._cluster)
            try:
                return self._until_over()
            except KeyboardInterrupt:
                self._asked(self._call_back_all)
                raise
            finally:
                self._asked(self._clear)
        finally:
            self._cluster.close()

    # -- before anything moves ----------------------------------------------------------------------------------------

    def _check(self, cluster: AskedCluster) -> None:
        names = {name for name, _ in self._moves}
        self._addresses = [node.address for node in cluster.nodes()]
        if cluster.id != self._plan.cluster_id:
            raise ValueError(f"the plan is for cluster {self._plan.cluster_id}, and this is cluster {cluster.id}")
        seen = self._seen(cluster)
        if changed := changes_since(self._moves, seen):
            raise ValueError(f"the cluster has changed since the plan: {_listed(changed)}. Plan again")
        others = sorted(set(reassignments.ongoing(cluster)) - set(self._moves))
        if others:
            raise ValueError(
                f"{len(others)} partitions move that the plan does not name, such as {others[0][0]}-{others[0][1]}. "
                "Wait for them, or call them back with `balance cancel` or `reassign cancel`"
            )
        if foreign := run_marks.foreign(cluster, names):
            raise ValueError(
                f"another tool has throttled replicas of topic {foreign[0]}. Wait for that tool, or remove its throttle"
            )
        earlier = run_marks.found(cluster)
        if not earlier.has_rate and (rates := run_marks.rates(cluster)) and self._marks.has_rate:
            key, value = next(iter(rates.items()))
            raise ValueError(
                f"the cluster has a throttle already, {key}={value}. Run without a throttle, and that one applies"
            )
        if earlier.topics:
            what = "its throttle: it is" if earlier.has_rate else "its marks: they are"
            self._tell(f"a run that was killed left {what} taken away")
            run_marks.clear(cluster, earlier)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _until_over(self) -> ExecutionResult:
        """Execute the cheapest changes first: orders of replicas, then moves between directories, then moves between
        brokers."""
        idle_since, done = time.monotonic(), -1
        while True:
            step = self._asked(self._do_step)
            self._show(step)
            left = 0
            if not (step.start or step.moving or self._missed):
                left = self._asked(self._do_directories)
                self._may_copy = not left
            if step.is_over and not left:
                break
            if step.start or step.moving or left or step.done > done:
                idle_since, done = time.monotonic(), step.done
            elif time.monotonic() - idle_since > self._options.patience_seconds:
                break
            time.sleep(_ASK_AGAIN_SECONDS)
        self._result.done = step.done
        self._result.left |= step.held | dict.fromkeys(step.elect, "its preferred replica was not elected")
        return self._result

    def _do_step(self, cluster: AskedCluster) -> ExecutionStep:
        cluster.refresh()
        nodes = cluster.nodes()
        self._addresses = [node.address for node in nodes]
        seen = self._seen(cluster)
        alive = {node.id for node in nodes}
        step = next_step(self._moves, seen, alive, self._options.caps, may_copy=self._may_copy)
        self._forget(step.changed)
        if not self._has_marks(cluster):
            step.start.clear()
            step.waiting += 1
            return step
        if step.call_back:
            self._tell_once(step.call_back, "called back")
            self._call_back(cluster, step.call_back)
        self._tell_once(step.held, "waits")
        if step.start:
            self._mark(cluster, seen, step)
            refused = reassignments.alter(cluster, step.start)
            self._forget({place: str(error) for place, error in refused.items() if not error.retriable})
        if step.elect:
            leader_choice.elect(cluster, leader_choice.PREFERRED, step.elect)
        return step

    def _seen(self, cluster: AskedCluster) -> dict[PartitionName, PlacedPartition]:
        names = {name for name, _ in self._moves} & {topic.name for topic in topics.listed(cluster)}
        if new := names - self._least.keys():
            self._least |= _min_isr(cluster, new)
        # This request comes first, so that a move that ends between the two answers counts as moving once more.
        moving = reassignments.ongoing(cluster, [place for place in self._moves if place[0] in names])
        found = {}
        for topic in topics.described(cluster, names):
            for row in topic.partitions:
                place = (topic.name, row.number)
                if place not in self._moves:
                    continue
                move = moving.get(place)
                replicas = row.replicas if move is None else move.replicas
                adding, removing = ((), ()) if move is None else (move.adding, move.removing)
                found[place] = PlacedPartition(
                    replicas, row.isr, row.leader, self._least.get(topic.name, 1), adding, removing
                )
        return found

    def _mark(self, cluster: AskedCluster, seen: Mapping[PartitionName, PlacedPartition], step: ExecutionStep) -> None:
        """Write marks for the moves in progress only, because a complete move with a mark would use a part of the
        rate."""
        on_the_way = [*step.moving, *step.start]
        self._marks.before = {place: self._moves[place].now for place in on_the_way}
        self._marks.added = {place: tuple(sorted(self._moves[place].added)) for place in on_the_way}
        run_marks.put(cluster, self._marks, {name for name, _ in on_the_way})
        if any(self._marks.added.values()):
            run_marks.set_rates(cluster, self._options.throttle, None)

    def _has_marks(self, cluster: AskedCluster) -> bool:
        """Return True if the cluster has the marks. Raises RunStopped if another command has removed them, or has asked
        this run to end."""
        if not self._marks.topics:
            return True
        found = run_marks.found(cluster, self._marks.topics)
        if found.topics and not found.ending:
            self._missed = 0
            return True
        self._missed += 1
        if found.ending or self._missed >= _MISSED:
            self._marks.topics.clear()
            raise RunStopped("another command has ended this run: `balance cancel`, or a `watch` that took it for dead")
        return False

    # -- directories --------------------------------------------------------------------------------------------------

    def _do_directories(self, cluster: AskedCluster) -> int:
        """Begin moves between directories of brokers; returns how many are left."""
        alive = {node.id for node in cluster.nodes()}
        wanted = {name: path for name, path in self._directories.items() if name.broker in alive}
        if not wanted:
            return 0
        places = replicas_on_disk.places(cluster, wanted)
        left = {name for name, path in wanted.items() if places[name].current not in (None, path)}
        moving = {name for name in left if places[name].future is not None}
        room = dict.fromkeys(alive, self._options.caps.moves_per_broker)
        for name in moving:
            room[name.broker] -= 1
        start = {}
        for name in sorted(left - moving):
            if room[name.broker] > 0:
                room[name.broker] -= 1
                start[name] = wanted[name]
        if start:
            self._begin_directories(cluster, start, moving)
        self._result.directories = len(wanted) - len(left)
        return len(left)

    def _begin_directories(
        self, cluster: AskedCluster, start: Mapping[ReplicaName, str], moving: Iterable[ReplicaName]
    ) -> None:
        on_the_way = {(name.topic, name.partition) for name in (*start, *moving)}
        self._marks.before = {place: self._moves[place].replicas for place in sorted(on_the_way)}
        self._marks.added = {}
        run_marks.put(cluster, self._marks, {name for name, _ in on_the_way})
        run_marks.set_rates(cluster, None, self._options.throttle_directories)
        for name, error in replicas_on_disk.move(cluster, start).items():
            if not error.retriable:
                self._forget({(name.topic, name.partition): f"to {start[name]}: {error}"})

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _forget(self, changed: Mapping[PartitionName, str]) -> None:
        """Remove these partitions from the plan."""
        for place, text in changed.items():
            self._tell(f"{place[0]}-{place[1]} {text}: it stays as it is")
            self._result.left[place] = text
            self._moves.pop(place, None)
            for name in [each for each in self._directories if (each.topic, each.partition) == place]:
                del self._directories[name]

    def _tell_once(self, reasons: Mapping[PartitionName, str], what: str) -> None:
        new: dict[str, list[PartitionName]] = {}
        for place, text in reasons.items():
            if self._told.get(place) != f"{what} {text}":
                self._told[place] = f"{what} {text}"
                new.setdefault(text, []).append(place)
        for text, places in new.items():
            self._tell(f"{what}: {text}: {_names(places)}")

    def _call_back(self, cluster: AskedCluster, places: Iterable[PartitionName]) -> None:
        call_back(cluster, {place: self._moves[place].now for place in places})

    def _call_back_all(self, cluster: AskedCluster) -> None:
        moving = reassignments.ongoing(cluster, self._moves)
        self._call_back(cluster, moving)
        stop_directory_moves(cluster, self._directories)
        if moving:
            self._tell(f"called back: the run was interrupted: {_names(moving)}")

    def _clear(self, cluster: AskedCluster) -> None:
        if self._marks.topics:
            run_marks.clear(cluster, self._marks)

    # -- asking -------------------------------------------------------------------------------------------------------

    def _asked(self, question: Callable[[AskedCluster], T]) -> T:
        """Return the answer to a question. Repeat it over new connections while brokers stop and start."""
        until = time.monotonic() + _RECONNECT_SECONDS
        while True:
            try:
                return question(self._cluster)
            except AskFailed as error:
                if not error.passes or time.monotonic() > until:
                    raise
            self._cluster.close()
            time.sleep(_ASK_AGAIN_SECONDS)
            self._cluster = self._connect(self._addresses)


def call_back(cluster: AskedCluster, before: Mapping[PartitionName, Sequence[int]]) -> None:
    """Cancel the moves of these partitions, and restore the order of replicas from before."""
    if not before:
        return
    failures = reassignments.alter(cluster, dict.fromkeys(before))
    for place, error in failures.items():
        if error.code not in (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise RunStopped(f"{place[0]}-{place[1]} cannot be called back: {error}")
    known = {place: replicas for place, replicas in before.items() if place not in failures and replicas}
    if known:
        reassignments.alter(cluster, known)


def stop_directory_moves(cluster: AskedCluster, replicas: Collection[ReplicaName]) -> int:
    """Stop the directory moves of these replicas; returns how many were in progress."""
    alive = {node.id for node in cluster.nodes()}
    places = replicas_on_disk.places(cluster, [name for name in replicas if name.broker in alive])
    back = {name: each.current for name, each in places.items() if each.future is not None and each.current is not None}
    replicas_on_disk.move(cluster, back)
    return len(back)


def _min_isr(cluster: AskedCluster, names: Iterable[str]) -> dict[str, int]:
    told = configs.described(cluster, [(ResourceKind.TOPIC, name) for name in sorted(names)])
    return {
        name: int(one.value or 1)
        for (_, name), each in told.items()
        for one in each
        if one.name == "min.insync.replicas"
    }


def _listed(changed: Mapping[PartitionName, str]) -> str:
    said = "; ".join(f"{topic}-{number} {changed[topic, number]}" for topic, number in sorted(changed)[:_SHOWN])
    return said if len(changed) <= _SHOWN else f"{said}; and {len(changed) - _SHOWN} more"


def _names(places: Collection[PartitionName]) -> str:
    said = ", ".join(f"{topic}-{number}" for topic, number in sorted(places)[:_SHOWN])
    return said if len(places) <= _SHOWN else f"{said} and {len(places) - _SHOWN} more"
