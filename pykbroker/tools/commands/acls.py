"""`pykbroker acls`: the permissions of principals (ACLs) in any Kafka cluster with an authorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from pykbroker.tools.commands.client_options import ClientOptions, client_options, controller_options
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.completion import topic_names
from pykbroker.tools.commands.output import Output, output_option

if TYPE_CHECKING:
    from pykbroker.security.acl import Acl, AclFilter

_USER: Final = "User:"
_OPERATIONS: Final = (
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster-action", "describe-configs",
    "alter-configs", "idempotent-write", "create-tokens", "describe-tokens", "two-phase-commit",
)  # fmt: skip
#: The names of `acls.ROLES`, which is imported only when a command runs.
_ROLES: Final = ("producer", "consumer")


@dataclass(frozen=True, slots=True)
class AclRow:
    """One rule, with the protocol's words in lower case."""

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True)
class AccessRow:
    """The decision of the rules about an operation of one principal, and the rule that this comes from."""

    principal: str
    allowed: bool
    rule: str | None


def _resources(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name the resources of rules; the function gets them as `named`, kind -> names."""

    @wraps(function)
    def with_resources(
        topic: tuple[str, ...],
        group: tuple[str, ...],
        transactional_id: tuple[str, ...],
        delegation_token: tuple[str, ...],
        user: tuple[str, ...],
        cluster: bool,
        **words: Any,
    ) -> Any:
        from pykbroker.security.authorizer import CLUSTER_NAME

        named = {
            "topic": topic,
            "group": group,
            "transactional_id": transactional_id,
            "delegation_token": delegation_token,
            "user": user,
            "cluster": (CLUSTER_NAME,) if cluster else (),
        }
        return function(named={kind: names for kind, names in named.items() if names}, **words)

    decorated: Callable[..., Any] = with_resources
    for option in reversed(
        (
            click.option("--topic", multiple=True, metavar="NAME", shell_complete=topic_names,
                         help="A topic; '*' is every topic (may be repeated)."),
            click.option("--group", multiple=True, metavar="NAME", help="A group (may be repeated)."),
            click.option("--transactional-id", multiple=True, metavar="ID",
                         help="A transactional id (may be repeated)."),
            click.option("--delegation-token", multiple=True, metavar="ID",
                         help="A delegation token (may be repeated)."),
            click.option("--user", multiple=True, metavar="PRINCIPAL",
                         help="A user, as what something is done to (may be repeated)."),
            click.option("--cluster", is_flag=True, help="The cluster."),
        )
    ):  # fmt: skip
        decorated = option(decorated)
    return decorated


def _filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose rules. The function gets them as `wanted`, AclFilters, and `is_named`: True if the
    options give a principal or the name of a resource."""

    @wraps(function)
    def with_filters(
        named: dict[str, tuple[str, ...]],
        principal: str | None,
        host: str | None,
        operation: str | None,
        permission: str | None,
        pattern: str,
        **words: Any,
    ) -> Any:
        from pykbroker.security.acl import AclFilter, PatternType, Permission
        from pykbroker.security.authorizer import Operation, Resource

        rest = (
            None if principal is None else _principal(principal),
            host,
            Operation.ANY if operation is None else Operation[_code(operation)],
            Permission.ANY if permission is None else Permission[permission.upper()],
        )
        kind = PatternType[pattern.upper()]
        wanted = [
            AclFilter(Resource[resource.upper()], name, kind, *rest)
            for resource, names in named.items()
            for name in names
        ]
        is_named = bool(wanted) or principal is not None
        return function(wanted=wanted or [AclFilter(Resource.ANY, None, kind, *rest)], is_named=is_named, **words)

    decorated: Callable[..., Any] = with_filters
    for option in reversed(
        (
            click.option("--principal", metavar="NAME", help="Only the rules of this principal."),
            click.option("--host", metavar="ADDRESS", help="Only rules for this host; '*' has those for every host."),
            click.option("--operation", type=click.Choice(_OPERATIONS), help="Only rules about this operation."),
            click.option("--permission", type=click.Choice(["allow", "deny"]), help="Only rules that allow, or deny."),
            click.option("--pattern", type=click.Choice(["any", "literal", "prefixed", "match"]), default="any",
                         show_default=True, help="The kind of the rules' names; match: all that apply to a name."),
        )
    ):  # fmt: skip
        decorated = option(decorated)
    return _resources(decorated)


@click.group("acls", cls=CommandGroup)
def command() -> None:
    """List, add, remove and check the rules of what principals may do.

    A principal without a type is a user: alice is User:alice, and User:* is every user. Names are literal, or with
    --prefixed the beginning of names.
    """


@command.command(
    "list", example="pykbroker acls list --principal alice\npykbroker acls list --topic orders --pattern match"
)
@_filters
@output_option
@controller_options
def listing(client: ClientOptions, out: Output, wanted: list[AclFilter], is_named: bool) -> None:
    """List rules."""
    from pykbroker.tools.cluster import acls

    with client.cluster() as cluster:
        found = {acl for one in wanted for acl in acls.described(cluster, one)}
    out.rows(AclRow, _rows(found))


@command.command(
    "add",
    example="pykbroker acls add alice --topic orders --role producer\n"
    "pykbroker acls add User:CN=reports --topic orders. --prefixed --group reports --role consumer\n"
    "pykbroker acls add bob --deny delete --topic '*'",
)
@click.argument("principal", metavar="PRINCIPAL")
@_resources
@click.option("--allow", multiple=True, type=click.Choice(_OPERATIONS), help="Allow this (may be repeated).")
@click.option("--deny", multiple=True, type=click.Choice(_OPERATIONS), help="Deny this (may be repeated).")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(_ROLES),
    help="Allow all that it needs of the topics, groups and transactional ids (may be repeated).",
)
@click.option("--host", "hosts", multiple=True, metavar="ADDRESS", help="Only from here (may be repeated; default: *).")
@click.option("--prefixed", is_flag=True, help="The names are beginnings of names.")
@output_option
@controller_options
def add(
    client: ClientOptions,
    out: Output,
    principal: str,
    named: dict[str, tuple[str, ...]],
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    roles: tuple[str, ...],
    hosts: tuple[str, ...],
    prefixed: bool,
) -> None:
    """Add rules for a principal: what it may do, or may not.

    A denial counts before every permission. A rule that is there already stays as it is.
    """
    from pykbroker.security.acl import WILDCARD, Acl, AclFilter, PatternType, Permission
    from pykbroker.security.authorizer import SUPPORTED_OPERATIONS, Operation, Resource
    from pykbroker.tools.cluster import acls

    if not named:
        raise _usage("Say what the rules are about: --topic, --group, --transactional-id, --cluster, …")
    if not (allow or deny or roles):
        raise _usage("Say what the rules do: --allow, --deny or --role.")
    if prefixed and "cluster" in named:
        raise _usage("--cluster does not go with --prefixed.")
    wanted: list[tuple[str, str, Permission]] = [
        *((kind, operation, Permission.ALLOW) for kind in named for operation in allow),
        *((kind, operation, Permission.DENY) for kind in named for operation in deny),
    ]
    for role in roles:
        if "topic" not in named:
            raise _usage(f"--role {role} needs a --topic.")
        if role == "consumer" and "group" not in named:
            raise _usage("--role consumer needs a --group: without one no group can be joined; '*' is every group.")
        for resource, operations in acls.ROLES[role].items():
            if (kind := resource.name.lower()) in named:
                wanted += [(kind, _word(operation), Permission.ALLOW) for operation in operations]
    fresh: dict[Acl, None] = {}
    for kind, word, permission in wanted:
        operation, resource = Operation[_code(word)], Resource[_code(kind)]
        if operation not in (*SUPPORTED_OPERATIONS[resource], Operation.ALL):
            known = ", ".join(_word(one) for one in SUPPORTED_OPERATIONS[resource])
            raise _usage(f"A {kind.replace('_', ' ')} has no operation {word}; it has {known}.")
        pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
        for name in named[kind]:
            for host in hosts or (WILDCARD,):
                fresh[Acl(resource, name, pattern, _principal(principal), host, operation, permission)] = None
    own = AclFilter(Resource.ANY, None, PatternType.ANY, _principal(principal), None, Operation.ANY, Permission.ANY)
    with client.cluster() as cluster:
        earlier = fresh.keys() & set(acls.described(cluster, own))
        acls.create(cluster, [*fresh])
    said = f"Added {_counted(len(fresh) - len(earlier))} for {_principal(principal)}"
    out.done(f"{said}, and {len(earlier)} existed already." if earlier else f"{said}.", _rows(fresh))


