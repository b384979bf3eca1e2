"""The options of kafka-acls, and the resources and rules that they name.

Responsible for Apache Kafka's checks of the options, and for its messages. Not responsible for changes of the cluster.
Source: KIP-11, KIP-290, `org.apache.kafka.tools.AclCommand` of 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pykbroker.security.acl import WILDCARD, Acl, AclFilter, PatternType, Permission, known
from pykbroker.security.authorizer import CLUSTER_NAME, SUPPORTED_OPERATIONS, Operation, Resource
from pykbroker.tools.cluster.acls import ROLES
from pykbroker.tools.kafka.reach import BOOTSTRAP, BOOTSTRAP_CONTROLLER
from pykbroker.tools.kafka.tool_options import Accepted, Given, OptionError, Options

#: Names as users write them: `DescribeConfigs`, in any case.
_OPERATIONS: Final = {operation.name.replace("_", ""): operation for operation in Operation}
_PATTERN_TYPES: Final = {one.name: one for one in PatternType if one is not PatternType.UNKNOWN}

OPTIONS: Final = Options(
    "This tool helps to manage acls on kafka.",
    [
        BOOTSTRAP,
        BOOTSTRAP_CONTROLLER,
        Accepted("command-config", "A properties file for the client.", "file", is_optional=True),
        Accepted("add", "Add ACLs."),
        Accepted("remove", "Remove ACLs."),
        Accepted("list", "List ACLs; of the resources that are named, or all."),
        Accepted("topic", "A topic; '*': all.", "topic"),
        Accepted("cluster", "The cluster."),
        Accepted("group", "A consumer group; '*': all.", "group"),
        Accepted("transactional-id", "A transactional id; '*': all.", "transactional-id"),
        Accepted("delegation-token", "A delegation token; '*': all.", "delegation-token"),
        Accepted("user-principal", "A user, as what something is done to.", "user-principal"),
        Accepted(
            "resource-pattern-type",
            "literal or prefixed; with --list and --remove also any, or match: all that applies to the resource.",
            "type",
            default="LITERAL",
        ),
        Accepted("operation", "What is allowed or denied: Read, Write, DescribeConfigs, ...", "operation"),
        Accepted("allow-principal", "The principal that is allowed: User:alice; User:* is every user.", "principal"),
        Accepted("deny-principal", "The principal that is denied. A denial counts before a permission.", "principal"),
        Accepted("principal", "With --list: the ACLs of this principal alone.", "principal", is_optional=True),
        Accepted("allow-host", "The address from which it is allowed (default: *).", "host"),
        Accepted("deny-host", "The address from which it is denied (default: *).", "host"),
        Accepted("producer", "All that a producer needs: Write, Describe and Create on the topic."),
        Accepted("consumer", "All that a consumer needs: Read and Describe on the topic, Read on the group."),
        Accepted("idempotent", "With --producer: idempotence, too."),
        Accepted("force", "Ask nothing."),
    ],
)


class AclPattern(NamedTuple):
    """A resource; with the types ANY and MATCH, a filter of resources."""

    resource: Resource
    name: str
    type: PatternType

    def __str__(self) -> str:
        return f"ResourcePattern(resourceType={self.resource.name}, name={self.name}, patternType={self.type.name})"


class AclEntry(NamedTuple):
    """A permission or denial of an operation on a resource, for one principal. The numbers are the protocol's."""

    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={known(Operation, self.operation).name}, "
            f"permissionType={known(Permission, self.permission).name})"
        )


CLUSTER: Final = AclPattern(Resource.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)


def acl_of(pattern: AclPattern, entry: AclEntry) -> Acl:
    return Acl(pattern.resource, pattern.name, pattern.type, *entry)


def entry_of(acl: Acl) -> AclEntry:
    return AclEntry(acl.principal, acl.host, acl.operation, acl.permission_type)


def pattern_of(acl: Acl) -> AclPattern:
    return AclPattern(known(Resource, acl.resource_type), acl.resource_name, known(PatternType, acl.pattern_type))


def filter_of(pattern: AclPattern, entry: AclEntry | None = None) -> AclFilter:
    """Return the filter for all rules of a resource, or for one rule of it."""
    if entry is None:
        return AclFilter(*pattern, None, None, Operation.ANY, Permission.ANY)
    return AclFilter(*pattern, entry.principal, entry.host, Operation(entry.operation), Permission(entry.permission))


