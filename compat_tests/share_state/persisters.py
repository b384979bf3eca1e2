"""The persister with Apache Kafka as the only share coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pykbroker.quorum.channel import BrokerChannels
from pykbroker.runtime import OsRuntime
from pykbroker.share_persister.persister import SharePersister
from pykbroker.share_persister.state_operations import ShareStateAnswer
from testkit.share_metadata import LISTENER, ShareMetadata

Scenario = Callable[[SharePersister, ShareMetadata], Awaitable[None]]


def play(port: int, scenario: Scenario) -> None:
    """Run a scenario with a persister that knows one broker, on this port. The broker leads no partition of
    `__share_group_state` until the scenario says so."""

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        runtime = OsRuntime(loop)
        metadata = ShareMetadata({1: ("localhost", port)})
        channels = BrokerChannels(runtime, metadata.address, "broker-7")
        persister = SharePersister(runtime, metadata.view, LISTENER, channels.send)
        metadata.publisher = persister
        try:
            await scenario(persister, metadata)
        finally:
            persister.close()
            channels.close()
            runtime.close()

    asyncio.run(whole())


def state(found: ShareStateAnswer) -> tuple[int, int, list[tuple[int, int, int, int]]]:
    """Return the state epoch, the start and the batches of an answer to a read."""
    batches = [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in found.batches
    ]
    return found.state_epoch, found.start_offset, batches
