"""The turns of a node's loops during a large change of the metadata: the longest calls, in CPU milliseconds.

    python -m bench.metadata_turns

One combined node in the simulated world; each call runs within one turn of a loop. docs/security.md has the figures.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import defaultdict
from typing import Any

from pykbroker.controller.active import ActiveController
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.metadata.snapshot import snapshot_values
from pykbroker.replica.table import ReplicaTable
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from testkit.nodes.sim import Sim

CALLS: tuple[tuple[Any, str], ...] = (
    (ActiveController, "submit"),
    (MetadataLoader, "handle_commit"),
    (ReplicaTable, "publish"),
)
longest: dict[str, float] = defaultdict(float)


def watch(owner: Any, name: str) -> None:
    """Record the longest call of a method."""
    original = getattr(owner, name)

    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.process_time()
        try:
            return original(*arguments, **options)
        finally:
            key = f"{owner.__name__}.{name}"
            longest[key] = max(longest[key], time.process_time() - start)

    setattr(owner, name, timed)


async def play(sim: Sim) -> None:
    many = [CreatableTopic(name=f"t-{number}", num_partitions=1, replication_factor=1) for number in range(4_000)]
    wide = [CreatableTopic(name="wide", num_partitions=9_000, replication_factor=1)]
    for what, topics in (("4,000 topics", many), ("9,000 partitions of one topic", wide)):
        longest.clear()
        answer = await sim.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000))
        assert not any(topic.error_code for topic in answer.topics)
        await asyncio.sleep(2)
        tell(what)
    values = list(snapshot_values(sim.node.loader.image))
    longest.clear()
    start = time.process_time()
    MetadataLoader().handle_snapshot(1, 1, iter(values))
    longest["MetadataLoader.handle_snapshot"] = time.process_time() - start
    tell(f"a snapshot of {len(values):,} records")


def tell(what: str) -> None:
    print(f"{what}: " + ", ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in longest.items()))


if __name__ == "__main__":
    for owner, name in CALLS:
        watch(owner, name)
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # as in `pykbroker start`
    sim = Sim({"auto.create.topics.enable": "false"})
    sim.run(play)
    sim.close()
