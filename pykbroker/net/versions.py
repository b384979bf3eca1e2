"""The versions of requests that a peer serves, from its ApiVersions response, and the choice of a version.

Responsible for the choice, and for the few requests whose fields Apache Kafka moves for an older version. Not
responsible for sending ApiVersions (client.py).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.primitives import TopLevel

if TYPE_CHECKING:
    from pykbroker_wire.messages.api_versions import ApiVersionsResponse
    from pykbroker_wire.messages.broker_registration import BrokerRegistrationRequest
    from pykbroker_wire.messages.fetch import FetchRequest


class UnsupportedVersion(ConnectionError):
    """The peer serves no version that can carry this request. Nothing was sent; other requests continue."""


class VersionsRefused(Exception):
    """The peer's answer to ApiVersions does not allow this node to continue with it."""


@dataclass(slots=True, frozen=True)
class PeerVersions:
    """`ranges`: API key -> the least and the greatest version that the peer serves."""

    ranges: Mapping[int, tuple[int, int]]

    def choose(self, api_key: int, least: int = 0) -> int:
        """Return the newest version that both sides know, at least `least`. Raises UnsupportedVersion."""
        api = APIS[api_key]
        served = self.ranges.get(api_key)
        if served is None:
            raise UnsupportedVersion(f"the peer does not serve {api.name}")
        version = min(api.max_version, served[1])
        oldest = max(api.min_version, least)
        if version < max(oldest, served[0]):
            raise UnsupportedVersion(
                f"the peer serves {api.name} in versions {served[0]} to {served[1]}, and this node needs one from "
                f"{oldest} to {api.max_version}"
            )
        return version

    def check(self, api_key: int, version: int) -> int:
        """Return a version that the caller has chosen. Raises UnsupportedVersion if the peer does not serve it."""
        served = self.ranges.get(api_key)
        if served is None or not served[0] <= version <= served[1]:
            name = APIS[api_key].name
            raise UnsupportedVersion(
                f"the peer does not serve {name}"
                if served is None
                else f"the peer serves {name} in versions {served[0]} to {served[1]}, and this node needs {version}"
            )
        return version


def after_api_versions(asked: int, response: ApiVersionsResponse) -> PeerVersions | int:
    """Return the versions that the peer serves, or the version in which ApiVersions must be sent again. Raises
    VersionsRefused.

    As in Apache Kafka's NetworkClient, a peer that does not know our version of ApiVersions names its own newest
    version in the response. If the response has none, the request is repeated in version 0.
    """
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    if response.error_code == ErrorCode.NONE:
        return PeerVersions(ranges)
    if response.error_code != ErrorCode.UNSUPPORTED_VERSION or asked == 0:
        raise VersionsRefused(f"it refused ApiVersions of version {asked} with error {response.error_code}")
    _, following = ranges.get(ApiKey.API_VERSIONS, (0, 0))
    if not 0 <= following < asked:
        raise VersionsRefused(
            f"it refused ApiVersions of version {asked}, and its answer names {following} as its newest version"
        )
    return following


def in_version(request: TopLevel, version: int) -> TopLevel:
    """Return the request with its fields where `version` has them, if that is an older version. The caller's object is
    not changed."""
    if request.API_KEY == ApiKey.FETCH and version < 15:
        fetch = copy.copy(cast("FetchRequest", request))
        fetch.replica_id = fetch.replica_state.replica_id
        fetch.replica_state = type(fetch.replica_state)()
        return fetch
    if request.API_KEY == ApiKey.BROKER_REGISTRATION and version < 4:
        # KAFKA-17492: older controllers refuse a feature whose least version is 0.
        registration = copy.copy(cast("BrokerRegistrationRequest", request))
        registration.features = [feature for feature in registration.features if feature.min_supported_version > 0]
        return registration
    return request
