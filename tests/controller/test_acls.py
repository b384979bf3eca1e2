"""CreateAcls and DeleteAcls as decisions: records in, records out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pykbroker.controller import acls as operations
from pykbroker.controller.acls import Removed, create_acls, delete_acls
from pykbroker.controller.result import OK, Verdict
from pykbroker.security.acl import Acl, AclFilter, PatternType, Permission
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.stored.metadata import FeatureLevelRecord
from tests.controller.world import Pure
from tests.growth import assert_grows_no_faster

READ = Acl(Resource.TOPIC, "t", PatternType.LITERAL, "User:u", "*", Operation.READ, Permission.ALLOW)
ALL = AclFilter(Resource.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


def create(pure: Pure, *acls: Acl) -> list[Verdict]:
    verdicts: list[Verdict] = pure.apply(create_acls(pure.state, acls))
    return verdicts


def delete(pure: Pure, *filters: AclFilter) -> list[Removed]:
    removed: list[Removed] = pure.apply(delete_acls(pure.state, filters))
    return removed


def known(pure: Pure) -> list[Acl]:
    return sorted(pure.state.image.acls.values())


def test_an_acl_is_created_once() -> None:
    pure = Pure()
    assert create(pure, READ, READ) == [OK, OK]
    assert create(pure, READ, READ._replace(host="10.0.0.1")) == [OK, OK]
    assert known(pure) == [READ, READ._replace(host="10.0.0.1")]
    assert len(set(pure.state.image.acls)) == 2
    assert delete(pure, ALL._replace(host="*")) == [Removed(OK, (READ,))]
    assert create(pure, READ) == [OK]
    assert known(pure) == [READ, READ._replace(host="10.0.0.1")]


@pytest.mark.slow
@pytest.mark.parametrize("field", ["resource_name", "principal", "host"])
def test_many_filters_that_name_something_look_at_few_acls_each(field: str) -> None:
    """A filter that names nothing, and one that matches by prefix, look at all ACLs."""
    names = [f"User:{number}" for number in range(2_000)]

    def acl(name: str) -> Acl:
        return Acl._make({**READ._asdict(), field: name}.values())

    def wanted(name: str) -> AclFilter:
        return AclFilter._make({**ALL._asdict(), field: name}.values())

    def standing(count: int) -> Pure:
        pure = Pure()
        create(pure, *map(acl, names[:count]))
        return pure

    def make(count: int) -> Callable[[], object]:
        pure, filters = standing(count), [*map(wanted, names[:count])]
        return lambda: delete_acls(pure.state, filters)

    assert_grows_no_faster(make, 500)
    pure = standing(20)
    found = delete_acls(pure.state, [*map(wanted, names[:20])]).response
    assert [[getattr(acl, field) for acl in each.acls] for each in found] == [[name] for name in names[:20]]
    assert [len(each.acls) for each in delete_acls(pure.state, [ALL] * 4).response] == [20] * 4
    if field == "resource_name":
        prefixes = ALL._replace(resource_name="User:1", pattern_type=PatternType.MATCH)
        assert [len(each.acls) for each in delete_acls(pure.state, [prefixes] * 4).response] == [1] * 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resource_type": Resource.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": 99}, "Invalid patternType UNKNOWN"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission_type": 99}, "Invalid permissionType UNKNOWN"),
        (
            {"principal": "u"},
            "Could not parse principal from `u` (no colon is present separating the principal type from the principal "
            "name)",
        ),
    ],
)
def test_what_is_wrong_is_said_of_each(wrong: dict[str, object], message: str) -> None:
    pure = Pure()
    refused = Verdict(ErrorCode.INVALID_REQUEST, message)
    assert create(pure, READ._replace(**wrong), READ) == [refused, OK]  # type: ignore[arg-type]
    assert known(pure) == [READ]


def test_ranges_of_addresses_need_the_level_that_has_them() -> None:
    pure = Pure(brokers=0)
    good = READ._replace(host="10.0.0.0/8")
    (verdict,) = create(pure, good)
    assert verdict.code is ErrorCode.UNSUPPORTED_VERSION
    pure.replay([FeatureLevelRecord(name="metadata.version", feature_level=32)])
    hosts = ("10.0.0.0/8", "10.0.0.0/33", "", "no-address", "*")
    found = create(pure, *(READ._replace(host=host) for host in hosts))
    wrong = ErrorCode.INVALID_REQUEST
    assert [each.code for each in found] == [ErrorCode.NONE, wrong, wrong, ErrorCode.NONE, ErrorCode.NONE]
    assert good in known(pure)


def test_each_filter_says_what_it_found() -> None:
    pure = Pure()
    prefixed = READ._replace(pattern_type=PatternType.PREFIXED)
    create(pure, READ, prefixed)
    unknown = [
        ALL._replace(resource_type=Resource.UNKNOWN),
        ALL._replace(pattern_type=PatternType.UNKNOWN),
        ALL._replace(operation=Operation.UNKNOWN),
        ALL._replace(permission_type=Permission.UNKNOWN),
    ]
    pattern = Removed(Verdict(ErrorCode.INVALID_REQUEST, "Unknown patternFilter."))
    entry = Removed(Verdict(ErrorCode.INVALID_REQUEST, "Unknown entryFilter."))
    assert delete(pure, *unknown) == [pattern, pattern, entry, entry]
    assert known(pure) == [READ, prefixed]
    literal = ALL._replace(pattern_type=PatternType.LITERAL)
    nothing = ALL._replace(resource_type=Resource.GROUP)
    first, second, third = delete(pure, literal, nothing, ALL)
    assert first == Removed(OK, (READ,))
    assert second == Removed(OK)
    assert sorted(third.acls) == [READ, prefixed]
    assert known(pure) == []


def test_one_operation_changes_no_more_than_a_batch_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykbroker.controller.result.MAX_RECORDS_PER_USER_OPERATION", 3)
    monkeypatch.setattr(operations, "MAX_RECORDS_PER_USER_OPERATION", 3)
    pure = Pure()
    rules = [READ._replace(resource_name=f"t-{number}") for number in range(4)]
    with pytest.raises(KafkaError) as refused:
        create(pure, *rules)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert known(pure) == []
    create(pure, *rules[:3])
    create(pure, *rules)
    assert known(pure) == rules
    with pytest.raises(KafkaError, match="Cannot remove more than 3 acls in a single delete operation") as refused:
        delete(pure, ALL)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert known(pure) == rules
    delete(pure, ALL._replace(resource_name="t-3"), ALL._replace(resource_name="t-2"))
    assert known(pure) == rules[:2]
