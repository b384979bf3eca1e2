"""The rules between keys that Apache Kafka checks before a node starts.

Responsible for rules that the row of a key cannot check, most of them about several keys. A function raises ConfigError
or returns warnings; the message names the keys, their values and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pykbroker.config.kinds import ConfigError, split_list
from pykbroker.config.listeners import (
    SECURITY_PROTOCOLS,
    EndPoint,
    ListenerConfig,
    is_wildcard,
    parse_listeners,
    security_protocol_map,
)
from pykbroker.config.typed_config import Config

# (smaller, larger): the first must not be above the second.
_ORDERED: Final = tuple(
    (f"group.{kind}.{low}", f"group.{kind}.{high}")
    for kind in ("consumer", "share", "streams")
    for noun in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
    for low, high in ((f"min.{noun}", noun), (noun, f"max.{noun}"))
) + (
    ("group.share.min.delivery.count.limit", "group.share.delivery.count.limit"),
    ("group.share.delivery.count.limit", "group.share.max.delivery.count.limit"),
    ("group.share.min.partition.max.record.locks", "group.share.partition.max.record.locks"),
    ("group.share.partition.max.record.locks", "group.share.max.partition.max.record.locks"),
    ("group.share.min.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
    ("group.share.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
    ("group.share.max.size", "group.share.max.share.sessions"),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    ("group.streams.num.warmup.replicas", "group.streams.max.warmup.replicas"),
    ("group.streams.min.task.offset.interval.ms", "group.streams.task.offset.interval.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)
_ASSIGNOR_PACKAGE: Final = "org.apache.kafka.coordinator.group.assignor."
RACK_TAGS: Final = "group.streams.rack.aware.assignment.tags"
_STREAMS_ASSIGNOR: Final = "org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor"
# Key -> the values that it may have (the short name of an assignor, or its class in Apache Kafka) -> the short name.
_ASSIGNORS: Final = {
    "group.consumer.assignors": {
        "uniform": "uniform",
        "range": "range",
        _ASSIGNOR_PACKAGE + "UniformAssignor": "uniform",
        _ASSIGNOR_PACKAGE + "RangeAssignor": "range",
    },
    "group.share.assignors": {"simple": "simple", _ASSIGNOR_PACKAGE + "SimpleAssignor": "simple"},
    "group.streams.assignors": {"sticky": "sticky", _STREAMS_ASSIGNOR: "sticky"},
}
#: The class that keeps the state of share groups at share coordinators. Apache Kafka also has one that keeps no state.
SHARE_PERSISTER: Final = "org.apache.kafka.server.share.persister.DefaultStatePersister"
#: The only replica selector (KIP-392) that Apache Kafka contains.
REPLICA_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_DEDUPE_BYTES_PER_THREAD: Final = 1024 * 1024
_HOST: Final = re.compile(r"[0-9a-zA-Z\-._:%]+")


def check_all(config: Config) -> list[str]:
    """Check all rules. Raises ConfigError if the node must not start; returns warnings for settings that are likely
    wrong."""
    warnings: list[str] = []
    if config.int("broker.id") != config.int("node.id"):
        raise ConfigError(
            f"You must set `node.id` to the same value as `broker.id`: node.id is {config.int('node.id')}, "
            f"broker.id is {config.int('broker.id')}"
        )
    _check_roles(config, warnings)
    _check_listeners(config)
    _check_log(config)
    check_cordoned(config)
    _check_connections(config)
    for smaller, larger in _ORDERED:
        _at_most(config, smaller, larger)
    for kind in ("consumer", "share", "streams"):
        _below(config, f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms")
    for name in _ASSIGNORS:
        assignors(config, name)
    tags = config.overrides().get(RACK_TAGS)
    if tags is not None and has_repeated(tags):
        raise _wrong(config, RACK_TAGS, "it must not contain a tag twice")
    if "classic" not in (kind.lower() for kind in config.list("group.coordinator.rebalance.protocols")):
        raise _wrong(
            config, "group.coordinator.rebalance.protocols", "Disabling the 'classic' protocol is not supported"
        )
    if len(config.list("group.share.assignors")) != 1:
        raise _wrong(config, "group.share.assignors", "it must contain exactly one assignor")
    for name in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        if config.int(name) not in _CODECS:
            codecs = ", ".join(f"{number} ({codec})" for number, codec in _CODECS.items())
            raise _wrong(config, name, f"it must be one of {codecs}")
    if config.int("broker.heartbeat.interval.ms") * 2 > config.int("broker.session.timeout.ms"):
        warnings.append(
            f"broker.heartbeat.interval.ms ({config.int('broker.heartbeat.interval.ms')} ms) should be at most half of "
            f"broker.session.timeout.ms ({config.int('broker.session.timeout.ms')} ms): the broker may be fenced "
            f"between two heartbeats"
        )
    return warnings


def has_repeated(tags: str) -> bool:
    """Return True if an element is twice in the text of a list. A list that was read no longer shows it."""
    names = [tag.strip() for tag in tags.split(",")]
    return len(set(names)) != len(names)


def check_cordoned(config: Config) -> None:
    """Check `cordoned.log.dirs`, also for a dynamic change."""
    cordoned = config.optional_list("cordoned.log.dirs") or ()
    if cordoned == ("*",):
        return
    if "*" in cordoned:
        raise ConfigError("requirement failed: When cordoned.log.dirs is set to *, it must not contain other values")
    missing = [path for path in cordoned if path not in config.log_dirs]
    if missing:
        raise ConfigError(
            "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(missing)}"
        )


def assignors(config: Config, name: str) -> tuple[str, ...]:
    """Return the short names of the assignors in a key such as `group.consumer.assignors`."""
    known = _ASSIGNORS[name]
    for entry in config.list(name):
        if entry not in known:
            raise _wrong(config, name, f"Class {entry} cannot be found; there are {', '.join(known)}")
    return tuple(known[entry] for entry in config.list(name))


def require_replica_selector(config: Config) -> None:
    """Raise ConfigError for an unknown `replica.selector.class`. As in Apache Kafka, only the start of a broker checks
    the class; `check_all` accepts any class."""
    selector = config.optional_str("replica.selector.class")
    if config.is_broker and selector not in (None, REPLICA_SELECTOR):
        raise _wrong(config, "replica.selector.class", f"Class {selector} cannot be found; there is {REPLICA_SELECTOR}")


def require_share_persister(config: Config) -> None:
    """Raise ConfigError if `group.share.persister.class.name` is another class than the default. As in Apache Kafka,
    only the start of a broker checks the class."""
    name = "group.share.persister.class.name"
    if config.is_broker and config.str(name) != SHARE_PERSISTER:
        raise _wrong(config, name, f"the state of share groups is kept by {SHARE_PERSISTER} only")


def resolve_listeners(config: Config) -> ListenerConfig:
    controller_names = config.list("controller.listener.names")
    entries = config.list("listeners")
    protocols = security_protocol_map(
        config.str("listener.security.protocol.map"),
        explicit=not config.is_default("listener.security.protocol.map"),
        controller_names=controller_names,
        listeners=entries,
    )
    listeners = parse_listeners("listeners", entries, protocols, distinct_ports=True)
    advertised = config.optional_list("advertised.listeners")
    advertised_points = (
        listeners
        if advertised is None
        else parse_listeners("advertised.listeners", advertised, protocols, distinct_ports=False)
    )
    # The names may be in any case, as in Apache Kafka's check of the map. The names of end points are in capitals.
    controller_names = tuple(name.upper() for name in controller_names)
    controller = tuple(point for point in listeners if point.listener_name in controller_names)
    written = {} if advertised is None else {point.listener_name: point for point in advertised_points}
    bound = {point.listener_name: point for point in controller}
    return ListenerConfig(
        all=listeners,
        broker=tuple(point for point in listeners if point.listener_name not in controller_names),
        controller=controller,
        advertised_broker=tuple(
            _under_own_name(point) for point in advertised_points if point.listener_name not in controller_names
        ),
        advertised_controller=tuple(
            _under_own_name(written[name])
            if name in written
            else _reachable(config, bound[name], first=name == controller_names[0])
            for name in controller_names
            if name in written or name in bound
        ),
        controller_names=controller_names,
        inter_broker_name=_inter_broker_name(config, protocols),
        protocols=protocols,
    )


def _reachable(config: Config, point: EndPoint, *, first: bool) -> EndPoint:
    """Return a controller end point as it is advertised. If it has no host, the end point of the first listener
    (`first`) gets the address of this node in controller.quorum.voters, if that key has this node. In other cases an
    empty host stands for the machine's name."""
    if not is_wildcard(point.host):
        return point
    if first and (voter := config.voters.get(config.int("node.id"))) is not None:
        return replace(point, host=voter[0], port=voter[1])
    return replace(point, host="")


