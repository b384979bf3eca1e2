"""`pykbroker balance run`, `watch` and `cancel`: execute a plan, show its progress, cancel its moves."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from pykbroker.tools.cluster.time_words import DURATIONS
from pykbroker.tools.commands import drawn_progress
from pykbroker.tools.commands.client_options import ClientOptions, client_options
from pykbroker.tools.commands.command_group import Command
from pykbroker.tools.commands.output import Output, Table, output_option
from pykbroker.tools.commands.time_options import duration_ms

if TYPE_CHECKING:
    from pykbroker.tools.balance.plan_file import PlanFile
    from pykbroker.tools.cluster.asked_cluster import AskedCluster
    from pykbroker.tools.cluster.plan_execution import ExecutionResult, RunOptions
    from pykbroker.tools.cluster.run_progress import ReplicaUnderWay

#: The most partitions that are printed of those that a run has left.
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class LeftRow:
    """A partition that the run left as it is."""

    topic: str
    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class CopyRow:
    """A replica that is being copied; sizes in bytes."""

    topic: str
    partition: int
    to: str
    copied: int
    of: int


def _run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of an execution; the function gets them as `how`, a function that makes RunOptions."""
    options = (
        click.option("--throttle", type=click.IntRange(1), metavar="BYTES/S", help="Limit moves between brokers."),
        click.option(
            "--throttle-directories", type=click.IntRange(1), metavar="BYTES/S", help="Limit moves between directories."
        ),
        click.option(
            "--moves", type=click.IntRange(1), default=50, show_default=True, metavar="N", help="At once, in total."
        ),
        click.option(
            "--moves-per-broker",
            type=click.IntRange(1),
            default=5,
            show_default=True,
            metavar="N",
            help="At once, to or from one broker.",
        ),
    )

    def with_options(
        throttle: int | None, throttle_directories: int | None, moves: int, moves_per_broker: int, **words: Any
    ) -> Any:
        def how() -> RunOptions:
            from pykbroker.tools.balance.execution import ExecutionCaps
            from pykbroker.tools.cluster.plan_execution import RunOptions

            return RunOptions(throttle, throttle_directories, ExecutionCaps(moves, moves_per_broker))

        return function(how=how, **words)

    decorated: Callable[..., Any] = with_options
    for option in reversed(options):
        decorated = option(decorated)
    # click reads the help from the function that it decorates.
    decorated.__doc__ = function.__doc__
    decorated.__click_params__ = decorated.__click_params__ + getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    return decorated


@click.command(
    "run",
    cls=Command,
    example="pykbroker balance run plan.json --throttle 50000000"
    "\npykbroker balance run plan.json --moves 10 --moves-per-broker 2",
)
@click.argument("plan", metavar="FILE")
@click.option(
    "--patience",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait so long for what is held.",
)
@output_option
@client_options
@_run_options
def run(client: ClientOptions, out: Output, plan: str, patience: float, how: Callable[[], RunOptions]) -> int:
    """Carry a plan out, some moves at a time, and end when it is done. The exit status is 1 when something is left.

    A plan that is no longer valid is refused. Ctrl-C and SIGTERM cancel the moves under way. The throttle is removed
    when the run ends. After a kill -9 the next `run`, `watch` or `cancel` removes it, and the same `run` goes on.
    """
    from pykbroker.tools.balance.plan_file import read_plan

    with _one_line():
        with client.cluster() as cluster:
            cluster.nodes()
        wanted = read_plan(Path(plan).read_text(encoding="utf-8"))
        found = _carried_out(client, wanted, replace(how(), patience_seconds=patience))
    _print_result(out, found)
    return int(bool(found.left))


