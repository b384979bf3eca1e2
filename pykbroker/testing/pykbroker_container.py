"""The container image in tests of other projects: `with PykbrokerContainer() as kafka: kafka.bootstrap_servers`.

It is for clients that run in containers, and for tests that use the same image as production; `Broker` starts faster
and needs no Docker. It needs testcontainers (the extra `testcontainers`); docker/README.md describes the image.

The port on this machine is known only when the container runs, and the node must advertise it. So the container waits
for a line with its listeners, and only then starts the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from pykbroker.config.kinds import ConfigError
from pykbroker.config.variables import variable_of
from pykbroker.testing.arrangement import as_text

IMAGE: Final = "pykbroker:latest"
#: Logged once, when the listeners serve clients; Apache Kafka has the same line.
SERVES: Final = r"\[KafkaRaftServer nodeId=\d+\] Kafka Server started"
PORT: Final = 9092
NETWORK_PORT: Final = 19092
_CONTROLLER_PORT: Final = 19093
_LISTENERS_FILE: Final = "/tmp/advertised-listeners"  # noqa: S108  # inside the container
#: `read` fails until the file has the whole line.
_COMMAND: Final = (
    f"until read -r listeners <{_LISTENERS_FILE}; do sleep 0.05; done 2>/dev/null; "
    'exec /etc/kafka/docker/run "KAFKA_ADVERTISED_LISTENERS=$listeners"'
)
_PROPERTIES: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": f"PLAINTEXT://:{PORT},NETWORK://:{NETWORK_PORT},CONTROLLER://localhost:{_CONTROLLER_PORT}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,NETWORK:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "NETWORK",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": f"1@localhost:{_CONTROLLER_PORT}",
}
#: A caller's keys override these.
_DEFAULTS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
#: Keys that the container decides. A caller may not set them.
_OWN_KEYS: Final = frozenset((*_PROPERTIES, "advertised.listeners", "controller.quorum.bootstrap.servers", "broker.id"))
_LINES_OF_LOG: Final = 20


def variables(config: Mapping[str, object]) -> dict[str, str]:
    """Return the container's environment: variable -> text. Raises ConfigError for a key that the container itself
    decides."""
    refused = sorted(_OWN_KEYS & config.keys())
    if refused:
        raise ConfigError(f"{refused[0]}: the container decides it")
    given = {key: as_text(value) for key, value in config.items()}
    return {variable_of(key): text for key, text in {**_DEFAULTS, **given, **_PROPERTIES}.items()}


class PykbrokerContainer(DockerContainer):
    """A single combined node in a container.

    `image`: `make image` builds `pykbroker:latest`. `config`: Kafka's configuration keys. `kwargs`: arguments of
    DockerContainer (name, volumes, network, network_aliases, ...). Raises ConfigError for a key that the container
    itself decides: listeners, roles, node.id. The other methods are DockerContainer's (`with_env`, `with_network`,
    `exec`, `get_logs`).
    """

    def __init__(self, image: str = IMAGE, config: Mapping[str, object] | None = None, **kwargs: Any) -> None:
        environment = variables(config or {})
        super().__init__(image, **kwargs)
        self.with_envs(**environment)
        self.with_exposed_ports(PORT)
        self.with_command(["sh", "-c", _COMMAND])

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients on this machine. Raises RuntimeError if the container is not running."""
        self._must_run()
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(PORT)}"

    @property
    def network_bootstrap_servers(self) -> str:
        """`host:port` for clients in containers of the same network. The host is the container's first alias, or its
        address. Raises RuntimeError if the container is not running."""
        self._must_run()
        return f"{self._network_host()}:{NETWORK_PORT}"

    def start(self, timeout_seconds: float = 60.0) -> Self:
        """Start, and wait until clients can connect.

        Raises RuntimeError with the end of the container's log if the container ends, for example because the image
        refuses a setting. Raises TimeoutError if it does not serve in time, and docker.errors.DockerException if the
        engine has no such image or does not answer. In these cases the container is removed.
        """
        if self._container is not None:
            raise RuntimeError("the container is running already")
        # The caller's own wait strategy begins when the node serves.
        strategy, self._wait_strategy = self._wait_strategy, None
        try:
            super().start()
            listeners = f"PLAINTEXT://{self.bootstrap_servers},NETWORK://{self.network_bootstrap_servers}"
            self.copy_into_container(f"{listeners}\n".encode(), _LISTENERS_FILE)
            self._wait_until_it_serves(timeout_seconds)
            if strategy is not None:
                strategy.wait_until_ready(self)
        except BaseException:
            self.stop()
            raise
        finally:
            self._wait_strategy = strategy
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Remove the container and its data. A second call changes nothing, and it may be started again."""
        try:
            super().stop(force, delete_volume)
        finally:
            self._container = None

    def _must_run(self) -> None:
        if self._container is None:
            raise RuntimeError("the container is not running")

    def _network_host(self) -> str:
        if self._network is not None and self._network_aliases:
            return self._network_aliases[0]
        container = self.get_wrapped_container()
        container.reload()
        networks = container.attrs["NetworkSettings"]["Networks"]
        # A container without an address uses the host's network.
        return next((network["IPAddress"] for network in networks.values() if network["IPAddress"]), "localhost")

    def _wait_until_it_serves(self, timeout_seconds: float) -> None:
        waiting = LogMessageWaitStrategy(SERVES).with_poll_interval(0.05)
        try:
            waiting.with_startup_timeout(max(1, round(timeout_seconds))).wait_until_ready(self)
        except (RuntimeError, TimeoutError) as error:
            log = b"".join(self.get_logs()).decode(errors="replace").splitlines()[-_LINES_OF_LOG:]
            said = (
                f"the container does not serve after {timeout_seconds} s"
                if isinstance(error, TimeoutError)
                else "the container ended before it served"
            )
            raise type(error)("\n".join([f"{said}; its log:", *log])) from None