def _under_own_name(point: EndPoint) -> EndPoint:
    """Return an end point of `[::]` as one without a host, because the `::` that Apache Kafka advertises reaches no
    other machine. Apache Kafka refuses 0.0.0.0, and so does `_check_listeners`."""
    return replace(point, host="") if ":" in point.host and is_wildcard(point.host) else point


def _inter_broker_name(config: Config, protocols: Mapping[str, str]) -> str:
    name = config.optional_str("inter.broker.listener.name")
    if name is None:
        return config.str("security.inter.broker.protocol")
    if not config.is_default("security.inter.broker.protocol"):
        raise ConfigError(
            f"Only one of inter.broker.listener.name ({name}) and security.inter.broker.protocol "
            f"({config.raw('security.inter.broker.protocol')}) should be set."
        )
    if name.upper() not in protocols:
        raise _wrong(
            config,
            "inter.broker.listener.name",
            f"it is not in listener.security.protocol.map, which has {', '.join(sorted(protocols))}",
        )
    return name.upper()


def _check_roles(config: Config, warnings: list[str]) -> None:
    node_id = config.int("node.id")
    voters = config.voters
    controller_points = config.listeners.controller
    if not voters and not config.list("controller.quorum.bootstrap.servers"):
        raise ConfigError(
            "Missing configuration controller.quorum.bootstrap.servers: with process.roles set, either it must contain "
            "the controllers as host:port or controller.quorum.voters must contain them as id@host:port"
        )
    if any(host == "0.0.0.0" for host, _ in voters.values()):  # noqa: S104  # compared, not bound
        raise _wrong(config, "controller.quorum.voters", "Host string (0.0.0.0) is not routeable")
    if config.is_controller:
        if voters and node_id not in voters:
            raise _wrong(
                config,
                "controller.quorum.voters",
                f"If process.roles contains the 'controller' role, it must include the node id {node_id}",
            )
        names = {point.listener_name for point in config.listeners.all}
        # Compared as they are written, because Apache Kafka refuses a controller whose names are not in capitals.
        missing = [name for name in config.list("controller.listener.names") if name not in names]
        if missing:
            raise _wrong(
                config,
                "controller.listener.names",
                f"it must only contain names that `listeners` has ({', '.join(sorted(names))}) when process.roles "
                f"contains the 'controller' role",
            )
    else:
        if node_id in voters:
            raise _wrong(
                config,
                "controller.quorum.voters",
                f"If process.roles contains just the 'broker' role, the node id {node_id} must not be in the voters",
            )
        if controller_points:
            raise _wrong(
                config,
                "controller.listener.names",
                "it must not contain a name that `listeners` has when process.roles is just 'broker'",
            )
        for name in config.listeners.controller_names:
            if name not in config.listeners.protocols:
                raise _wrong(
                    config,
                    "controller.listener.names",
                    f"{name} is not in listener.security.protocol.map, which has "
                    f"{', '.join(sorted(config.listeners.protocols))}",
                )
        if config.bool("controller.quorum.auto.join.enable"):
            raise _wrong(
                config,
                "controller.quorum.auto.join.enable",
                "it must be false unless process.roles contains the 'controller' role",
            )
        if len(config.listeners.controller_names) > 1:
            warnings.append(
                f"controller.listener.names has several entries ({', '.join(config.listeners.controller_names)}); only "
                f"the first is used since process.roles is just 'broker'"
            )
        for name in ("create.topic.policy.class.name", "alter.config.policy.class.name"):
            if not config.is_default(name):
                warnings.append(f"{name} has no effect on a node that is no controller")
    if not config.is_broker:
        if len(config.listeners.controller) != len(config.listeners.all):
            raise _wrong(
                config,
                "listeners",
                "it must only contain listeners of controller.listener.names when process.roles is just 'controller'",
            )
        inter_broker = config.optional_str("inter.broker.listener.name")
        if inter_broker is not None and inter_broker.upper() in config.listeners.controller_names:
            raise _wrong(
                config,
                "inter.broker.listener.name",
                "controller.listener.names must not contain it when process.roles is just 'controller'",
            )


