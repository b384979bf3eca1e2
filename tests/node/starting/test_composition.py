"""The stack of started parts: the parts that a node starts are closed in reverse, all or half of them, and nothing is
left."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import pykbroker.node
from pykbroker.config.load import development_profile, load
from pykbroker.coordinator.transaction.service import TransactionService
from pykbroker.net.listener import Listener
from pykbroker.node.node import Node
from pykbroker.node.parts import Close, StartedParts
from pykbroker.node.start_options import StartOptions
from pykbroker.node_to_controller.controller_lifecycle import ControllerRegistration
from pykbroker.node_to_controller.lifecycle import BrokerLifecycle
from pykbroker.quorum.driver import QuorumDriver
from pykbroker.replica.table import ReplicaTable
from pykbroker.runtime import OsRuntime
from pykbroker.storage.cleaner import LogCleaner
from pykbroker.storage.moves import Moves
from pykbroker.storage.upkeep import Upkeep
from pykbroker_log.log_dirs import LogDir
from testkit.nodes.sim import Sim
from testkit.ports import steady_port
from tests.net.fakes import make_listener
from tests.parsed import parsed


class FaultError(Exception):
    """The node itself never raises it."""


class Watch:
    """Records the parts that are added to the stack and closed; at one part it calls `fault`."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int = -1, fault: Callable[[], object] = lambda: None) -> None:
        self.added: list[str] = []
        self.closed: list[str] = []
        add = StartedParts.add

        def watched(parts: StartedParts, name: str, close: Close) -> None:
            def noted() -> Awaitable[None] | None:
                ending = close()
                if inspect.isawaitable(ending):
                    return self._ended(name, ending)
                self.closed.append(name)
                return None

            add(parts, name, noted)
            self.added.append(name)
            if len(self.added) - 1 == at:
                fault()

        patch.setattr(StartedParts, "add", watched)

    async def _ended(self, name: str, ending: Awaitable[None]) -> None:
        # A part may be a stack of its own, which closes first.
        await ending
        self.closed.append(name)


def started_parts() -> list[str]:
    """Return the stack of a whole node."""
    with pytest.MonkeyPatch.context() as patch:
        watch = Watch(patch)
        sim = Sim()

        async def stop(sim: Sim) -> None:
            assert not watch.closed
            await sim.sim_node.stop()

        sim.run(stop)
        sim.close()
        assert watch.closed == watch.added[::-1]
        return watch.added


