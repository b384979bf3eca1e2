"""kafka-configs: describe and change the configuration of topics, brokers, clients, users, addresses and groups."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.kafka.entities import DEFAULT_FLAGS, FLAGS, QUOTA_TYPES, Entity, added, deleted, entities_of
from pykbroker.tools.kafka.java_text import java_double
from pykbroker.tools.kafka.reach import BAD_START, BOOTSTRAP, BOOTSTRAP_CONTROLLER, COMMAND_CONFIG, opened, said_of
from pykbroker.tools.kafka.tool_options import Accepted, Given, OptionError, Options

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster
    from pykbroker.tools.cluster.configs import DescribedConfig, ResourceKind
    from pykbroker.tools.cluster.quotas import QuotaOf

_QUOTA_PARTS: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
_QUOTA_WORDS: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_QUOTA_KEYS: Final = {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
_CHANGES: Final = ("add-config", "add-config-file", "delete-config")
_SCRAM: Final = re.compile(r"(?:iterations=([0-9]*),)?password=(.*)", re.S)

OPTIONS = Options(
    "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, client-metrics "
    "or group",
    [
        BOOTSTRAP,
        BOOTSTRAP_CONTROLLER,
        COMMAND_CONFIG,
        Accepted("add-config", "Pairs to set: k1=v1,k2=[v1,v2]; brackets hold commas together.", "pairs"),
        Accepted("add-config-file", "A properties file with pairs to set.", "file"),
        Accepted("all", "Describe every configuration, static and default ones too."),
        Accepted("alter", "Change the configuration."),
        Accepted("delete-config", "Keys to take away: k1,k2.", "keys"),
        Accepted("describe", "Describe the configuration."),
        Accepted("entity-default", "The default of the type."),
        Accepted("entity-name", "The name of the entity.", "name"),
        Accepted("entity-type", f"One of {', '.join(FLAGS)}.", "type"),
        *(Accepted(flag, f"The name of an entity of the type {type_}.", "name") for type_, flag in FLAGS.items()),
        *(Accepted(flag, f"The default of the type {type_}.") for type_, flag in DEFAULT_FLAGS.items()),
    ],
)


def run(words: Sequence[str]) -> int:
    try:
        given = OPTIONS.parse(words)
        OPTIONS.help_or_version(words, given)
        found = _check(given)
        cluster = opened(given, of_controllers=given.has("bootstrap-controller"))
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1
    with cluster:
        try:
            if given.has("describe"):
                _describe(cluster, found, describes_all=given.has("all"))
            else:
                _alter(cluster, found, added(given), deleted(given))
        except AskFailed as error:
            print(f"Error while executing config command with args '{' '.join(words)}'", file=sys.stderr)
            print(f"{error.name}: {error}", file=sys.stderr)
            return 1
        except (ValueError, OptionError, OSError) as error:
            print(said_of(error), file=sys.stderr)
            return 1
    return 0


def _check(given: Given) -> list[Entity]:
    if given.has("alter") == given.has("describe"):
        OPTIONS.end_with_usage("Command must include exactly one action: --describe, --alter")
    OPTIONS.exclude(given, "alter", "describe", "all")
    OPTIONS.exclude(given, "describe", "alter", "add-config", "delete-config")
    if not (given.has("bootstrap-server") or given.has("bootstrap-controller")):
        raise ValueError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    if given.has("bootstrap-server") and given.has("bootstrap-controller"):
        raise ValueError("Only one of --bootstrap-server or --bootstrap-controller can be specified.")
    found = entities_of(given)
    if given.has("alter"):
        if any(entity.name is None for entity in found):
            raise ValueError(f"An entity name must be specified with --alter of {','.join(e.type for e in found)}")
        if not any(map(given.has, _CHANGES)):
            raise ValueError(
                "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
            )
        added(given)
    return found


# -- describing -------------------------------------------------------------------------------------------------------


def _describe(cluster: AskedCluster, found: list[Entity], *, describes_all: bool) -> None:
    if found[0].type in QUOTA_TYPES:
        _describe_quotas(cluster, found)
    else:
        _describe_resource(cluster, found[0], describes_all=describes_all)


def _describe_resource(cluster: AskedCluster, entity: Entity, *, describes_all: bool) -> None:
    from pykbroker.tools.cluster import configs, topics
    from pykbroker.tools.cluster.configs import ResourceKind

    kind = _kind(entity)
    existing: list[str] | None = None
    if kind is ResourceKind.TOPIC:
        existing = [topic.name for topic in topics.listed(cluster)]
    elif kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER):
        existing = [str(node.id) for node in cluster.nodes()]
    else:
        existing = configs.resource_names(cluster, kind)
        if kind is ResourceKind.GROUP:
            from pykbroker.tools.cluster import groups

            existing += [group.id for group in groups.listed(cluster)]
    if entity.name and entity.name not in existing:
        print(f"The {entity.word} '{entity.name}' doesn't exist and doesn't have dynamic config.")
        return
    if entity.name is not None:
        names = [entity.name]
    else:
        names = sorted(set(existing)) + ([""] if kind is ResourceKind.BROKER else [])
    for name in names:
        what = f"{entity.word} {name}" if name else f"{entity.type} in the cluster"
        kinds = "All" if describes_all else "Default" if not name else "Dynamic"
        print(f"{kinds} configs for {what} are:")
        for entry in _entries(cluster, kind, name, describes_all=describes_all):
            print(entry_line(entry))


def _entries(cluster: AskedCluster, kind: ResourceKind, name: str, *, describes_all: bool) -> list[DescribedConfig]:
    from pykbroker.tools.cluster import configs
    from pykbroker.tools.cluster.configs import ConfigSource, ResourceKind

    own = {
        ResourceKind.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ResourceKind.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
        ResourceKind.CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
        ResourceKind.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
    }.get(kind)
    if kind is ResourceKind.BROKER and not name:
        own = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    found = configs.described(cluster, [(kind, name)], synonyms=True)[kind, name]
    shown = [entry for entry in found if describes_all or own is None or entry.source is own]
    return sorted(shown, key=lambda entry: entry.name)


def entry_line(entry: DescribedConfig) -> str:
    synonyms = ", ".join(f"{one.source.name}:{one.name}={_value(one.value)}" for one in entry.synonyms)
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={_value(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _value(value: str | None) -> str:
    return "null" if value is None else value


def _describe_quotas(cluster: AskedCluster, found: list[Entity]) -> None:
    from pykbroker.tools.cluster import quotas
    from pykbroker.tools.cluster.quotas import QuotaOf

    wanted = [QuotaOf(_QUOTA_PARTS[one.type], one.name or None, any=one.name is None) for one in found]
    for entity, values in quotas.described(cluster, wanted).items():
        written = ", ".join(f"{key}={java_double(value)}" for key, value in values.items())
        print(f"Quota configs for {_quota_words(entity)} are {written}")
    if [one.type for one in found] == ["users"] and found[0].name != "":
        for user, credentials in quotas.scram_of(cluster, found[0].name).items():
            written = ", ".join(f"{mechanism}=iterations={count}" for mechanism, count in credentials)
            print(f"SCRAM credential configs for user-principal '{user}' are {written}")


def _quota_words(entity: Sequence[QuotaOf]) -> str:
    parts = sorted(entity, key=lambda part: part.type, reverse=True)
    return ", ".join(
        f"the default {_QUOTA_WORDS[part.type]}" if part.name is None else f"{_QUOTA_WORDS[part.type]} '{part.name}'"
        for part in parts
    )


# -- changing ---------------------------------------------------------------------------------------------------------


def _alter(cluster: AskedCluster, found: list[Entity], wanted: dict[str, str], unwanted: list[str]) -> None:
    last = found[-1]
    if last.type in QUOTA_TYPES:
        _alter_quotas(cluster, found, wanted, unwanted)
    else:
        from pykbroker.tools.cluster import configs

        # If the broker does not exist, Apache Kafka's tool waits a minute for it.
        configs.alter(cluster, (_kind(last), last.name or ""), configs.changes_of(wanted, unwanted))
    if last.name:
        print(f"Completed updating config for {last.word} {last.name}.")
    else:
        print(f"Completed updating default config for {last.type} in the cluster.")


def _alter_quotas(cluster: AskedCluster, found: list[Entity], wanted: dict[str, str], unwanted: list[str]) -> None:
    from pykbroker.tools.cluster import quotas
    from pykbroker.tools.cluster.quotas import MECHANISMS, QuotaOf

    _check_quota_keys(found, wanted, unwanted)
    scram = {key: scram_credential(key, value) for key, value in wanted.items() if key in MECHANISMS}
    ended = [key for key in unwanted if key in MECHANISMS]
    if scram or ended:
        quotas.alter_scram(cluster, found[0].name or "", scram, ended)
        return
    entity = [QuotaOf(_QUOTA_PARTS[one.type], one.name or None) for one in found]
    known = quotas.described(cluster, entity)
    present = next(iter(known.values()), {})
    missing = [key for key in unwanted if key not in present]
    if missing:
        raise ValueError(f"Invalid config(s): {','.join(missing)}")
    changes: dict[str, float | None] = dict.fromkeys(unwanted)
    for key, value in wanted.items():
        try:
            changes[key] = float(value)
        except ValueError:
            raise ValueError(f"Cannot parse quota configuration value for {key}: {value}") from None
    quotas.alter(cluster, entity, changes)


def _check_quota_keys(found: list[Entity], wanted: dict[str, str], unwanted: list[str]) -> None:
    """Raise ValueError for keys that an entity of these types does not have."""
    from pykbroker.tools.cluster.quotas import MECHANISMS

    types = [one.type for one in found]
    if types == ["ips"]:
        served, said, of = {"connection_creation_rate"}, "connection quota", "ips"
    elif types == ["users"]:
        served, said, of = _QUOTA_KEYS | set(MECHANISMS), "quota and SCRAM credential", "users"
    else:
        served, said, of = _QUOTA_KEYS, "quota", "clients"
    for done, keys, name in (("added", [*wanted], "Set"), ("deleted", unwanted, "ArrayBuffer")):
        if unknown := [key for key in keys if key not in served]:
            if of == "ips":
                done, shown = "added", ",".join(unknown)
            else:
                shown = f"{name}({', '.join(unknown)})"
            raise ValueError(
                f"Only {said} configs can be {done} for '{of}' using --bootstrap-server. Unexpected config names: "
                f"{shown}"
            )
    keys = [*wanted, *unwanted]
    if types == ["users"] and any(key in MECHANISMS for key in keys):
        if not found[0].name:
            raise ValueError(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using "
                "--bootstrap-server."
            )
        if not all(key in MECHANISMS for key in keys):
            raise ValueError(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using "
                "--bootstrap-server."
            )


def scram_credential(mechanism: str, written: str) -> tuple[int, str]:
    """Return the iterations and the password of `iterations=8192,password=secret`. Raises ValueError."""
    found = _SCRAM.fullmatch(written)
    if found is None:
        raise ValueError(f"Invalid credential property {mechanism.replace('-', '_')}={written}")
    iterations = int(found[1]) if found[1] else 4096
    if iterations < 4096:
        raise ValueError(f"Iterations {iterations} is less than the minimum 4096 required for {mechanism}")
    return iterations, found[2]


def _kind(entity: Entity) -> ResourceKind:
    from pykbroker.tools.cluster.configs import ResourceKind

    return {
        "topics": ResourceKind.TOPIC,
        "brokers": ResourceKind.BROKER,
        "broker-loggers": ResourceKind.BROKER_LOGGER,
        "client-metrics": ResourceKind.CLIENT_METRICS,
        "groups": ResourceKind.GROUP,
    }[entity.type]