@command.command(
    "remove",
    example="pykbroker acls remove --principal alice --topic orders\npykbroker acls remove --principal alice",
)
@_filters
@click.option("--all", "is_all", is_flag=True, help="Remove the rules of every principal and every name.")
@output_option
@controller_options
def remove(client: ClientOptions, out: Output, wanted: list[AclFilter], is_named: bool, is_all: bool) -> None:
    """Remove the rules that the options choose, and print them.

    Without a principal and a name, as with --operation alone, they take --all.
    """
    from pykbroker.tools.cluster import acls

    if is_named == is_all:
        raise _usage("Say which rules: --principal, --topic, … or --all, and not both.")
    with client.cluster() as cluster:
        rows = _rows(acls.delete(cluster, wanted))
    if not rows and not out.is_json:
        raise click.ClickException("No rule matches: `pykbroker acls list` names those that there are")
    out.rows(AclRow, rows)


@command.command(
    "check",
    example="pykbroker acls check write --topic orders\n"
    "pykbroker acls check read --topic orders --principal alice --host 10.0.0.7",
)
@click.argument("operation", type=click.Choice(_OPERATIONS[1:]), metavar="OPERATION")
@_resources
@click.option("--principal", "principals", multiple=True, metavar="NAME", help="This one alone (may be repeated).")
@click.option("--host", default="", metavar="ADDRESS", help="From this address (default: any that no rule names).")
@output_option
@client_options
def check(
    client: ClientOptions,
    out: Output,
    operation: str,
    named: dict[str, tuple[str, ...]],
    principals: tuple[str, ...],
    host: str,
) -> None:
    """Say which principals may do something, and by which rule.

    The rules alone count: super users, and allow.everyone.if.no.acl.found, are in the configuration of the nodes. The
    status is 1 when a principal that --principal names is not allowed.
    """
    from pykbroker.security.acl import AclFilter, PatternType, Permission, java_address
    from pykbroker.security.acl_index import AclIndex
    from pykbroker.security.authorizer import SUPPORTED_OPERATIONS, Operation, Resource
    from pykbroker.tools.cluster import acls

    if [len(names) for names in named.values()] != [1]:
        raise _usage("Say of what, once: --topic, --group, --transactional-id or --cluster.")
    ((kind, (name,)),) = named.items()
    resource, code = Resource[_code(kind)], Operation[_code(operation)]
    if code not in SUPPORTED_OPERATIONS[resource]:
        known = ", ".join(_word(one) for one in SUPPORTED_OPERATIONS[resource])
        raise _usage(f"A {kind.replace('_', ' ')} has no operation {operation}; it has {known}.")
    with client.cluster() as cluster:
        applying = AclFilter(resource, name, PatternType.MATCH, None, None, Operation.ANY, Permission.ANY)
        found = acls.described(cluster, applying)
    index = AclIndex({number.to_bytes(8): acl for number, acl in enumerate(found)})
    asked = [_principal(one) for one in principals] or sorted({acl.principal for acl in found})
    rows = []
    for principal in asked:
        rule = index.decide(principal, java_address(host), code, resource, name).rule
        allowed = rule is not None and rule.permission_type == Permission.ALLOW
        rows.append(AccessRow(principal, allowed, None if rule is None else _said(rule)))
    out.rows(AccessRow, rows)
    if principals and not all(row.allowed for row in rows):
        click.get_current_context().exit(1)


