"""CreateAcls and DeleteAcls: turns their requests into records that create and remove ACLs.

Responsible for which ACLs are valid and for finding which of them exist already. Not responsible for permission to
change ACLs (api/) nor for their effect (security/acl_index.py). Errors and limits are those of Apache Kafka's
AclControlManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pykbroker.controller.result import MAX_RECORDS_PER_USER_OPERATION, OK, RecordList, Result, Verdict, failure
from pykbroker.controller.state import ControllerState
from pykbroker.metadata.features import METADATA_VERSION, metadata_version_name
from pykbroker.security.acl import Acl, AclFilter, PatternType, Permission, known
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker.security.host_ranges import NoRange, parse_range
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.primitives import TopLevel, random_uuid
from pykbroker_wire.stored.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord

#: metadata.version 4.4-IV1, the first with ranges of addresses as hosts (KIP-1276)
HOST_RANGES_FROM: Final = 32


class Removed(NamedTuple):
    """The outcome of one filter of DeleteAcls, and the ACLs that it found."""

    verdict: Verdict
    acls: tuple[Acl, ...] = ()


def create_acls(state: ControllerState, acls: Iterable[Acl]) -> Result[list[Verdict]]:
    """Create ACLs, with one verdict for each. An ACL that exists already, or that is twice in the request, is created
    once."""
    records = RecordList()
    verdicts: list[Verdict] = []
    new: set[Acl] = set()
    for acl in acls:
        wrong = _wrong(acl)
        verdict = _check_host(state, acl.host) if wrong is None else failure(ErrorCode.INVALID_REQUEST, wrong)
        if verdict.failed:
            verdicts.append(verdict)
            continue
        verdicts.append(OK)
        if acl not in state.existing_acls and acl not in new:
            records.check_room(1)
            new.add(acl)
            records.append(AccessControlEntryRecord(id=_new_id(state), **acl._asdict()))
    return Result(verdicts, records)


def delete_acls(state: ControllerState, filters: Sequence[AclFilter]) -> Result[list[Removed]]:
    """Remove the ACLs that each filter finds. Raises KafkaError, and removes nothing, if the ACLs are more than one
    operation may remove."""
    removed: list[Removed] = []
    gone: dict[bytes, None] = {}
    existing = _Indexed(state.image.acls, len(filters))
    for wanted in filters:
        if wanted.resource_type == Resource.UNKNOWN or wanted.pattern_type == PatternType.UNKNOWN:
            removed.append(Removed(failure(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")))
            continue
        if wanted.operation == Operation.UNKNOWN or wanted.permission_type == Permission.UNKNOWN:
            removed.append(Removed(failure(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")))
            continue
        found = []
        for acl_id, acl in existing.candidates(wanted):
            if not wanted.matches(acl):
                continue
            if len(gone) >= MAX_RECORDS_PER_USER_OPERATION:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Cannot remove more than {MAX_RECORDS_PER_USER_OPERATION} acls in a single delete operation.",
                )
            found.append(acl)
            gone[acl_id] = None
        removed.append(Removed(OK, tuple(found)))
    records: list[TopLevel] = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in gone]
    return Result(removed, records)


class _Indexed:
    """The existing ACLs, indexed by the fields of filters, so that each of many filters looks at few ACLs."""

    def __init__(self, acls: Mapping[bytes, Acl], filters: int) -> None:
        self._acls = acls
        self._fields = _NAMED if filters > len(_NAMED) else ()
        self._by_field: dict[str, dict[str, list[tuple[bytes, Acl]]]] = {}

    def candidates(self, wanted: AclFilter) -> Collection[tuple[bytes, Acl]]:
        """Return all ACLs that `wanted` may match, and perhaps others."""
        found: Collection[tuple[bytes, Acl]] = self._acls.items()
        for field in self._fields:
            value = getattr(wanted, field)
            if value is None or (field == "resource_name" and wanted.pattern_type == PatternType.MATCH):
                continue
            named = self._index(field).get(value, ())
            if len(named) < len(found):
                found = named
        return found

    def _index(self, field: str) -> Mapping[str, list[tuple[bytes, Acl]]]:
        index = self._by_field.get(field)
        if index is None:
            index = self._by_field[field] = {}
            for item in self._acls.items():
                index.setdefault(getattr(item[1], field), []).append(item)
        return index


_NAMED: Final = ("resource_name", "principal", "host")


def _wrong(acl: Acl) -> str | None:
    """Return what is wrong with a new ACL, or None."""
    resource, pattern = known(Resource, acl.resource_type), known(PatternType, acl.pattern_type)
    operation, permission = known(Operation, acl.operation), known(Permission, acl.permission_type)
    if resource == Resource.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if resource in (Resource.UNKNOWN, Resource.ANY):
        return f"Invalid resourceType {resource.name}"
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {pattern.name}"
    if operation in (Operation.UNKNOWN, Operation.ANY):
        return f"Invalid operation {operation.name}"
    if permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {permission.name}"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    return None


def _check_host(state: ControllerState, host: str) -> Verdict:
    """Check the host of a new ACL: an address, `*`, or a range of addresses (KIP-1276). As in Apache Kafka, a text
    without `/` is not checked further."""
    if not host:
        return failure(ErrorCode.INVALID_REQUEST, "Host pattern cannot be null or empty")
    if "/" not in host:
        return OK
    if state.metadata_version < HOST_RANGES_FROM:
        name = metadata_version_name(HOST_RANGES_FROM)
        return failure(
            ErrorCode.UNSUPPORTED_VERSION,
            f"CIDR-based ACL host patterns require {METADATA_VERSION} {name} or higher.",
        )
    try:
        parse_range(host)
    except NoRange as error:
        return failure(ErrorCode.INVALID_REQUEST, f"Invalid CIDR notation '{host}': {error}")
    return OK


def _new_id(state: ControllerState) -> bytes:
    while (acl_id := random_uuid(state.random)) in state.image.acls:
        pass
    return acl_id
