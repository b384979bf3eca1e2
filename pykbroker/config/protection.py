"""Settings that promise protection which this version does not give: the rules that find them, and the refusing line.

Responsible for finding such settings in the texts of a configuration. The start, `pykbroker format`, embedded use,
AlterConfigs and the dynamic layers of the metadata log all use this module. The row of a key (keys/) says by `refused`
which of its values are refused. Not responsible for keys without effect (silent.py), nor for malformed values
(load.py).

All functions work on texts, so that a change can be judged before it is applied. A key loses its `refused` when the
program begins to give its protection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pykbroker.config.dynamic import DynamicConfigs, loggable
from pykbroker.config.key_table import STATIC_KEYS, TOPIC_KEYS, names_with
from pykbroker.config.kinds import (
    DEFINES_LISTENERS,
    LOGIN_TIME,
    PYTHON_CLASS,
    RELOADED,
    SERVED_SASL,
    STANDARD_AUTHORIZER,
    ConfigError,
    RefusedValues,
    Required,
    Value,
    format_value,
)
from pykbroker.config.listeners import LISTENER_PREFIX, PLAINTEXT, TLS_PROTOCOLS, security_protocol_map
from pykbroker.config.provider_names import CLASSES, class_key, provider_names
from pykbroker.config.typed_config import Config

_AUTHORIZER: Final = "authorizer.class.name"
_PROTOCOL_MAP: Final = "listener.security.protocol.map"
PRINCIPAL_BUILDER: Final = "principal.builder.class"
#: Keys of protection after `listener.name.<listener>.[<mechanism>.]`: the beginnings of keys, and whole keys.
_PREFIXES: Final = ("ssl.", "sasl.")
_WHOLE_KEYS: Final = ("connections.max.reauth.ms", PRINCIPAL_BUILDER)
_LONGEST_VALUE: Final = 200


class BrokenPromise(NamedTuple):
    """A setting whose promised protection is not served."""

    key: str
    value: str
    not_served: str

    def __repr__(self) -> str:
        return f"BrokenPromise({self})"

    def __str__(self) -> str:
        value = " ".join((self.value if self.key in TOPIC_TABLE else loggable(self.key, self.value)).split())
        if len(value) > _LONGEST_VALUE:
            value = value[:_LONGEST_VALUE] + "..."
        return f"{self.key}={value} ({self.not_served})"


@dataclass(slots=True, frozen=True)
class GivenSettings:
    """The texts that are set, and the listeners that they apply to."""

    texts: Mapping[str, str] = field(repr=False)
    #: listener name in upper case -> the key that names it, and the text of its entry
    listeners: Mapping[str, tuple[str, str]]
    #: a key `listener.name.<listener>.` is judged for any listener, because a node may not know the listeners of others
    every_listener: bool
    #: keys that are changed while the node runs; some protection is given only if it is set at the start
    changed: Collection[str]


#: Keys that define listeners and their security.
_ABOUT_LISTENERS: Final = frozenset(names_with(DEFINES_LISTENERS))
#: Keys that act with the prefix of a SASL listener, if the properties file sets them.
_SERVED_SASL: Final = frozenset(names_with(SERVED_SASL))
#: Keys that may change with the prefix of a TLS listener while a node runs.
_RELOADED: Final = frozenset(names_with(RELOADED))
#: Keys that set when a client logs in again, and with which program. They protect nothing.
_TIMES_OF_LOGINS: Final = frozenset(names_with(LOGIN_TIME))
#: Classes that would take part in the authentication of a SASL listener.
_SASL_CLASSES: Final = (
    "sasl.server.callback.handler.class",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
)


@dataclass(slots=True, frozen=True)
class ProtectionRow:
    """`keys` are as in docs/configuration.md. `counts`: the words for when the row refuses a setting. `found`: yields
    the refused settings."""

    keys: tuple[str, ...]
    counts: str
    not_served: str
    found: Callable[[GivenSettings], Iterator[tuple[str, str, str]]]


def _of_rule(keys: tuple[str, ...], found: Callable[[GivenSettings], Iterator[tuple[str, str, str]]]) -> ProtectionRow:
    """Return the row of keys that a rule judges together. Each of them has the same `RefusedValues`."""
    refused = _refused(keys[0])
    assert all(_refused(key) is refused for key in keys)
    return ProtectionRow(keys, refused.when, refused.not_served, found)


def _of_value(key: str) -> ProtectionRow:
    """Return the row of a key whose value alone decides. It refuses every value that is not harmless; with `role` only
    on nodes with that role. With `python` a class of Python is refused only if it is set while the node runs."""
    refused = _refused(key)
    harmless = (None, "", (), *refused.harmless)

    def found(settings: GivenSettings) -> Iterator[tuple[str, str, str]]:
        if refused.python and settings.texts.get(key, "").strip().startswith(PYTHON_CLASS):
            if key in settings.changed:
                yield key, settings.texts[key], "a class of Python that the properties file does not name"
            return
        if refused.role is not None and refused.role not in _list(settings.texts, "process.roles"):
            return
        value = _value(settings.texts, key)
        if value not in harmless:
            yield key, format_value(value) or "", refused.not_served

    named = [format_value(value) or "" for value in refused.harmless]
    if refused.python:
        named.insert(0, "a class of Python (docs/plugins.md)")
    counts = f"it is not {', '.join(named)}" if named else "it is set"
    return ProtectionRow(
        (key,), counts if refused.role is None else f"{counts} on a {refused.role}", refused.not_served, found
    )


def _refused(key: str) -> RefusedValues:
    refused = STATIC_KEYS[key].refused
    assert refused is not None, f"the row of {key} says nothing of what is refused"
    return refused


def _value(texts: Mapping[str, str], key: str) -> Value:
    row, text = STATIC_KEYS[key], texts.get(key)
    if text is not None:
        return row.parse(text)
    return None if isinstance(row.default, Required) else row.default


def _list(texts: Mapping[str, str], key: str) -> tuple[str, ...]:
    value = _value(texts, key)
    return value if isinstance(value, tuple) else ()


def _protocols(texts: Mapping[str, str]) -> dict[str, str]:
    return security_protocol_map(
        str(_value(texts, _PROTOCOL_MAP)),
        explicit=_PROTOCOL_MAP in texts,
        controller_names=_list(texts, "controller.listener.names"),
        listeners=_list(texts, "listeners"),
    )


def _between_brokers(settings: GivenSettings) -> Iterator[tuple[str, str, str]]:
    key = "security.inter.broker.protocol"
    value = str(_value(settings.texts, key))
    if value != PLAINTEXT and key in settings.changed:
        yield key, value, "protection that begins later"


def _late_listeners(settings: GivenSettings) -> Iterator[tuple[str, str, str]]:
    """If a key about listeners is changed, find every listener that is not PLAINTEXT. Only the properties file decides
    how listeners are secured, so the change would not secure them."""
    texts = settings.texts
    if _ABOUT_LISTENERS.isdisjoint(settings.changed):
        return
    protocols = _protocols(texts)
    for name, (key, value) in settings.listeners.items():
        protocol = protocols.get(name, PLAINTEXT)
        if protocol == PLAINTEXT:
            continue
        if _PROTOCOL_MAP in texts:
            key, value = _PROTOCOL_MAP, f"{name}:{protocol}"
        yield key, value, f"{protocol} on listener {name}"


@dataclass(slots=True)
class _Branch:
    """A node of the tree of names: the name that ends at it, if any, and the branches of longer names by their next
    part."""

    name: str | None = None
    longer: dict[str, _Branch] = field(default_factory=dict)


class _Names:
    """Names of listeners, as a tree of their parts between dots. So a search is fast, although a client may send many
    keys and many listeners."""

    __slots__ = ("_root",)

    def __init__(self, names: Iterable[str]) -> None:
        self._root = _Branch()
        for name in names:
            branch = self._root
            for part in name.split("."):
                branch = branch.longer.setdefault(part, _Branch())
            branch.name = name

    def longest_of(self, rest: str) -> str | None:
        """Return the longest name with which `rest` begins, up to a dot. A name may have dots, and may be the beginning
        of another."""
        branch, found = self._root, None
        for part in rest.split(".")[:-1]:
            if part not in branch.longer:
                break
            branch = branch.longer[part]
            found = found if branch.name is None else branch.name
        return found


def _split_key(rest: str) -> tuple[str | None, str] | None:
    """Return the text before a key of protection, and the key; None if `rest` has no such key. The leftmost such key
    after a dot counts; if there is none, a key at the beginning."""
    if "\n" in rest:
        return None
    found = [(rest.find(f".{prefix}", 1), len(prefix) + 1) for prefix in _PREFIXES]
    found += [(len(rest) - len(key) - 1, 0) for key in _WHOLE_KEYS if rest.endswith(f".{key}")]
    places = [place for place, length in found if place > 0 and len(rest) > place + length]
    if places:
        place = min(places)
        return rest[:place], rest[place + 1 :]
    if rest in _WHOLE_KEYS or (rest.startswith(_PREFIXES) and rest not in _PREFIXES):
        return None, rest
    return None


def _listener_keys(settings: GivenSettings) -> Iterator[tuple[str, str, str]]:
    protocols = _protocols(settings.texts)
    names = _Names(settings.listeners)
    for key, text in settings.texts.items():
        if not key.startswith(LISTENER_PREFIX):
            continue
        rest = key[len(LISTENER_PREFIX) :]
        name = names.longest_of(rest.upper())
        match = _split_key(rest if name is None else rest[len(name) + 1 :])
        if match is None or (name is None and not (match[0] and settings.every_listener)):
            continue
        mechanism, base = match
        before = rest[: -len(base) - 1]
        may_change = key not in settings.changed or base in _RELOADED
        protocol = protocols.get(name or "", PLAINTEXT)
        # As in Apache Kafka, a key acts only if the listener and the mechanism in it are in lower case.
        if may_change and before == before.lower() and _is_served(base, mechanism, protocol):
            continue
        if _is_harmless(base, text, settings.texts):
            continue
        what = "TLS" if base.startswith("ssl.") else "authentication"
        yield key, text, f"{what} on listener {name or before.upper()}"


def _is_served(base: str, mechanism: str | None, protocol: str) -> bool:
    """Return True if a key with the prefix of a listener acts when the properties file sets it."""
    if base.startswith("ssl."):
        return protocol in TLS_PROTOCOLS
    # A JAAS line belongs to one mechanism; Apache Kafka ignores a line whose key names no mechanism.
    is_whole = base != "sasl.jaas.config" or mechanism is not None
    return protocol.startswith("SASL_") and base in _SERVED_SASL and is_whole


def _is_harmless(base: str, text: str, texts: Mapping[str, str]) -> bool:
    """Return True if the key changes nothing for a listener."""
    if base in _TIMES_OF_LOGINS:
        return True
    row = STATIC_KEYS.get(base)
    if row is None or base.startswith(("ssl.", "sasl.")):
        return False
    # All listeners use the principal builder of the node, so the same class with a prefix changes nothing.
    return row.parse(text) == (_value(texts, base) if base == PRINCIPAL_BUILDER else row.default)


def _sasl_classes(settings: GivenSettings) -> Iterator[tuple[str, str, str]]:
    if settings.every_listener or _uses_sasl(settings):
        for key in _SASL_CLASSES:
            if settings.texts.get(key):
                yield key, settings.texts[key], "authentication by other programs"


def _late_sasl(settings: GivenSettings) -> Iterator[tuple[str, str, str]]:
    """Find changed keys of SASL. Authentication follows the properties file, so a change would have no effect."""
    if _uses_sasl(settings):
        for key in sorted(settings.changed):
            if key.startswith("sasl.") and key not in _SASL_CLASSES and key not in _TIMES_OF_LOGINS:
                yield key, settings.texts[key], "authentication that the properties file does not name"


def _uses_sasl(settings: GivenSettings) -> bool:
    protocols = _protocols(settings.texts)
    return any(protocols.get(name, PLAINTEXT).startswith("SASL_") for name in settings.listeners)


def _providers(settings: GivenSettings) -> Iterator[tuple[str, str, str]]:
    key = "config.providers"
    if key in settings.changed and settings.texts[key]:
        yield key, settings.texts[key], "config providers that the properties file does not name"
        return
    names = provider_names(settings.texts)
    unknown = [name for name in names if settings.texts.get(class_key(name), "") not in CLASSES]
    if unknown:
        yield key, settings.texts[key], f"config providers of other classes: {', '.join(unknown)}"


#: The rows stand in the order in which a line names what it refuses. The keys and the words are those of keys/.
TABLE: Final[tuple[ProtectionRow, ...]] = (
    _of_rule(("listeners", "advertised.listeners", "controller.listener.names", _PROTOCOL_MAP), _late_listeners),
    _of_rule(("security.inter.broker.protocol",), _between_brokers),
    _of_rule(_SASL_CLASSES, _sasl_classes),
    ProtectionRow(
        (
            "listener.name.<listener>.ssl.*",
            "listener.name.<listener>[.<mechanism>].sasl.*",
            "listener.name.<listener>[.<mechanism>].connections.max.reauth.ms",
            "listener.name.<listener>.principal.builder.class",
        ),
        "the listener is in use, except, from the start on, for `ssl.*` of one with TLS, and for "
        "`sasl.enabled.mechanisms`, `<mechanism>.sasl.jaas.config`, `sasl.server.max.receive.size` and "
        "`connections.max.reauth.ms` of one with SASL; never for the times of logins (`sasl.login.refresh.*`)",
        "TLS and authentication",
        _listener_keys,
    ),
    _of_value(_AUTHORIZER),
    _of_value(PRINCIPAL_BUILDER),
    _of_value("create.topic.policy.class.name"),
    _of_value("alter.config.policy.class.name"),
    _of_value("client.quota.callback.class"),
    _of_value("delegation.token.secret.key"),
    _of_value("security.providers"),
    _of_rule(("config.providers",), _providers),
    _of_value("remote.log.storage.system.enable"),
)

#: Topic key -> the value that promises a feature, and this feature, which is not served.
TOPIC_TABLE: Final[Mapping[str, tuple[str, str]]] = {
    name: ("true", key.refused.not_served) for name, key in TOPIC_KEYS.items() if key.refused is not None
}


def refuse(texts: Mapping[str, str]) -> None:
    """Raise ConfigError if a node must not start with these settings. The message is one line."""
    found = promises(texts)
    if found:
        raise ConfigError(one_line(found))


def one_line(found: Collection[BrokenPromise]) -> str:
    return f"This version does not give the protection that is set: {'; '.join(map(str, found))}"


def promises(
    texts: Mapping[str, str],
    *,
    also_in_use: Collection[str] = (),
    every_listener: bool = False,
    changed: Collection[str] = (),
) -> list[BrokenPromise]:
    """Return the settings whose promised protection this version does not give. `changed`: keys that are set while the
    node runs. Raises ConfigError for a malformed text."""
    listeners = {name.upper(): (_PROTOCOL_MAP, name) for name in also_in_use}
    inter_broker = texts.get("inter.broker.listener.name")
    if inter_broker:
        listeners[inter_broker.upper()] = ("inter.broker.listener.name", inter_broker)
    for name in _list(texts, "controller.listener.names"):
        listeners[name.upper()] = ("controller.listener.names", name)
    for key in ("advertised.listeners", "listeners"):
        for entry in _list(texts, key):
            listeners[entry.partition("://")[0].upper()] = (key, entry)
    settings = GivenSettings(texts, listeners, every_listener, changed)
    rules = [*(row.found for row in TABLE), _late_sasl]
    return [BrokenPromise(*each) for found in rules for each in found(settings)]


def promises_of_change(config: Config, changed: Mapping[str, str], registered: Collection[str]) -> list[BrokenPromise]:
    """Return the broken promises that AlterConfigs of a broker would add. `registered`: the listeners of the brokers
    concerned."""
    also_in_use = registered if _PROTOCOL_MAP in changed else ()
    static = config.overrides()
    try:
        found = promises({**static, **changed}, also_in_use=also_in_use, every_listener=True, changed=changed)
        # The start has accepted the properties file. So its promises for listeners that this node does not have count
        # only if the change touches listeners.
        before = promises(static, every_listener=True) if found and _ABOUT_LISTENERS.isdisjoint(changed) else []
        found = [each for each in found if each.key in changed or each not in before]
    except ConfigError:
        found = []  # a malformed text, which the ordinary checks report
    return [*found, *_late_authorizer(config, changed)]


def promises_of_layers(config: Config, dynamic: DynamicConfigs) -> list[BrokenPromise]:
    """Return the broken promises in the metadata log for this broker. Each setting is also judged alone, because all of
    them together cannot be judged if one is malformed."""
    static = config.overrides()
    layers = {**dynamic.cluster, **dynamic.broker}
    found: dict[BrokenPromise, None] = dict.fromkeys(_late_authorizer(config, layers))
    for changed in (layers, *({name: text} for name, text in layers.items())):
        try:
            found.update(dict.fromkeys(promises({**static, **changed}, changed=changed)))
        except ConfigError:
            continue  # LiveConfig leaves the malformed setting out, and logs it
    return list(found)


def _late_authorizer(config: Config, changed: Mapping[str, str]) -> list[BrokenPromise]:
    """Find an authorizer that is set outside the properties file, because only that file can set an authorizer."""
    wanted = changed.get(_AUTHORIZER, "").strip()
    if wanted != STANDARD_AUTHORIZER or config.optional_str(_AUTHORIZER):
        return []
    return [BrokenPromise(_AUTHORIZER, wanted, "an authorizer that the properties file does not name")]


def promises_of_topic(name: str, overrides: Mapping[str, str | None]) -> list[BrokenPromise]:
    """Return the broken promises in the overrides of a topic."""
    found = []
    for key, (promising, not_served) in TOPIC_TABLE.items():
        text = overrides.get(key)
        if text is not None and text.strip().lower() == promising:
            found.append(BrokenPromise(key, text, f"{not_served} of topic {name}"))
    return found
