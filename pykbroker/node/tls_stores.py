"""The stores of this node's TLS listeners while the node runs: it takes new stores, and warns of certificates that
expire.

Responsible for the times at which stores are read again. The first is an AlterConfigs of
`listener.name.<listener>.ssl.*` of this broker, also if only the file has changed (Apache Kafka's DynamicBrokerConfig).
The second, with pykbroker.ssl.store.watch.interval.ms, is a change of a file. Either all TlsServers and TlsClients of a
listener get the new stores, or none of them; existing connections continue. Once a day the certificates that expire
soon are logged. Not responsible for the rules of replacement (tls/store_replacement.py).
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final, Protocol

from pykbroker.config.kinds import ConfigError
from pykbroker.config.live import LiveConfig
from pykbroker.config.typed_config import Config
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import ConfigResource, MetadataImage
from pykbroker.metrics.registry import Metrics
from pykbroker.runtime import Runtime
from pykbroker.runtime.secret_files import version_of
from pykbroker.tls.distinguished_names import subject_of
from pykbroker.tls.settings import TlsSettings, settings_of
from pykbroker.tls.store_replacement import Allowed, Stores, check_itself, check_replacement, read_stores

logger = logging.getLogger(__name__)

WATCH_INTERVAL: Final = "pykbroker.ssl.store.watch.interval.ms"
METRIC: Final = "pykbroker.security:type=TlsCertificates,name=SecondsUntilEnd,listener="
TRUSTED_METRIC: Final = "pykbroker.security:type=TlsCertificates,name=TrustedSecondsUntilEnd,listener="
_WARNED_BEFORE: Final = datetime.timedelta(days=30)
_DAY_SECONDS: Final = 86_400.0


class UsesStores(Protocol):
    """A TlsServer or a TlsClient."""

    @property
    def stores(self) -> Stores | None: ...
    def prepare(self, stores: Stores) -> Callable[[], None]: ...


class TlsStores:
    """The stores of each listener. `users`: listener -> the objects that use its stores, at least one."""

    def __init__(
        self,
        config: Config,
        runtime: Runtime,
        metrics: Metrics,
        users: Mapping[str, Iterable[UsesStores]],
        served: Container[str],
    ) -> None:
        """`served`: the listeners about which this object writes log lines; the other half of the node does that for
        the other listeners."""
        self._static = config
        self._served = served
        self._runtime = runtime
        self._users = {listener: tuple(each) for listener, each in users.items()}
        self._current: dict[str, Stores] = {}
        for listener, (first, *_) in self._users.items():
            assert first.stores is not None
            self._current[listener] = first.stores
        #: listener -> the settings that are configured, even if their stores cannot be used
        self._wanted = {listener: stores.settings for listener, stores in self._current.items()}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._seen = {listener: _versions(settings) for listener, settings in self._wanted.items()}
        metrics.family(self._seconds_until_end)

    def start(self) -> None:
        """Watch certificates, and files if that is configured, until `close`."""
        self._look_at_certificates()
        self._watch()

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # -- configuration ------------------------------------------------------------------------------------------------

    def check(self, config: Config) -> None:
        """Raise ConfigError, with Apache Kafka's text, if the stores of a changed configuration must not be used."""
        for listener, current in self._current.items():
            try:
                settings = settings_of(config, listener)
                if settings != current.settings:
                    new = read_stores(settings)
                    self._judge(listener, current, new)
                    for user in self._users[listener]:
                        user.prepare(new)
            except ConfigError as error:
                raise ConfigError(
                    "Invalid value org.apache.kafka.common.config.ConfigException: Validation of dynamic config update "
                    f"of SSLFactory failed: {error} for configuration Invalid dynamic configuration"
                ) from None

    def update(self, config: Config, *, is_start: bool = False) -> None:
        """Read the stores of the present configuration. `is_start`: no client is served yet. The new stores are then
        not compared with the stores of the properties file, because these files may be older than the dynamic
        configuration."""
        for listener in self._current:
            try:
                self._wanted[listener] = settings_of(config, listener)
            except ConfigError as error:
                self._say(
                    logging.ERROR, listener, "the new settings cannot be used, so the old stores stay in use: %s", error
                )
                continue
            self._reload(listener, compare=not is_start)

    def _reload(self, listener: str, *, compare: bool = True) -> None:
        current = self._current[listener]
        try:
            # This comes before the files are read, so that a change during the read is found at the next check.
            self._seen[listener] = _versions(self._wanted[listener])
            new = read_stores(self._wanted[listener])
            if new == current:
                return
            if compare:
                self._judge(listener, current, new)
            elif self._is_between_brokers(listener):
                check_itself(new)
            prepared = [user.prepare(new) for user in self._users[listener]]
        except ConfigError as error:
            self._say(logging.ERROR, listener, "the new stores cannot be used, so the old ones stay in use: %s", error)
            return
        except Exception:
            # An unexpected error of a library must not stop the other work of the publisher of the metadata.
            logger.exception("Listener %s: the new stores cannot be used, so the old ones stay in use", listener)
            return
        for take in prepared:
            take()
        self._current[listener] = new
        self._say(logging.INFO, listener, "new stores are in use for new connections")
        self._look_at(listener)

    def _judge(self, listener: str, current: Stores, new: Stores) -> None:
        config, prefix = self._static, f"listener.name.{listener.lower()}."

        def allows(key: str) -> bool:
            return config.bool(key if config.is_default(prefix + key) else prefix + key)

        between = self._is_between_brokers(listener)
        check_replacement(
            current, new, Allowed(allows("ssl.allow.dn.changes"), allows("ssl.allow.san.changes"), between)
        )

    def _is_between_brokers(self, listener: str) -> bool:
        return self._static.is_broker and self._static.listeners.inter_broker_name == listener

    # -- files --------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        interval_ms = self._static.int(WATCH_INTERVAL)
        if interval_ms and self._current:
            self._later("files", interval_ms / 1000, self._look_at_files)

    def _look_at_files(self) -> None:
        # The next check is scheduled first, so that no error ends the watch.
        self._watch()
        for listener, settings in self._wanted.items():
            if _versions(settings) != self._seen[listener]:
                self._reload(listener)

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _look_at_certificates(self) -> None:
        if self._current:
            self._later("certificates", _DAY_SECONDS, self._look_at_certificates)
        for listener in self._current:
            self._look_at(listener)

    def _look_at(self, listener: str) -> None:
        chain = _chain(self._current[listener])
        trusted = [each for each in _trusted(self._current[listener]) if each not in chain]
        self._tell_ends(listener, chain, "the certificate", "clients refuse it")
        self._tell_ends(listener, trusted, "the trusted certificate", "the certificates that it has issued are refused")

    def _tell_ends(self, listener: str, certificates: Iterable[bytes], kind: str, meaning: str) -> None:
        now = self._now()
        for certificate in certificates:
            end = end_of(certificate)
            if end - now < _WARNED_BEFORE:
                text = f"has ended: {meaning}" if end <= now else f"ends in {(end - now).days} days"
                self._say(logging.WARNING, listener, "%s of %s %s (%s)", kind, _name(certificate), text, end)

    def _say(self, level: int, listener: str, text: str, *args: object) -> None:
        logger.log(level if listener in self._served else logging.DEBUG, f"Listener %s: {text}", listener, *args)

    def _seconds_until_end(self) -> list[tuple[str, float]]:
        """Return the metrics of each listener: the seconds until the first certificate of its key's chain expires, and
        until the first trusted certificate expires. They are negative after that time."""
        now = self._now()
        return [
            (metric + listener, min((end_of(each) - now).total_seconds() for each in certificates))
            for listener, stores in self._current.items()
            for metric, certificates in ((METRIC, _chain(stores)), (TRUSTED_METRIC, _trusted(stores)))
            if certificates
        ]

    def _now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._runtime.now_ms() / 1000, datetime.UTC)

    def _later(self, name: str, seconds: float, act: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.pop(name, None)
            act()

        self._timers[name] = self._runtime.loop.call_later(seconds, run)


class StorePublisher:
    """Updates the stores when the configuration of this broker is set. If it is set to the same values, the files are
    read again.

    A publisher of the loader, which is added after that of the live configuration. For changes from before this node's
    start, only the final configuration counts (`complete_initial_load`), because the files of earlier changes may be
    gone."""

    def __init__(self, stores: TlsStores, live: LiveConfig, node_id: int) -> None:
        self._stores = stores
        self._live = live
        self._resource = (ConfigResource.BROKER, str(node_id))
        self._is_loaded = False
        self._has_history = False

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        if self._resource not in delta.configs_changed:
            return
        if self._is_loaded:
            self._stores.update(self._live.current)
        else:
            self._has_history = True

    def complete_initial_load(self) -> None:
        """Read the stores once, if this broker's configuration was changed before this node's start."""
        self._is_loaded = True
        if self._has_history:
            self._stores.update(self._live.current, is_start=True)


def _versions(settings: TlsSettings) -> tuple[object, ...]:
    found = (settings.keystore, settings.truststore)
    return tuple(version_of(each.location) for each in found if each is not None and each.location is not None)


def _chain(stores: Stores) -> tuple[bytes, ...]:
    return () if stores.material.key is None else stores.material.key.chain


def _trusted(stores: Stores) -> tuple[bytes, ...]:
    return stores.material.trusted or ()


def _name(certificate: bytes) -> str:
    try:
        return subject_of(certificate)
    except ValueError:
        return "a subject that cannot be read"


def end_of(certificate: bytes) -> datetime.datetime:
    """Return the time at which a certificate (DER) expires."""
    from cryptography.x509 import load_der_x509_certificate

    return load_der_x509_certificate(certificate).not_valid_after_utc
