"""A request that is carried out costs CPU in proportion to its elements and blocks no turn of a loop, like one that is
refused (test_many_elements.py)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from testkit.nodes.sim import Sim
from tests.badinput.accepted import CASES, Case, Standing, assert_accepted
from tests.badinput.cost import Meter, counted_lines
from tests.badinput.test_many_elements import AUTHORIZER

FEW = 250


@pytest.fixture(scope="module")
def standing() -> Iterator[Standing]:
    sim = Sim(
        {
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "1000",
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        }
    )

    async def begin(sim: Sim) -> Standing:
        made = Standing(sim, 4 * FEW)
        await made.begin()
        return made

    yield sim.run(begin)
    sim.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_work_grows_with_what_is_carried_out(name: str, standing: Standing) -> None:
    case: Case = CASES[name]
    answers: list[Any] = []

    async def prepare(count: int) -> Callable[[], Awaitable[None]]:
        made = case.request(standing, count)
        request = await made if inspect.isawaitable(made) else made
        if not callable(request):
            request = partial(standing.send, request, case.version, to_controller=case.to_controller)

        async def asked() -> None:
            answers.append(await request())

        return asked

    async def play(sim: Sim) -> None:
        await meter.judge(name, prepare, case.few or FEW)
        await meter.is_served()

    with counted_lines() as lines:
        # Some requests write a line for each element, as in Apache Kafka.
        meter = Meter(standing.sim, lines, most_lines=3 * 4 * FEW)
        standing.sim.run(play)
    for answer in answers:
        assert_accepted(answer)
