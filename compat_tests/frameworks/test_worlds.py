"""A service of FastStream in a world, unmodified: it dies, starts again, and goes on where its group has committed."""

from __future__ import annotations

import re
from pathlib import Path

from compat_tests.frameworks.runs import run_pytest

SERVICE = """
import asyncio
import pytest
from faststream import FastStream
from faststream.kafka import KafkaBroker


@pytest.mark.kafka_world(seeds=2)
async def test_each_order_is_billed(kafka_world):
    async def billing():
        broker = KafkaBroker(kafka_world.bootstrap_servers)

        @broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest")
        @broker.publisher("bills")
        async def bill(order: int) -> int:
            kafka_world.did("billed", order)
            return order * 2

        await FastStream(broker).run()

    async def ordering():
        broker = KafkaBroker(kafka_world.bootstrap_servers)
        await broker.start()
        for number in range(30):
            await broker.publish(number, "orders")
            await asyncio.sleep(1)
        await broker.stop()

    kafka_world.app("ordering", ordering)
    service = kafka_world.app("billing", billing)
    await kafka_world.until(lambda: len(kafka_world.done("billed")) > 5)
    service.restart()
    await kafka_world.until(lambda: set(kafka_world.done("billed")) == set(range(30)))
"""


def test_faststream_in_a_world(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SERVICE, encoding="utf-8")
    done = run_pytest(tmp_path)
    assert re.search(r"^1 passed", done.stdout, re.MULTILINE), done.stdout + done.stderr
