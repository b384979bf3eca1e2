"""The CPU time of a request grows with its elements and no faster, and so do its log lines. This holds for each array
of each API, each way to fill it, each door of a node, and users who may do all, nothing and little."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pykbroker.api import TABLE
from pykbroker.dispatch.principals import encode_principal
from pykbroker.dispatch.rows import On, ServedApi
from pykbroker.net.client import BrokerConnection
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.apis import APIS
from pykbroker_wire.messages.envelope import EnvelopeRequest
from pykbroker_wire.primitives import EncodeError, TopLevel
from pykbroker_worlds.simulated.sim_node import PORT
from testkit.nodes.sim import Sim
from testkit.nodes.wire import frame_of
from tests.badinput.cost import Lines, Meter, counted_lines
from tests.badinput.many_elements import WAYS, Array, Known, arrays
from tests.node.acls.test_acls import acl, grant

FEW = 500
_TIMEOUT_MS = 60_000
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ARRAYS: dict[ServedApi, list[Array]] = {row: [each for each in arrays() if each.key == row.key] for row in TABLE}
#: For users who may do little: with other names each element is authorized, and names occur twice.
_WAYS_TO_TRY = ("other names", "each twice")


@dataclass(frozen=True)
class Door:
    """A way to the handlers, and one kind of user there."""

    name: str
    user: str

    def serves(self, row: ServedApi) -> bool:
        if self.name == "envelope":
            return row.forward
        return bool(row.on & (On.BROKER if self.name == "broker" else On.CONTROLLER))

    @property
    def ways(self) -> tuple[str, ...]:
        return WAYS if self.user == "anybody" else _WAYS_TO_TRY

    def sim(self) -> Sim:
        """Return a node that has this door. A direct client is ANONYMOUS; only an Envelope names another user."""
        locked = {"authorizer.class.name": AUTHORIZER, "super.users": "User:somebody"}
        return Sim({"auto.create.topics.enable": "false", **({} if self.user == "anybody" else locked)})

    async def make_ready(self, sim: Sim) -> Known:
        if self.user == "anybody":
            await sim.create("t")
            return Known("t", sim.node.loader.image.topics.by_name["t"].id)
        writer = "User:writer" if self.name == "envelope" else "User:ANONYMOUS"
        acls = [acl(Resource.TOPIC, "t", Operation.WRITE)._replace(principal=writer)] if self.user == "writer" else []
        if self.name == "envelope":
            acls.append(acl(Resource.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION))
        if acls:
            await grant(sim, *acls)
        return Known("t", bytes(15) + b"t")


DOORS = [Door(name, user) for name in ("broker", "controller", "envelope") for user in ("anybody", "nobody", "writer")]


def encodable(request: TopLevel, keep: str) -> int | None:
    """Return the newest version that has the array `keep`; fields that it lacks are emptied. Return None if no version
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
    """One node, and the sums of its costs."""

    def __init__(self, sim: Sim, door: Door, known: Known, lines: Lines) -> None:
        self._door, self._known = door, known
        self.meter = Meter(sim, lines)
        port = PORT if door.name == "broker" else PORT + 1
        self._connection = BrokerConnection(sim.world.runtime("asker", sim.disk), "localhost", port, "asker")
        self.answers = 0

    async def prepare(self, array: Array, way: str, count: int) -> Callable[[], Awaitable[Any]]:
        request = array.request(count, way, self._known)
        version = encodable(request, array.path[0])
        if version is not None and self._door.name == "envelope":
            request = EnvelopeRequest(
                request_data=frame_of(request, version)[4:],
                request_principal=encode_principal(f"User:{self._door.user}"),
                client_host_address=b"\x7f\0\0\1",
            )
            version = 0

        async def ask() -> None:
            if version is not None:
                answer = await self._connection.send(request, _TIMEOUT_MS, version)
                assert self._door.name != "envelope" or answer.response_data is not None, answer.error_code
                self.answers += 1

        return ask

    async def judge(self, array: Array, way: str) -> None:
        await self.meter.judge(f"{array}, {way}", lambda count: self.prepare(array, way, count), FEW)


@pytest.fixture
def lines() -> Iterator[Lines]:
    with counted_lines() as handler:
        yield handler


@pytest.mark.slow
@pytest.mark.parametrize(
    ("door", "row"),
    [
        pytest.param(door, row, id=f"{door.name}-{door.user}-{APIS[row.key].name}")
        for door in DOORS
        for row in ARRAYS
        if ARRAYS[row] and door.serves(row)
    ],
)
def test_work_grows_with_the_elements_of_a_request(door: Door, row: ServedApi, lines: Lines) -> None:
    sim = door.sim()

    async def play(sim: Sim) -> int:
        asked = Asked(sim, door, await door.make_ready(sim), lines)
        for array in ARRAYS[row]:
            for way in door.ways:
                await asked.judge(array, way)
        await asked.meter.is_served()
        return asked.answers

    try:
        answers = sim.run(play)
    finally:
        sim.close()
    assert answers >= len(ARRAYS[row])
