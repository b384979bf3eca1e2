"""One address of a cluster: sends a message of `pykbroker_wire` over kafka-python's connection and returns the answer.

Responsible for all use of kafka-python's network code, which connects, secures (TLS, SASL) and matches answers. Not
responsible for the choice of the node, nor for the meaning of an error in an answer.

kafka-python reads five attributes of a request (`API_KEY`, `API_VERSION`, `with_header`, `encode`, `header`) and two of
a response class. `_Question` and `_Reading` have these attributes for messages of `pykbroker_wire`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from kafka.errors import AuthorizationError, KafkaTimeoutError, RequestTimedOutError, SaslAuthenticationFailedError
from kafka.errors import KafkaError as PythonClientError
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from pykbroker.tools.cluster.failure import AskFailed, no_connection, timed_out, unsupported
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.errors import DecodeError
from pykbroker_wire.headers import decode_response, encode_request
from pykbroker_wire.primitives import TopLevel

# The tools report failures of connections, so kafka-python must not log them.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

R = TypeVar("R", bound=TopLevel)


class _CorrelationId:
    """Stands for the decoded header of a response in kafka-python."""

    def __init__(self, number: int) -> None:
        self.correlation_id = number


class _Reading:
    """Stands for the class of a response in kafka-python."""

    def __init__(self, api_key: int, version: int) -> None:
        self._api_key = api_key
        self._version = version
        self._answer: TopLevel | None = None

    def parse_header(self, buffer: Any) -> _CorrelationId:
        number, self._answer = decode_response(self._api_key, self._version, bytes(buffer.read()))
        return _CorrelationId(number)

    def decode(self, buffer: Any) -> TopLevel:
        assert self._answer is not None, "the header is parsed first"
        return self._answer


class _Question:
    """Stands for a request in kafka-python."""

    def __init__(self, message: TopLevel, version: int) -> None:
        self.API_KEY = message.API_KEY
        self.API_VERSION = version
        self._message = message
        self._client_id = ""
        self.correlation_id = 0

    @property
    def header(self) -> _Question:
        return self

    def get_response_class(self) -> _Reading:
        return _Reading(self.API_KEY, self.API_VERSION)

    def with_header(self, correlation_id: int, client_id: str) -> None:
        self.correlation_id = correlation_id
        self._client_id = client_id

    def encode(self, *, framed: bool, header: bool) -> bytes:
        assert framed, "with its size"
        assert header, "with its header"
        parts = encode_request(self.API_KEY, self.API_VERSION, self.correlation_id, self._client_id, self._message)
        return b"".join(parts)

    def expect_response(self) -> bool:
        return True


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


class ClientLoop:
    """kafka-python's loop, which all connections of a cluster share. It runs only while a request is open."""

    def __init__(self) -> None:
        self.loop = NetworkSelector()

    def close(self) -> None:
        self.loop.close()


class AskedNode:
    """One address of a cluster. The first request opens the connection."""

    def __init__(self, network: ClientLoop, address: str, settings: Mapping[str, Any], timeout_ms: int) -> None:
        self.address = address
        self._loop = network.loop
        self._timeout_ms = timeout_ms
        self._manager = KafkaConnectionManager(
            network.loop, **{**settings, "bootstrap_servers": address, "receive_message_max_bytes": 512 * 1024 * 1024}
        )

    def close(self) -> None:
        self._manager.close()

    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Return API key -> the least and the greatest version that the node at this address serves."""
        found: Mapping[int, tuple[int, int]] = self._run(self._ready).broker_version_data.api_versions
        return found

    def ask(self, asked: Asked[R], timeout_ms: int) -> R:
        """Send a message and return its answer. Raises AskFailed if there is no connection, if no answer comes in time,
        or if the node does not serve a version in range."""
        ranges = self.versions()
        question = _Question(asked.message, version_for(asked.message.API_KEY, ranges, asked.least, asked.most))

        async def exchange() -> Any:
            connection = await self._ready()
            return await connection.send_request(question, request_timeout_ms=timeout_ms)

        answer = self._run(exchange)
        assert isinstance(answer, asked.answer)
        return answer

    async def _ready(self) -> Any:
        # The loop has not run since the last request. This lets it notice that the peer has closed the connection.
        await self._loop.sleep(0)
        (node,) = self._manager.cluster.bootstrap_brokers()[:1]
        return await self._manager.get_connection(node.node_id, timeout_ms=self._timeout_ms)

    def _run(self, work: Any) -> Any:
        try:
            return self._loop.run(work)
        except (SaslAuthenticationFailedError, AuthorizationError) as error:
            raise AskFailed(_reason(error), "org.apache.kafka.common.errors.SaslAuthenticationException") from None
        except (KafkaTimeoutError, RequestTimedOutError) as error:
            raise timed_out(f"{self.address} does not answer: {_reason(error)}") from None
        except DecodeError as error:
            raise no_connection(f"{self.address} sent an answer that cannot be read: {error}") from None
        except (PythonClientError, OSError) as error:
            raise no_connection(f"{self.address} cannot be reached: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Return the reason of a failed connection. kafka-python puts the names of classes before it, and has only the
    number of an error of the system."""
    text = re.sub(r"^(\[Err(or|no) \d+\] )?(\w+Error: )*", "", str(error))
    return re.sub(r"\b(\d+) E[A-Z]+\b", lambda found: os.strerror(int(found[1])), text)


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