def _usage(said: str) -> click.UsageError:
    return click.UsageError(said, click.get_current_context())


def _principal(text: str) -> str:
    """Return a text "Type:name" unchanged, and add "User:" to a name. Raises UsageError for a text that could be
    either."""
    kind, colon, name = text.partition(":")
    if not colon:
        return _USER + text
    # The types of principal builders begin with a capital letter, as Apache Kafka's own types do. CN=a:b has no type.
    if name and kind[:1].isupper() and kind.isidentifier():
        return text
    raise _usage(f"{text!r} is not clear: User:{text} is a user of that name, and a type begins with a capital letter.")


def _code(word: str) -> str:
    return word.upper().replace("-", "_")


def _word(code: Any) -> str:
    return str(code.name).lower().replace("_", "-")


def _rows(found: Iterable[Acl]) -> list[AclRow]:
    """Return rows ordered by resource and name, independent of the order in the answer."""
    return [_row(acl) for acl in sorted(set(found))]


def _row(acl: Acl) -> AclRow:
    from pykbroker.security.acl import PatternType, Permission, known
    from pykbroker.security.authorizer import Operation, Resource

    return AclRow(
        _word(known(Resource, acl.resource_type)),
        acl.resource_name,
        _word(known(PatternType, acl.pattern_type)),
        acl.principal,
        acl.host,
        _word(known(Operation, acl.operation)),
        _word(known(Permission, acl.permission_type)),
    )


def _said(acl: Acl) -> str:
    row = _row(acl)
    return f"{row.permission} {row.operation} on {row.pattern} {row.resource} {row.name} from {row.host}"


def _counted(number: int) -> str:
    return f"{number} rule{'s' * (number != 1)}"