def _check_listeners(config: Config) -> None:
    listeners = config.listeners
    names = {point.listener_name for point in listeners.all}
    advertised = {point.listener_name for point in listeners.advertised_broker}
    if config.is_broker:
        if not advertised:
            raise _wrong(
                config,
                "listeners",
                "There must be at least one broker advertised listener; perhaps all listeners appear in "
                "controller.listener.names?",
            )
        if listeners.inter_broker_name not in advertised:
            raise ConfigError(
                f"Invalid value {listeners.inter_broker_name} for configuration inter.broker.listener.name: it must be "
                f"a listener name of advertised.listeners, which has {', '.join(sorted(advertised))}"
            )
        if not advertised <= names:
            raise _wrong(
                config,
                "advertised.listeners",
                f"its listener names must be among those of `listeners`, which has {', '.join(sorted(names))}",
            )
        cordoned = config.optional_list("cordoned.log.dirs") or ()
        if "*" in cordoned and len(cordoned) > 1:
            raise _wrong(config, "cordoned.log.dirs", "`*` must not stand with other values")
        if "*" not in cordoned and not set(cordoned) <= set(config.log_dirs):
            raise _wrong(config, "cordoned.log.dirs", f"its entries must be in log.dirs: {', '.join(config.log_dirs)}")
    key = "advertised.listeners" if config.raw("advertised.listeners") else "listeners"
    for point in (*listeners.advertised_broker, *listeners.advertised_controller):
        if point.host == "0.0.0.0":  # noqa: S104  # compared, not bound
            raise _wrong(
                config,
                key,
                f"{point.listener_name} cannot be advertised with the non-routable address 0.0.0.0; "
                f"set advertised.listeners to an address that clients can reach",
            )
    early = config.optional_list("early.start.listeners") or ()
    for name in early:
        if name not in (*names, *listeners.controller_names, *config.list("controller.listener.names")):
            raise _wrong(
                config,
                "early.start.listeners",
                f"{name} is in neither listeners ({', '.join(sorted(names))}) nor controller.listener.names",
            )
    protocol = listeners.protocols.get(listeners.inter_broker_name, "PLAINTEXT")
    assert protocol in SECURITY_PROTOCOLS
    if config.is_broker and protocol.startswith("SASL"):
        mechanism = config.str("sasl.mechanism.inter.broker.protocol")
        prefix = f"listener.name.{listeners.inter_broker_name.lower()}."
        enabled = config.raw(prefix + "sasl.enabled.mechanisms") or ",".join(config.list("sasl.enabled.mechanisms"))
        if mechanism not in split_list(enabled):
            raise _wrong(
                config,
                "sasl.mechanism.inter.broker.protocol",
                f"sasl.enabled.mechanisms must contain it when SASL is used between brokers; it has {enabled}",
            )


