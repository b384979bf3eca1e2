"""The check of what a client writes about itself and about its broker in ApiVersions (KIP-511, KIP-1242)."""

from __future__ import annotations

import re
from typing import Final

from pykbroker_wire.messages.api_versions import ApiVersionsRequest

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NO_NODE: Final = -1


def is_valid(request: ApiVersionsRequest, version: int) -> bool:
    """Return False if the answer to a request of this version must be INVALID_REQUEST.

    From version 3 on the name and the version of the client's software have a form. From version 5 on a client sends
    both ids of the broker that it means, or neither.
    """
    if version >= 5 and (request.cluster_id is None) != (request.node_id == _NO_NODE):
        return False
    return version < 3 or all(map(_SOFTWARE.fullmatch, (request.client_software_name, request.client_software_version)))
