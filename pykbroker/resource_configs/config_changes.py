"""The common part of AlterConfigs and IncrementalAlterConfigs: the resources of a request, and the checks of a change.

As in Apache Kafka, the broker that gets the request checks a change of its own or of all brokers' configuration against
its own properties file (ConfigAdminManager). The controller then checks topics, groups and client metrics. No broker
has checked a change that comes to the controller's own listener, and the broker that it concerns may not be running. So
the values are checked without a properties file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pykbroker.config.dynamic import DynamicConfigs, check_dynamic_values, validate_broker_overrides
from pykbroker.config.kinds import PYTHON_CLASS, ConfigError
from pykbroker.config.protection import one_line, promises_of_change
from pykbroker.controller.configs import ResourceKey
from pykbroker.controller.result import OK, Verdict, failure
from pykbroker.controller.state import ControllerState
from pykbroker.dispatch.context import AnyContext, BrokerContext, ControllerContext
from pykbroker.dispatch.peers import ForwardedPeer
from pykbroker.dispatch.rows import Settled
from pykbroker.metadata.image import ConfigResource
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode

ResourceVerdicts = dict[ResourceKey, Verdict]
T = TypeVar("T")


class Named(Protocol):
    @property
    def name(self) -> str: ...


class AlteredResource(Protocol):
    """A resource in one of the two requests."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sequence[Named]: ...


