"""One address of a cluster: sends a message of `pykbroker_wire` and returns the answer.

Responsible for the version of a request, for connecting again after the connection has ended, and for the names of
failures. Not responsible for the connection itself (node_connection.py), for the choice of the node, nor for the
meaning of an error in an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from pykbroker.tools.cluster.client_security import ClientSecurity
from pykbroker.tools.cluster.failure import AskFailed, NoAnswer, no_connection, unsupported
from pykbroker.tools.cluster.node_connection import CertificateRefused, NodeConnection, R, UserRefused
from pykbroker.tools.cluster.patience import ClientPatience, WaitLimit
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.errors import DecodeError
from pykbroker_wire.primitives import TopLevel

T = TypeVar("T")


class Asked(Generic[R]):
    """A message, and the class of its answer."""

    __slots__ = ("answer", "least", "message", "most")

    def __init__(self, message: TopLevel, answer: type[R], least: int = 0, most: int | None = None) -> None:
        self.message = message
        self.answer = answer
        #: the newest version that may be sent; None for the newest that both sides have
        self.most = most
        #: the oldest version that has every field the message needs
        self.least = least


class AskedNode:
    """One address of a cluster. The first request opens the connection, and so does the first request after its end."""

    def __init__(
        self,
        address: str,
        client_id: str,
        security: ClientSecurity,
        timeout_ms: int,
        patience: ClientPatience | None = None,
    ) -> None:
        """`timeout_ms`: the time until a connection is ready for requests; `patience`: ends waits earlier."""
        self.address = address
        self._client_id = client_id
        self._security = security
        self._timeout_ms = timeout_ms
        self._patience = ClientPatience() if patience is None else patience
        #: the last request was not answered in time
        self._is_silent = False
        self._connection: NodeConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def versions(self, timeout_ms: int | None = None) -> Mapping[int, tuple[int, int]]:
        """Return API key -> the least and the greatest version that the node at this address serves. `timeout_ms`:
        instead of the node's own limit for a connection. Raises AskFailed if there is no connection."""
        return self._within(self._timeout_ms if timeout_ms is None else timeout_ms, self._ready).versions

    def ask(self, asked: Asked[R], timeout_ms: int) -> R:
        """Send a message and return its answer. Raises AskFailed if there is no connection, if no answer comes in time,
        or if the node does not serve a version in range."""
        version = version_for(
            asked.message.API_KEY, self.versions(min(timeout_ms, self._timeout_ms)), asked.least, asked.most
        )
        connection = self._connection
        assert connection is not None

        def exchange(deadline: WaitLimit) -> R:
            return connection.exchange(asked.message, asked.answer, version, deadline)

        return self._within(timeout_ms, exchange)

    def _ready(self, deadline: WaitLimit) -> NodeConnection:
        if self._connection is None or not self._connection.is_open():
            self.close()
            self._connection = NodeConnection(self.address, self._client_id, self._security, deadline)
        return self._connection

    def _within(self, timeout_ms: int, work: Callable[[WaitLimit], T]) -> T:
        """Call `work` with the time at which it must end, and name its failure."""
        if self._is_silent and self._patience.is_over:
            raise NoAnswer(f"{self.address} does not answer")
        try:
            done = work(WaitLimit(timeout_ms / 1000, self._patience))
        except UserRefused as error:
            raise AskFailed(str(error), "org.apache.kafka.common.errors.SaslAuthenticationException") from None
        except CertificateRefused as error:
            # Unlike a node that cannot be reached, this does not pass.
            raise AskFailed(
                f"{self.address} cannot be reached: {error}",
                "org.apache.kafka.common.errors.SslAuthenticationException",
            ) from None
        except TimeoutError:
            self._is_silent = True
            raise NoAnswer(f"{self.address} does not answer: no answer within {timeout_ms} ms") from None
        except DecodeError as error:
            raise no_connection(f"{self.address} sent an answer that cannot be read: {error}") from None
        except OSError as error:
            raise no_connection(f"{self.address} cannot be reached: {error.strerror or error}") from None
        self._is_silent = False
        return done


def version_for(api_key: int, ranges: Mapping[int, tuple[int, int]], least: int = 0, most: int | None = None) -> int:
    """Return the newest version that both sides support, not older than `least` and not newer than `most`."""
    api = APIS[api_key]
    if api_key not in ranges:
        raise unsupported(f"The node does not support {ApiKey(api_key).name}")
    lowest, greatest = ranges[api_key]
    version = min(api.max_version if most is None else most, greatest)
    if version < max(lowest, least, api.min_version):
        raise unsupported(
            f"The node does not support {ApiKey(api_key).name} with version in range [{max(least, api.min_version)},"
            f"{api.max_version}]. The supported range is [{lowest},{greatest}]."
        )
    return version