@click.command(
    "watch",
    cls=Command,
    example="pykbroker balance watch\npykbroker balance watch --heal-after 30m --throttle 50000000",
)
@click.option(
    "--interval", type=click.FloatRange(0.05), default=2.0, show_default=True, metavar="SECONDS", help="Look so often."
)
@click.option(
    "--settle",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="A run under which nothing has moved for so long was killed: more than its --patience.",
)
@click.option(
    "--heal-after",
    "heal_after_ms",
    callback=duration_ms("s"),
    metavar="DURATION",
    help=f"Go on, and move replicas from brokers that are gone for so long: {DURATIONS}.",
)
@output_option
@client_options
@_run_options
def watch(
    client: ClientOptions,
    out: Output,
    interval: float,
    settle: float,
    heal_after_ms: int | None,
    how: Callable[[], RunOptions],
) -> None:
    """Show what a run copies, and end when it is done. Takes away what a killed run has left.

    With --heal-after it goes on until it is interrupted, and replaces the replicas of a broker that is gone for longer,
    as a run with these limits does: nothing else moves.
    """
    with _one_line():
        _watch(client, out, interval, settle, how)
        if heal_after_ms is not None:
            _heal(client, out, interval, heal_after_ms / 1000, how())


@click.command("cancel", cls=Command, example="pykbroker balance cancel\npykbroker balance cancel --back plan.json")
@click.option("--back", metavar="FILE", help="Bring back, too, what this plan has moved already.")
@output_option
@client_options
@_run_options
def cancel(client: ClientOptions, out: Output, back: str | None, how: Callable[[], RunOptions]) -> int:
    """Cancel the moves that a run has under way, and remove its throttle. The run ends.

    The replicas get their former order back. Moves that are complete stay, unless --back names the plan.
    """
    from pykbroker.tools.balance.plan_file import read_plan
    from pykbroker.tools.cluster import run_marks, run_progress

    with _one_line():
        with client.cluster() as cluster:
            cluster.nodes()
            plan = None if back is None else read_plan(Path(back).read_text(encoding="utf-8"))
            marks = run_marks.found(cluster)
            ended = run_progress.ended(cluster, marks) if marks.topics else []
        value: dict[str, Any] = {"called_back": [{"topic": topic, "partition": number} for topic, number in ended]}
        said = f"{len(ended)} partitions were called back." if marks.topics else "No run was under way."
        if plan is None:
            out.done(said, value)
            return 0
        # The plan does not have the directories in which replicas were before, so moves of directories are not undone.
        moves = {place: each.back for place, each in plan.moves.items()}
        found = _carried_out(client, replace(plan, moves=moves, directories={}), how())
    out.done(f"{said} {found.done} partitions are as before.", {**value, "back": found.done, "left": _left(found)})
    _say_left(found)
    return int(bool(found.left))


# -- shared helpers ---------------------------------------------------------------------------------------------------


