"""The CPU time that a request costs grows with its elements and no faster, and so does what it writes into the log:
each array of each API, in each way to fill it, at a listener for clients or else of the controller."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator

import pytest

from pykbroker.api import TABLE
from pykbroker.net.client import BrokerConnection
from pykbroker.serving.rows import On, ServedApi
from pykbroker_wire.apis import APIS
from pykbroker_wire.primitives import EncodeError, TopLevel
from tests.badinput.many_elements import WAYS, Array, Known, arrays
from tests.growth import MOST_GROWTH
from tests.node.sim import Sim
from tests.simulation.cluster import PORT

FEW = 500
MANY = 4 * FEW
#: CPU seconds that MANY elements may cost, whatever fewer cost.
_ENOUGH_SECONDS = 0.02
_TRIES = 3
_MOST_LINES = 200
_TIMEOUT_MS = 60_000
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ARRAYS: dict[ServedApi, list[Array]] = {row: [each for each in arrays() if each.key == row.key] for row in TABLE}


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


@pytest.fixture
def lines() -> Iterator[Lines]:
    root, handler = logging.getLogger(), Lines()
    before = root.level
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


def encodable(request: TopLevel, keep: str) -> int | None:
    """The newest version that has the array `keep`; fields of the request that it lacks are emptied. None: no version
    has the array with these elements."""
    for version in range(request.MAX_VERSION, request.MIN_VERSION - 1, -1):
        while True:
            try:
                request.encode(version)
            except EncodeError as error:
                field = str(error).partition(" is set, but version")[0].rpartition(".")[2]
                if field == keep or not hasattr(request, field):
                    break
                setattr(request, field, getattr(type(request)(), field))
            else:
                return version
    return None


class Asked:
    """One node, and the sums of what it was asked."""

    def __init__(self, sim: Sim, row: ServedApi, known: Known, lines: Lines) -> None:
        self._known, self._lines = known, lines
        port = PORT if row.on & On.BROKER else PORT + 1
        self._connection = BrokerConnection(sim.world.runtime("asker", sim.disk), "localhost", port, "asker")
        self.answers = 0

    async def seconds(self, array: Array, way: str, count: int) -> float:
        """CPU seconds of one request, its making apart."""
        request = array.request(count, way, self._known)
        version = encodable(request, array.path[0])
        if version is None:
            return 0.0
        self._lines.count = 0
        start = time.process_time()
        await self._connection.send(request, _TIMEOUT_MS, version)
        seconds = time.process_time() - start
        self.answers += 1
        assert self._lines.count <= _MOST_LINES, f"{array}, {way}: {self._lines.count} lines"
        return seconds

    async def judge(self, array: Array, way: str) -> None:
        many = few = 0.0
        for _ in range(_TRIES):
            many = await self.seconds(array, way, MANY)
            if many <= _ENOUGH_SECONDS:
                return
            few = await self.seconds(array, way, FEW)
            if many <= MOST_GROWTH * few:
                return
        raise AssertionError(f"{array}, {way}: {few:.3f} s for {FEW}, {many:.3f} s for {MANY}")


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "refused"])
@pytest.mark.parametrize("row", [row for row in ARRAYS if ARRAYS[row]], ids=lambda row: APIS[row.key].name)
def test_work_grows_with_the_elements_of_a_request(row: ServedApi, allowed: bool, lines: Lines) -> None:
    settings = {} if allowed else {"authorizer.class.name": AUTHORIZER, "super.users": "User:somebody"}
    sim = Sim({"auto.create.topics.enable": "false", **settings})

    async def play(sim: Sim) -> int:
        known = Known("t", bytes(15) + b"t")
        if allowed:
            await sim.create("t")
            known = Known("t", sim.node.loader.image.topics.by_name["t"].id)
        asked = Asked(sim, row, known, lines)
        for array in ARRAYS[row]:
            for way in WAYS if allowed else ("other names", "each twice"):
                await asked.judge(array, way)
        return asked.answers

    gc.disable()
    try:
        answers = sim.run(play)
    finally:
        gc.enable()
        sim.close()
    assert answers >= len(ARRAYS[row])
