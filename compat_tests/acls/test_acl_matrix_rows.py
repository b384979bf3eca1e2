"""Each API that is served has a row in the matrix of ACLs (compat_tests/acls), on each listener that serves it."""

from __future__ import annotations

from compat_tests.acls.acl_cases import CASES
from compat_tests.acls.acl_requests import build
from pykbroker.api import TABLE
from pykbroker.dispatch.rows import On
from pykbroker_wire.apis import APIS


def test_each_api_has_a_row_on_each_of_its_listeners_in_each_version() -> None:
    topic_ids = dict.fromkeys(("mine", "other", "mine.written", "other.written", "mine.doomed"), bytes(16))
    missing = {
        (api.key.name, on.name, version)
        for api in TABLE
        for on in (On.BROKER, On.CONTROLLER)
        if on in api.on
        for version in range(APIS[api.key].min_version, APIS[api.key].max_version + 1)
    }
    for case in CASES:
        for version in range(max(case.from_version, APIS[case.key].min_version), APIS[case.key].max_version + 1):
            build(APIS[case.key].name, version, case.values, topic_ids).encode(version)
            missing -= {(case.key.name, on.name, version) for on in case.on}
    assert missing == set()


def test_rows_have_names_of_their_own() -> None:
    names = [(case.name, on) for case in CASES for on in case.on]
    assert len(names) == len(set(names))