@contextmanager
def _one_line() -> Iterator[None]:
    """Report errors in a plan, and errors that end a run, in one line and without a traceback."""
    from pykbroker.tools.cluster.plan_execution import RunStopped

    try:
        yield
    except (ValueError, RunStopped) as error:
        raise click.ClickException(" ".join(str(error).split())) from None


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C; a second signal does not interrupt the handling of the first."""

    def end(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {}
    try:
        for each in (signal.SIGTERM, signal.SIGINT):
            before[each] = signal.signal(each, end)
    except ValueError:
        # Only the main thread may set handlers of signals, and this is another thread.
        before = {}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _carried_out(client: ClientOptions, wanted: PlanFile, how: RunOptions) -> ExecutionResult:
    from pykbroker.tools.balance.throttle import too_slow
    from pykbroker.tools.cluster.plan_execution import PlanExecution

    def connect(addresses: Sequence[str]) -> AskedCluster:
        return (replace(client, bootstrap=",".join(addresses)) if addresses else client).cluster()

    def tell(line: str) -> None:
        click.echo(line, err=True)

    if how.throttle is not None and (line := too_slow(wanted.moves.values(), how.caps.moves_per_broker, how.throttle)):
        tell(line)
    with drawn_progress.bar("moved", len(wanted.moves)) as draw, _ended_by_signals():
        execution = PlanExecution(connect, wanted, how, tell, lambda step: draw(step.done))
        return execution.run()


def _left(found: ExecutionResult) -> list[LeftRow]:
    return [LeftRow(*place, found.left[place]) for place in sorted(found.left)]


def _print_result(out: Output, found: ExecutionResult) -> None:
    directories = f", {found.directories} replicas in their directories" if found.directories else ""
    said = f"{found.done} partitions are as planned{directories}; {len(found.left)} are left."
    out.done(said, {"done": found.done, "directories": found.directories, "left": _left(found)})
    _say_left(found)


def _say_left(found: ExecutionResult) -> None:
    rows = _left(found)
    for each in rows[:_SHOWN]:
        click.echo(f"left: {each.topic}-{each.partition}: {each.reason}", err=True)
    if len(rows) > _SHOWN:
        click.echo(f"left: and {len(rows) - _SHOWN:,} more", err=True)
    if rows:
        click.echo("The same run goes on where it was; where the cluster has changed, plan again.", err=True)


def _watch(client: ClientOptions, out: Output, interval: float, settle: float, how: Callable[[], RunOptions]) -> None:
    from pykbroker.tools.cluster import run_marks, run_progress

    shown: list[CopyRow] | None = None
    quiet_since = time.monotonic()
    with client.cluster() as cluster:
        while True:
            cluster.refresh()
            marks = run_marks.found(cluster)
            if not marks.topics:
                out.done("No run is under way.", {"under_way": []})
                return
            copied = run_progress.under_way(cluster, marks)
            rows = [_copy_row(each) for each in copied]
            if rows != shown:
                _show(out, rows)
                shown = rows
            if rows:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since >= settle:
                run_marks.clear(cluster, marks)
                out.done("A run was killed: its moves are done, its throttle is gone.", {"under_way": []})
                return
            time.sleep(interval)


def _copy_row(each: ReplicaUnderWay) -> CopyRow:
    to = f"broker {each.broker}" if each.directory is None else f"{each.directory} of broker {each.broker}"
    return CopyRow(each.topic, each.partition, to, each.copied, each.size)


def _show(out: Output, rows: Sequence[CopyRow]) -> None:
    out.tables({"under_way": rows}, Table(CopyRow, rows, f"{len(rows)} replicas are copied."))


def _heal(client: ClientOptions, out: Output, interval: float, after_seconds: float, how: RunOptions) -> None:
    """Replace the replicas of dead brokers until the command is interrupted."""
    from pykbroker.tools.balance.healing import GoneBrokers
    from pykbroker.tools.cluster import partition_load
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker.tools.cluster.plan_execution import RunStopped
    from pykbroker.tools.commands.balance_planning import refused_in_one_line

    with refused_in_one_line():
        import numpy  # noqa: F401 # before hours have passed
    gone = GoneBrokers(after_seconds)
    given_up: set[int] = set()
    said = ""
    while True:
        try:
            with client.cluster() as cluster:
                now = partition_load.placed(cluster).brokers()
            missing = [broker.id for broker in now if not broker.is_alive]
            given_up &= set(missing)
            long_gone = gone.note(missing, time.monotonic())
            if new := [broker for broker in long_gone if broker not in given_up]:
                given_up |= set(_healed(client, out, new, how))
            said = ""
        except (AskFailed, RunStopped, ValueError, click.ClickException) as error:
            if (line := f"not healed yet, it is tried again: {error}") != said:
                click.echo(said := line, err=True)
        time.sleep(interval)


def _healed(client: ClientOptions, out: Output, gone: Sequence[int], how: RunOptions) -> list[int]:
    """Move the replicas of these brokers; returns the brokers for which the cluster does not allow this."""
    from pykbroker.tools.balance.plan import as_json
    from pykbroker.tools.balance.plan_file import read_plan
    from pykbroker.tools.commands.balance_planning import PlanWishes, made_plan

    names = ", ".join(map(str, gone))
    click.echo(f"broker {names} is gone for too long: its replicas are replaced", err=True)
    with client.cluster() as cluster:
        made = made_plan(cluster, PlanWishes(0.1, leaving=gone, only_must=True))
        text = as_json(made.plan, cluster.id)
    for each in made.plan.unmet[:_SHOWN]:
        click.echo(f"not met: {each.goal}: {each.subject} {each.text}", err=True)
    if not made.plan.partitions:
        click.echo(
            f"no replica of broker {names} can be moved. This is tried again only after the broker has come back",
            err=True,
        )
        return list(gone)
    _print_result(out, _carried_out(client, read_plan(text), how))
    return []