def check_options(given: Given) -> None:
    """Show the usage and end the tool if options do not go together."""
    if given.has("bootstrap-server") == given.has("bootstrap-controller"):
        which = "Only one" if given.has("bootstrap-server") else "One"
        OPTIONS.end_with_usage(f"{which} of --bootstrap-server or --bootstrap-controller must be specified")
    if sum(map(given.has, ("add", "remove", "list"))) != 1:
        OPTIONS.end_with_usage("Command must include exactly one action: --list, --add, --remove. ")
    OPTIONS.exclude(given, "list", "producer", "consumer", "allow-host", "allow-principal", "deny-host",
                    "deny-principal")  # fmt: skip
    for role in ("producer", "consumer"):
        OPTIONS.exclude(given, role, "operation", "deny-principal", "deny-host")
    if given.has("principal") and not given.has("list"):
        OPTIONS.end_with_usage("The --principal option is only available if --list is set")
    if given.has("producer") and not given.has("topic"):
        OPTIONS.end_with_usage("With --producer you must specify a --topic")
    if given.has("idempotent") and not given.has("producer"):
        OPTIONS.end_with_usage("The --idempotent option is only available if --producer is set")
    others = given.has("cluster") or given.has("transactional-id")
    if given.has("consumer") and (
        not given.has("topic") or not given.has("group") or (others and not given.has("producer"))
    ):
        OPTIONS.end_with_usage(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified."
        )


def principals(given: Given, option: str) -> list[str]:
    """Return the principals of an option. Raises ValueError for a text that is not "Type:name"."""
    found = list(dict.fromkeys(text.strip() for text in given.texts(option)))
    for text in found:
        if ":" not in text:
            raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return found


def patterns(given: Given, *, needed: bool) -> list[AclPattern]:
    """Return the resources that the options name; at least one if `needed`. Raises OptionError."""
    kind = _pattern_type(given)
    found = [AclPattern(Resource.TOPIC, name.strip(), kind) for name in given.texts("topic")]
    if kind is PatternType.LITERAL and (given.has("cluster") or given.has("idempotent")):
        found.append(CLUSTER)
    found += [AclPattern(Resource.GROUP, name.strip(), kind) for name in given.texts("group")]
    # Apache Kafka's tool keeps the spaces around a transactional id.
    found += [AclPattern(Resource.TRANSACTIONAL_ID, name, kind) for name in given.texts("transactional-id")]
    found += [AclPattern(Resource.DELEGATION_TOKEN, name.strip(), kind) for name in given.texts("delegation-token")]
    found += [AclPattern(Resource.USER, name.strip(), kind) for name in given.texts("user-principal")]
    if needed and not found:
        OPTIONS.end_with_usage(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    return list(dict.fromkeys(found))


def wanted_entries(given: Given) -> dict[AclPattern, list[AclEntry]]:
    """Return the rules that --add and --remove apply to. Raises OptionError and ValueError."""
    if given.has("add") and (kind := _pattern_type(given)) in (PatternType.ANY, PatternType.MATCH):
        OPTIONS.end_with_usage(f"A '--resource-pattern-type' value of '{kind.name}' is not valid when adding acls.")
    found: dict[AclPattern, list[AclEntry]] = {}
    named = patterns(given, needed=True)
    for role in filter(given.has, ROLES):
        for resource, operations in ROLES[role].items():
            _grant(found, named, resource, _entries(given, operations))
    if given.has("producer") and given.has("idempotent"):
        found[CLUSTER] = _entries(given, (Operation.IDEMPOTENT_WRITE,))
    if not given.has("producer") and not given.has("consumer"):
        written = given.texts("operation") or ["All"]
        named_ones = [_OPERATIONS.get(text.strip().upper(), Operation.UNKNOWN) for text in written]
        entries = _entries(given, dict.fromkeys(named_ones))
        if entries and Operation.ANY in named_ones:
            raise ValueError("operation must not be ANY")
        found = {pattern: list(entries) for pattern in named}
    _check_operations(found)
    if given.has("add") and not all(found.values()):
        OPTIONS.end_with_usage("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    return found


def _pattern_type(given: Given) -> PatternType:
    text = given.text("resource-pattern-type") or ""
    if text.upper() not in _PATTERN_TYPES:
        raise OptionError(f"Cannot parse argument '{text}' of option resource-pattern-type")
    return _PATTERN_TYPES[text.upper()]


def _grant(
    found: dict[AclPattern, list[AclEntry]], named: Iterable[AclPattern], resource: Resource, entries: list[AclEntry]
) -> None:
    for pattern in named:
        if pattern.resource is resource:
            found[pattern] = list(dict.fromkeys([*found.get(pattern, []), *entries]))


def _entries(given: Given, operations: Iterable[Operation]) -> list[AclEntry]:
    wanted = list(operations)
    found = []
    for word, permission in (("allow", Permission.ALLOW), ("deny", Permission.DENY)):
        hosts = [text.strip() for text in given.texts(f"{word}-host")] or [WILDCARD]
        found += [
            AclEntry(principal, host, operation, permission)
            for principal in principals(given, f"{word}-principal")
            for operation in wanted
            for host in dict.fromkeys(hosts)
        ]
    return found


def _check_operations(found: dict[AclPattern, list[AclEntry]]) -> None:
    for pattern, entries in found.items():
        served = [*SUPPORTED_OPERATIONS[pattern.resource], Operation.ALL]
        if any(entry.operation not in served for entry in entries):
            names = ", ".join(sorted(operation.name for operation in served))
            OPTIONS.end_with_usage(f"ResourceType {pattern.resource.name} only supports operations [{names}]")
