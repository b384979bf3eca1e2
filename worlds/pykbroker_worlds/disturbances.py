"""The faults that a seed draws for `World.disturb`, of brokers and applications, numbered over the whole run.

Responsible for drawing them, and for their end. A failure is shrunk by running the world again with a part of them
(selection.py), so what is drawn must not depend on what happened.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from pykbroker_worlds.apps import AppProcess
from pykbroker_worlds.faults.app_faults import AppFaults, draw_app_faults
from pykbroker_worlds.faults.fault_plan import draw_faults
from pykbroker_worlds.faults.faults import Faults
from pykbroker_worlds.selection import Selection
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from pykbroker_worlds.store import Store


class Disturbances:
    """All disturbances of one world."""

    def __init__(self, cluster: SimCluster, store: Store, selection: Selection) -> None:
        self._cluster = cluster
        self._store = store
        self._selection = selection
        self._drawn = 0
        self._runs = 0

    async def run(self, seconds: float, *, brokers: bool, apps: Sequence[AppProcess], clients: Sequence[str]) -> None:
        """Draw faults, let them happen for `seconds` of virtual time, and end them. `clients`: the machines of all
        applications."""
        self._runs += 1
        seed = f"{self._cluster.world.seed} disturbance {self._runs}"
        cluster = self._cluster
        may_lose_power = len(cluster.nodes) > 2
        planned = draw_faults(
            random.Random(f"{seed} of brokers"), seconds, may_lose_power=may_lose_power, flushes=False
        )
        of_brokers = [replace(fault, number=self._drawn + fault.number) for fault in planned if brokers]
        self._drawn += len(of_brokers)
        of_apps = draw_app_faults(random.Random(f"{seed} of applications"), seconds, self._drawn) if apps else []
        self._drawn += len(of_apps)
        of_brokers = [fault for fault in of_brokers if self._selection.keep(str(fault.number))]
        of_apps = [fault for fault in of_apps if self._selection.keep(str(fault.number))]

        faults = Faults(of_brokers, cluster, None, seconds=seconds, clients=list(clients))
        machines = [node.machine for node in cluster.nodes.values()]
        app_faults = AppFaults(cluster.world, of_apps, apps, machines, self._store)
        begun: list[asyncio.Future[None]] = []

        def begin(fault: Coroutine[Any, Any, None]) -> None:
            begun.append(asyncio.ensure_future(fault))

        await asyncio.gather(faults.run(begin), app_faults.run(seconds, begin))
        app_faults.heal()
        await faults.heal()
        await asyncio.gather(*begun)
        for node in cluster.nodes.values():
            node.runtime.skew_ms = 0