class AnsweredResource(Protocol):
    """The answer for one resource."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=AlteredResource)
A = TypeVar("A", bound=AnsweredResource)


class AlteredAnswer(Protocol[A]):
    """The response to one of the two requests."""

    responses: list[A]


@dataclass(slots=True, frozen=True)
class BrokerChange:
    """A requested change of one broker's configuration, or of all brokers'.

    nulls: keys without a value. given: the values in the request. apply: makes the change in a layer.
    """

    nulls: Sequence[str]
    given: Mapping[str, str]
    apply: Callable[[dict[str, str]], None]


def judge_on_broker(ctx: BrokerContext, resource: AlteredResource, change: BrokerChange) -> Verdict:
    """Return OK if this broker may pass the change on. A change of a broker's configuration must come to that broker,
    which checks that it can use the values. A client without the permission is refused here, before its values cost
    time or name files that would be read. Apache Kafka's broker checks the values first."""
    verdict = check_keys(resource, change.nulls)
    if not verdict.failed:
        verdict = check_start_only(change.given)
    if verdict.failed or resource.resource_type != ConfigResource.BROKER:
        return verdict
    name, node_id = resource.resource_name, ctx.services.node_id
    if name and not re.fullmatch(_INTEGER, name):
        return failure(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if name and int(name) != node_id:
        return failure(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")
    code = unauthorized(ctx, Operation.ALTER_CONFIGS, key_of(resource))
    if code is not None:
        # Apache Kafka 4.4 has no message here.
        return Verdict(code, None)
    if (verdict := _check_promises(ctx, name, change.given)).failed:
        return verdict
    configs = ctx.services.metadata.image.configs
    current = DynamicConfigs(
        broker=configs.of(ConfigResource.BROKER, str(node_id)), cluster=configs.of(ConfigResource.BROKER, "")
    )
    layer = dict(current.broker if name else current.cluster)
    change.apply(layer)

    def check() -> None:
        validate_broker_overrides(ctx.services.config, current, layer, per_broker=bool(name))
        if name:
            ctx.services.check_stores(DynamicConfigs(layer, current.cluster).apply(ctx.services.config))

    return _without_config_error(check)


def judge_on_controller(
    ctx: ControllerContext, state: ControllerState, resource: AlteredResource, change: BrokerChange
) -> Verdict:
    """Return OK if the controller may write the change, as far as the request alone shows. Names are checked with the
    records. The caller has called `check_keys` and has checked the client's permission."""
    verdict = check_start_only(change.given)
    if verdict.failed or resource.resource_type != ConfigResource.BROKER:
        return verdict
    name, is_forwarded = resource.resource_name, isinstance(ctx.peer, ForwardedPeer)
    if name and is_forwarded:
        return OK
    # A change for all brokers is checked here too, because the broker that forwarded it may be an Apache Kafka broker.
    verdict = _check_promises(ctx, name, change.given)
    if verdict.failed or is_forwarded:
        return verdict
    layer = dict(state.image.configs.of(ConfigResource.BROKER, name))
    change.apply(layer)
    return _without_config_error(lambda: check_dynamic_values(layer, per_broker=bool(name)))


def permitted(
    ctx: ControllerContext,
    state: ControllerState,
    asked: Mapping[ResourceKey, tuple[AlteredResource, T]],
    change_of: Callable[[T], BrokerChange],
    verdicts: ResourceVerdicts,
) -> dict[ResourceKey, T]:
    """Return the changes of `asked` that the controller may write. `verdicts` gets the errors of the others. The order
    is Apache Kafka's: first the form of the request, then the client's permission, then the values."""
    found: dict[ResourceKey, T] = {}
    for key, (resource, change) in asked.items():
        verdict = check_keys(resource, change_of(change).nulls)
        if verdict.failed:
            verdicts[key] = verdict
        else:
            found[key] = change
    authorize_all(ctx, found, verdicts)
    for key, change in list(found.items()):
        verdict = judge_on_controller(ctx, state, asked[key][0], change_of(change))
        if verdict.failed:
            verdicts[key] = verdict
            del found[key]
    return found


def _check_promises(ctx: AnyContext, name: str, given: Mapping[str, str]) -> Verdict:
    """Refuse a change that promises a protection which this broker does not have."""
    brokers = ctx.services.metadata.image.brokers
    concerned = brokers.values() if not name else [each for each in brokers.values() if str(each.id) == name]
    registered = {listener for broker in concerned for listener in broker.endpoints}
    promised = promises_of_change(ctx.services.config, given, registered)
    return failure(ErrorCode.INVALID_CONFIG, one_line(promised)) if promised else OK


def _without_config_error(check: Callable[[], None]) -> Verdict:
    try:
        check()
    except ConfigError as error:
        # Kafka calls it an invalid request, not an invalid configuration (KAFKA-13609).
        return failure(ErrorCode.INVALID_REQUEST, str(error))
    return OK


def settled(
    resources: Sequence[R],
    verdicts: Mapping[ResourceKey, Verdict],
    ask: Callable[[list[R]], object],
    empty: Callable[[], AlteredAnswer[A]],
    make: Callable[[int, str, ErrorCode, str | None], A],
) -> Settled | None:
    """Return the broker's answers for the resources in `verdicts`. For the others the result has the request to the
    controller, which `ask` makes. Return None if `verdicts` is empty. `empty` makes an empty response, and `make` the
    answer for one resource."""
    if not verdicts:
        return None
    rest = [resource for resource in resources if key_of(resource) not in verdicts]

    def whole(answer: AlteredAnswer[A] | None) -> AlteredAnswer[A]:
        answer = answer or empty()
        by_key = {(each.resource_type, each.resource_name): each for each in answer.responses}
        for key, verdict in verdicts.items():
            by_key[key] = make(*key, *verdict)
        answer.responses = [by_key[key_of(resource)] for resource in resources]
        return answer

    return Settled(ask(rest) if rest else None, whole)


def key_of(resource: AlteredResource) -> ResourceKey:
    return resource.resource_type, resource.resource_name


def sort_out(resources: Sequence[R], verdicts: ResourceVerdicts) -> list[tuple[ResourceKey, R]]:
    """Return the resources that the request names once. `verdicts` gets the errors of the others."""
    keys = [key_of(resource) for resource in resources]
    counts = Counter(keys)
    found = []
    for key, resource in zip(keys, resources, strict=True):
        if counts[key] > 1:
            verdicts[key] = failure(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        else:
            found.append((key, resource))
    return found


#: Python's int() would also take spaces and underscores.
_INTEGER = r"[+-]?[0-9]{1,10}"
_ALTERABLE = (
    ConfigResource.TOPIC,
    ConfigResource.BROKER,
    ConfigResource.BROKER_LOGGER,
    ConfigResource.CLIENT_METRICS,
    ConfigResource.GROUP,
)


def check_keys(resource: AlteredResource, nulls: Sequence[str]) -> Verdict:
    """Check the form of a request: unique keys, no nulls, a known resource type."""
    names = [config.name for config in resource.configs]
    if len(set(names)) != len(names):
        return failure(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        return failure(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    if resource.resource_type not in _ALTERABLE:
        return failure(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    return OK


def check_start_only(given: Mapping[str, str]) -> Verdict:
    """Refuse values that only a properties file may set: the code that runs in a node, and the places from which values
    come.

    The time is linear in the length of the text, because a broker checks this before the controller authorizes."""
    for key, value in given.items():
        if key.endswith("callback.handler.class") or ".config.providers." in f".{key}.":
            why = "is taken from the properties file alone"
        elif value.strip().startswith(PYTHON_CLASS):
            why = "names a class of Python, which only the properties file may"
        elif _has_variable(value):
            why = "has a variable in its value, which only the properties file may"
        else:
            continue
        return failure(ErrorCode.INVALID_CONFIG, f"{key} {why}")
    return OK


def _has_variable(value: str) -> bool:
    begin = value.find("${")
    return begin >= 0 and value.find("}", begin) >= 0


def authorize_all(ctx: ControllerContext, changes: dict[ResourceKey, T], verdicts: ResourceVerdicts) -> None:
    for key in list(changes):
        code = unauthorized(ctx, Operation.ALTER_CONFIGS, key)
        if code is not None:
            del changes[key]
            verdicts[key] = failure(code)


def unauthorized(ctx: AnyContext, operation: Operation, key: ResourceKey) -> ErrorCode | None:
    """Return the error for a principal that may not do this with the resource, or None."""
    resource_type, name = key
    match resource_type:
        case ConfigResource.TOPIC:
            allowed = ctx.authorize(operation, Resource.TOPIC, name)
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        case ConfigResource.GROUP:
            allowed = ctx.authorize(operation, Resource.GROUP, name)
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        case _:
            allowed = ctx.authorize(operation, Resource.CLUSTER, CLUSTER_NAME)
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None if allowed else code