def _check_log(config: Config) -> None:
    if config.millis("log.roll.ms") < 1:
        raise _wrong(config, "log.roll.ms", "it must be at least 1")
    if config.millis("log.roll.jitter.ms") < 0:
        raise _wrong(config, "log.roll.jitter.ms", "it must be at least 0")
    if config.millis("log.retention.ms") == 0:
        name = next(
            name
            for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
            if config[name] is not None
        )
        raise _wrong(config, name, "it must be unlimited (-1) or at least 1")
    threads = config.int("log.cleaner.threads")
    if threads and config.int("log.cleaner.dedupe.buffer.size") // threads <= _DEDUPE_BYTES_PER_THREAD:
        raise _wrong(
            config,
            "log.cleaner.dedupe.buffer.size",
            f"it must be more than 1 MiB for each of the {threads} threads of log.cleaner.threads",
        )
    if config.bool("remote.log.storage.system.enable"):
        check_local_retention(
            {
                "retention.bytes": config.int("log.retention.bytes"),
                "local.retention.bytes": config.int("log.local.retention.bytes"),
                "retention.ms": config.millis("log.retention.ms"),
                "local.retention.ms": config.int("log.local.retention.ms"),
            },
            prefix="log.",
        )


def check_local_retention(values: Mapping[str, int], prefix: str = "") -> None:
    """Check that the local retention of tiered storage is not above the total one. -2 means the total, -1 no limit."""
    for unit in ("bytes", "ms"):
        total, local = values[f"retention.{unit}"], values[f"local.retention.{unit}"]
        if total == -1 or local == -2:
            continue
        name, whole = f"{prefix}local.retention.{unit}", f"{prefix}retention.{unit}"
        if local == -1:
            raise ConfigError(
                f"Invalid value {local} for configuration {name}: "
                f"Value must not be -1 as {whole} value is set as {total}."
            )
        if local > total:
            raise ConfigError(
                f"Invalid value {local} for configuration {name}: "
                f"Value must not be more than {whole} property value: {total}"
            )


