"""Faults of the user's applications: values that a seed draws, and `AppFaults`, which carries them out.

Responsible for the lives and the network of applications and for failures of their store during a disturbance. Faults
of brokers are in fault_plan.py and faults.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pykbroker_worlds.apps import AppProcess
from pykbroker_worlds.faults.timeline import Timeline
from pykbroker_worlds.simulated.network import USUAL, Delay, both_ways
from pykbroker_worlds.simulated.world import SimWorld
from pykbroker_worlds.store import Store


class AppKind(Enum):
    """The kinds of faults, each of one application or of the store."""

    KILL = "kill"
    #: as in a rolling deployment: SIGTERM, and a start some time later
    STOP = "stop"
    PAUSE = "pause"
    ISOLATE = "isolate"
    SLOW_NETWORK = "slow network"
    STORE = "store"


_WEIGHTS = {
    AppKind.KILL: 6,
    AppKind.STOP: 4,
    AppKind.PAUSE: 6,
    AppKind.ISOLATE: 4,
    AppKind.SLOW_NETWORK: 2,
    AppKind.STORE: 2,
}
#: Seconds from and to: most faults are over soon, some last longer than a session of 10 s or 45 s.
_SHORT, _LONG = (0.05, 4.0), (8.0, 60.0)


@dataclass(frozen=True, slots=True)
class AppFault:
    """`at` is in seconds since the begin of the disturbance. `who`, from 0 to 1, chooses among the applications that
    live then. `level`, from 0 to 1, is the severity."""

    number: int
    at: float
    kind: AppKind
    who: float
    seconds: float
    level: float


def draw_app_faults(rng: random.Random, seconds: float, first: int) -> list[AppFault]:
    """Draw the faults of a disturbance, in the order of their times; their numbers begin with `first`."""
    kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    times = sorted(rng.uniform(0.0, seconds) for _ in range(rng.randint(1, 6)))
    faults = []
    for number, at in enumerate(times, first):
        kind = rng.choices(kinds, weights)[0]
        lasting = rng.uniform(*(_LONG if rng.random() < 0.35 else _SHORT))
        faults.append(AppFault(number, at, kind, rng.random(), lasting, rng.random()))
    return faults


class AppFaults:
    """`run` carries the faults out, each at its time. `heal` ends those that are left."""

    def __init__(
        self,
        world: SimWorld,
        faults: Sequence[AppFault],
        apps: Sequence[AppProcess],
        brokers: Sequence[str],
        store: Store,
    ) -> None:
        """`apps`: the applications that faults may choose. `brokers`: the machines of the brokers."""
        self._world = world
        self._faults = faults
        self._apps = apps
        self._brokers = list(brokers)
        self._store = store
        self._timeline = Timeline(world.loop)
        self._taken: set[str] = set()
        #: the shares of transactions that fail: what the test has set, and those of present faults
        self._shares = [store.fail_share]

    async def run(self, seconds: float, tasks: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        """Begin each fault at its time; `tasks` runs one concurrently with the others."""
        await self._timeline.run(self._faults, seconds, self._do, tasks)

    def heal(self) -> None:
        """End every fault: applications run again, with a whole network."""
        self._timeline.end()

    async def _do(self, fault: AppFault) -> None:
        if fault.kind is AppKind.STORE:
            await self._spoil_store(fault)
            return
        living = [app for app in self._apps if app.is_alive and app.name not in self._taken]
        if not living:
            return
        app = living[int(fault.who * len(living))]
        self._taken.add(app.name)
        try:
            await self._take(fault, app)
        finally:
            self._taken.discard(app.name)

    async def _take(self, fault: AppFault, app: AppProcess) -> None:
        network = self._world.network

        def tell(text: str) -> None:
            self._world.tell(app.name, f"fault {fault.number}: {text}")

        match fault.kind:
            case AppKind.KILL:
                tell(f"{fault.seconds:.2f} s without it")
                app.kill()
                await self._timeline.last(fault.seconds)
                if not app.is_alive:
                    app.start()
            case AppKind.STOP:
                tell(f"a deployment, {fault.seconds:.2f} s without it")
                await app.stop()
                await self._timeline.last(fault.seconds)
                if not app.is_alive:
                    app.start()
            case AppKind.PAUSE:
                tell(f"stands still for {fault.seconds:.2f} s")
                app.pause()
                await self._timeline.last(fault.seconds)
                app.resume()
            case AppKind.ISOLATE:
                ways = both_ways([app.machine], self._brokers)
                tell(f"reaches no broker for {fault.seconds:.2f} s")
                network.silence(ways)
                await self._timeline.last(fault.seconds)
                network.restore(ways, resets=round(fault.level))
            case _:
                most = 0.01 * 100**fault.level
                ways = both_ways([app.machine], self._brokers)
                tell(f"up to {most:.3f} s to each broker for {fault.seconds:.2f} s")
                network.slow(ways, Delay(most / 10, most, 0.05))
                await self._timeline.last(fault.seconds)
                network.slow(ways, USUAL)

    async def _spoil_store(self, fault: AppFault) -> None:
        share = 0.02 + 0.5 * fault.level
        self._world.tell(
            "store", f"fault {fault.number}: {share:.0%} of its transactions fail for {fault.seconds:.2f} s"
        )
        self._shares.append(share)
        self._store.fail(max(self._shares))
        await self._timeline.last(fault.seconds)
        self._shares.remove(share)
        self._store.fail(max(self._shares))
