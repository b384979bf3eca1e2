"""The differential test (compat_tests/differential) with three nodes sends the same requests to the same node of
both."""

from __future__ import annotations

import pytest

from compat_tests.differential.compare import Script
from compat_tests.differential.scripts import THREE_NODES
from compat_tests.mixed_cluster.members import Cluster
from compat_tests.three_nodes.clusters import Both
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.messages.api_versions import ApiVersionsRequest

pytestmark = pytest.mark.slow

#: The requests that a controller of Apache Kafka serves and a controller of pykbroker does not, because security adds
#: them.
OF_SECURITY = {
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}


@pytest.mark.parametrize("script", THREE_NODES, ids=lambda script: script.__name__)
def test_both_answer_alike(both: Both, script: Script) -> None:
    both.same_answers(script)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_controllers_serve_the_same_requests(both: Both, number: int) -> None:
    """Except for the requests of security, which is not there yet."""

    def offered(cluster: Cluster) -> dict[int, tuple[int, int]]:
        with cluster.controller(number) as wire:
            answer = wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    theirs, ours = map(offered, both.clusters)
    missing = OF_SECURITY if both.ours.members[number].kind == "pykbroker" else set()
    assert {ApiKey(key) for key in theirs.keys() ^ ours.keys()} == missing
    assert {key: versions for key, versions in theirs.items() if key in ours} == ours