def test_a_node_stops_in_the_reverse_order_of_its_start() -> None:
    parts = started_parts()
    assert parts[0] == "log directories"
    # Each half's listeners are on the stack twice: bound first of all, served when the half is ready.
    assert parts.index("quorum") < parts.index("controller") < parts.index("broker lifecycle") < parts.index("replicas")
    assert [name for name in parts if name.startswith("listener")] == [
        "listener CONTROLLER",
        "listener PLAINTEXT",
        "listener CONTROLLER",
        "listener PLAINTEXT",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("cancelled", [False, True], ids=["fails", "is cancelled"])
def test_a_start_that_ends_after_any_part_closes_what_was_started_in_reverse(
    cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = started_parts()
    for at, name in enumerate(whole):
        starting: list[asyncio.Task[None]] = []

        def fault(starting: list[asyncio.Task[None]] = starting, name: str = name) -> None:
            if not cancelled:
                raise FaultError(name)
            starting[0].cancel()

        with pytest.MonkeyPatch.context() as patch:
            watch = Watch(patch, at, fault)
            sim = Sim()

            async def play(
                sim: Sim = sim, starting: list[asyncio.Task[None]] = starting, watch: Watch = watch, name: str = name
            ) -> None:
                before = asyncio.all_tasks()
                starting.append(asyncio.ensure_future(sim.sim_node.start()))
                with pytest.raises(asyncio.CancelledError if cancelled else FaultError):
                    await starting[0]
                if cancelled:
                    await sim.node.stop()
                await asyncio.sleep(0)
                assert watch.closed == watch.added[::-1]
                assert name in watch.closed
                assert not sim.world.network._listening
                assert not sim.disk._locks
                assert asyncio.all_tasks() == before

            sim.world.loop.run_until_complete(asyncio.wait_for(play(), 1e6))
            sim.close()


#: the class and method of a part's start, and how many of that kind have started before the one that fails
STARTS: list[tuple[type, str, int]] = [
    (LogDir, "_start", 1),
    (Listener, "bind", 0),
    (Listener, "bind", 1),
    (QuorumDriver, "start", 0),
    (Listener, "serve", 0),
    (BrokerLifecycle, "start", 0),
    (ReplicaTable, "start", 0),
    (Moves, "start", 0),
    (Upkeep, "start", 0),
    (LogCleaner, "start", 0),
    (TransactionService, "start", 0),
    (Listener, "serve", 1),
    (ControllerRegistration, "start", 0),
]


class ThatOne:
    """One start of a part: it fails after it has done everything, so that its work is there to be cleaned up."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: type, method: str, earlier: int) -> None:
        self.failed = False
        self._left = earlier
        start = getattr(kind, method)

        def failing(*args: Any, **kwargs: Any) -> Any:
            result = start(*args, **kwargs)
            if inspect.iscoroutine(result):
                return self._awaited(result)
            self._fail()
            return result

        patch.setattr(kind, method, failing)

    async def _awaited(self, starting: Coroutine[Any, Any, None]) -> None:
        await starting
        self._fail()

    def _fail(self) -> None:
        self._left -= 1
        if self._left < 0 and not self.failed:
            self.failed = True
            raise FaultError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method", "earlier"), STARTS, ids=[f"{kind.__name__}.{method}-{number}" for kind, method, number in STARTS]
)
def test_a_fault_in_the_start_of_a_part_leaves_no_socket_no_lock_no_task(
    kind: type, method: str, earlier: int, tmp_path: Path
) -> None:
    client = steady_port()
    controller = client + 1
    config = load(
        {
            **development_profile(str(tmp_path / "a"), client),
            "log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}",
            "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        }
    )

    async def play() -> None:
        runtime = OsRuntime(asyncio.get_running_loop())
        before = asyncio.all_tasks()
        with pytest.MonkeyPatch.context() as patch:
            fault = ThatOne(patch, kind, method, earlier)
            with pytest.raises(FaultError):
                await Node(config, runtime, options=StartOptions(may_format=True)).start()
            assert fault.failed
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        # The same ports and the same directories work again.
        again = Node(config, runtime, options=StartOptions(may_format=True))
        await again.start()
        await again.stop()
        assert again.fatal is None
        runtime.close()

    asyncio.run(play())


def test_a_part_that_cannot_be_closed_keeps_no_other_from_closing(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[str] = []

    def broken() -> None:
        raise FaultError

    async def slow() -> None:
        await asyncio.sleep(0)
        closed.append("second")

    async def play() -> None:
        parts = StartedParts()
        parts.add("first", lambda: closed.append("first"))
        parts.add("second", slow)
        parts.add("third", broken)
        await parts.close()
        await parts.close()

    asyncio.run(play())
    assert closed == ["second", "first"]
    assert "Stopping the third failed" in caplog.text


def test_a_stop_goes_on_when_its_caller_is_cancelled_and_is_made_once() -> None:
    with pytest.MonkeyPatch.context() as patch:
        watch = Watch(patch)
        sim = Sim()

        async def play(sim: Sim) -> None:
            impatient = asyncio.ensure_future(sim.node.stop())
            await asyncio.sleep(0)
            impatient.cancel()
            with pytest.raises(asyncio.CancelledError):
                await impatient
            await sim.node.stop()
            await sim.node.stop()

        sim.run(play)
        sim.close()
        assert watch.closed == watch.added[::-1]


def test_what_is_wired_later_is_wired_once() -> None:
    sim = Sim()

    async def play(sim: Sim) -> None:
        sim.node.on_fatal(lambda: None)
        with pytest.raises(RuntimeError, match="called before"):
            sim.node.on_fatal(lambda: None)

    sim.run(play)
    sim.close()
    listener = make_listener(lambda connection, frame: None)
    with pytest.raises(RuntimeError, match="has its dispatcher already"):
        listener.answer_with(lambda connection, frame: None)


def test_nothing_is_set_on_an_object_after_it_was_made() -> None:
    """In the package that makes the parts, only an object itself sets its attributes."""
    modules = sorted(Path(pykbroker.node.__file__).parent.glob("*.py"))
    assert len(modules) > 5
    for module in modules:
        for node in ast.walk(parsed(module)):
            for target in targets_of(node):
                if isinstance(target, ast.Attribute):
                    assert isinstance(target.value, ast.Name), f"{module.name}:{target.lineno}"
                    assert target.value.id == "self", f"{module.name}:{target.lineno}"


def targets_of(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []
