"""What AlterConfigs and IncrementalAlterConfigs share: the resources of a request, and how a change is judged.

As in Apache Kafka, the broker that is asked judges a change of its own or of all brokers' configuration, with its own
properties file (ConfigAdminManager); the controller then judges topics, groups and client metrics. A change that comes
to the controller's own listener was judged by no broker, and may be meant for one that does not run: its values are
judged alone.
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
    """A resource of either request."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sequence[Named]: ...


class AnsweredResource(Protocol):
    """The answer for one of them."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=AlteredResource)
A = TypeVar("A", bound=AnsweredResource)


class AlteredAnswer(Protocol[A]):
    """The response to either request."""

    responses: list[A]


@dataclass(slots=True, frozen=True)
class BrokerChange:
    """What a request says of one broker's configuration, or of all brokers'.

    nulls: keys that are given no value. given: the values that the request names. apply: what the request does to the
    layer that it changes.
    """

    nulls: Sequence[str]
    given: Mapping[str, str]
    apply: Callable[[dict[str, str]], None]


def judge_on_broker(ctx: BrokerContext, resource: AlteredResource, change: BrokerChange) -> Verdict:
    """OK for what this broker may pass on. A broker's configuration is changed at that broker, which must be able to
    live with it. A client that may not change it is refused here, before the values cost time or name files to read;
    Apache Kafka's broker judges the values first."""
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
        return failure(code)
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
    """OK for what the controller may write, as far as the request alone says. Names are judged with the records.

    For a change that passed `check_keys`, by a client that may make it."""
    verdict = check_start_only(change.given)
    if verdict.failed or resource.resource_type != ConfigResource.BROKER:
        return verdict
    name, is_forwarded = resource.resource_name, isinstance(ctx.peer, ForwardedPeer)
    if name and is_forwarded:
        return OK
    # What all brokers get concerns more than the broker that was asked: it may be an Apache Kafka broker.
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
    """What of `asked` the controller may write; `verdicts` gets the others. In the order of Apache Kafka: how a request
    is written, then what the client may, then what it says."""
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
    """Refuse protection that is not served."""
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
    """What a broker says of the resources in `verdicts`, and the request for the others (`ask`), which the controller
    answers; None when the controller answers for all. `empty` makes a response, `make` the answer for one resource."""
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
    """Resources that are named once."""
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
    """What a broker checks before it asks the controller."""
    names = [config.name for config in resource.configs]
    if len(set(names)) != len(names):
        return failure(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        return failure(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    if resource.resource_type not in _ALTERABLE:
        return failure(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    return OK


def check_start_only(given: Mapping[str, str]) -> Verdict:
    """Refuse what only a properties file may say: which code runs in a node, and where values come from.

    In a time that grows with the length of a text and no faster: a broker asks before the controller authorizes."""
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
    """The error for a principal that may not do this with the resource, or None."""
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