def _check_connections(config: Config) -> None:
    queued, largest = config.int("queued.max.request.bytes"), config.int("socket.request.max.bytes")
    if 0 < queued < largest:
        raise _wrong(
            config, "queued.max.request.bytes", f"it must be -1 or at least socket.request.max.bytes ({largest})"
        )
    overrides = parse_ip_overrides(config.str("max.connections.per.ip.overrides"))
    if config.int("max.connections.per.ip") == 0 and not overrides:
        raise _wrong(
            config, "max.connections.per.ip", "it can be 0 only when max.connections.per.ip.overrides names addresses"
        )
    idle, delay = config.int("connections.max.idle.ms"), config.int("connection.failed.authentication.delay.ms")
    if 0 <= idle <= delay:
        raise _wrong(
            config,
            "connection.failed.authentication.delay.ms",
            f"it must be less than connections.max.idle.ms ({idle})",
        )


def parse_ip_overrides(text: str) -> dict[str, int]:
    """Parse `max.connections.per.ip.overrides`: host or address -> number of connections."""
    limits: dict[str, int] = {}
    for entry in split_list(text):
        host, colon, number = entry.rpartition(":")
        if not colon or not re.fullmatch("[+-]?[0-9]{1,10}", number.strip()) or not _HOST.fullmatch(host.strip()):
            raise ConfigError(
                f"Invalid value {text} for configuration max.connections.per.ip.overrides: each entry must be "
                f"<address>:<connections>, but there is {entry!r}"
            )
        limits[host.strip()] = int(number)
    return limits


def _at_most(config: Config, smaller: str, larger: str) -> None:
    if config.int(smaller) > config.int(larger):
        raise _wrong(config, larger, f"it must be greater than or equal to {smaller} ({config.int(smaller)})")


def _below(config: Config, smaller: str, larger: str) -> None:
    if config.int(smaller) >= config.int(larger):
        raise _wrong(config, smaller, f"it must be less than {larger} ({config.int(larger)})")


def _wrong(config: Config, name: str, message: str) -> ConfigError:
    raw = config.raw(name)
    if raw is None:
        value = config[name]
        raw = ",".join(value) if isinstance(value, tuple) else str(value)
    return ConfigError(f"Invalid value {raw} for configuration {name}: {message}")
