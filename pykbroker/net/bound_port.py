"""The port of a listener: it is bound first, so that it can be advertised, and accepts connections later.

Responsible for the listening socket, and for the place that each accepted connection takes among the descriptors of the
node (places.py). Not responsible for the bounds of Apache Kafka (admission.py), nor for what a connection does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from pykbroker.net.places import Places
from pykbroker.runtime.line_limit import LineLimit

if TYPE_CHECKING:
    from pykbroker.runtime import ListeningSocket, Runtime

logger = logging.getLogger(__name__)

#: the type of a connection
C = TypeVar("C", bound=asyncio.BaseProtocol)


class BoundPort(Generic[C]):
    """Call `bind` and then `serve`, once each. `close` ends accepting, and leaves the connections alone."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        places: Places | None,
        connect: Callable[[], C],
        protocol_of: Callable[[C], asyncio.BaseProtocol],
    ) -> None:
        """`name`: the listener's name, for log lines and `places`. `connect` makes the connection of an accepted
        socket, and `protocol_of` returns the protocol of its transport: the connection itself, or a layer below it."""
        self._runtime = runtime
        self._name = name
        self._places = places
        self._connect = connect
        self._protocol_of = protocol_of
        #: accepted connections that have not ended, including connections that were not admitted
        self._accepted: set[C] = set()
        #: the limit for lines about mistakes that clients of this port repeat
        self.lines = LineLimit(runtime.loop.time)
        # A limit of its own, so that mistakes of many clients do not leave out the line about missing places.
        self._full_lines = LineLimit(runtime.loop.time)
        self._socket: ListeningSocket | None = None
        #: the number of the port; 0 before `bind`
        self.number = 0

    async def bind(self, host: str, port: int, backlog: int) -> None:
        """Take the port. Raises OSError."""
        try:
            self._socket = await self._runtime.listen(self.accept, host, port, backlog)
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(
                error.errno, f"listener {self._name} cannot be bound to {host or '*'}:{port}: {reason}"
            ) from error
        self.number = self._socket.port

    async def serve(self) -> None:
        """Accept connections, also those that have waited since `bind`."""
        assert self._socket is not None
        await self._socket.serve()

    def accept(self) -> asyncio.BaseProtocol | None:
        """Return the protocol of a new connection, or None if there is no place for it. The socket calls it."""
        places = self._places
        if places is not None and not places.take(self._name):
            if (more := self._full_lines.take("")) is not None:
                logger.warning(
                    "Listener %s: a new connection is closed, because %d are open and the limit of open files (ulimit "
                    "-n) allows no more%s",
                    self._name,
                    places.taken(self._name),
                    more,
                )
            return None
        connection = self._connect()
        if places is not None:
            self._accepted.add(connection)
        return self._protocol_of(connection)

    def ended(self, connection: C) -> None:
        """Free the place of a connection that has ended. Do nothing if it has no place."""
        if self._places is not None and connection in self._accepted:
            self._accepted.remove(connection)
            self._places.give_back(self._name)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
