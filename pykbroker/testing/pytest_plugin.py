"""pytest fixtures. `kafka_broker` is one node per session and per xdist worker, and `kafka_faults` has its fault rules.
`kafka_broker_secure` is a node with TLS and users, `kafka_cluster` has three nodes that a test may disturb, and
`kafka_cluster_secure` has both. `kafka_topics` makes names that belong to one test.

With `--kafka-bootstrap HOST:PORT` the same tests run on a cluster that is there already, and those that need a node in
this process are skipped. With `--kafka-state DIR` the `kafka_broker` of each xdist worker begins with a copy of a
directory. Nothing of pykbroker is imported until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from pykbroker.testing.cluster import Cluster
    from pykbroker.testing.embedded import Broker
    from pykbroker.testing.existing_cluster import ExistingCluster
    from pykbroker.testing.faults.rule_set import Faults
    from pykbroker.testing.secure_broker import SecureBroker
    from pykbroker.testing.secure_cluster import SecureCluster

T = TypeVar("T")
#: Old names of arguments, which work for one release.
_OLD_ARGUMENTS: Final = ("properties", "node_properties")
_OWN_BROKER: Final = pytest.StashKey[ExitStack]()
_OPTION: Final = "--kafka-bootstrap"
_STATE: Final = "--kafka-state"
#: fixture -> the arguments of its mark. A test compares them with the classes.
MARKS: Final = {
    "kafka_broker": "config=None, data_dir=None, port=0, record=False, release=None, state=None",
    "kafka_broker_secure": 'users=("alice", "bob"), protocol="SASL_SSL", mechanism="SCRAM-SHA-512", acls=False, '
    "config=None, data_dir=None, port=0, record=False, release=None, state=None",
    "kafka_cluster": "nodes=3, config=None, node_config=None, record=False, release=None",
    "kafka_cluster_secure": 'users=("alice", "bob"), protocol="SASL_SSL", mechanism="SCRAM-SHA-512", acls=False, '
    "nodes=3, config=None, node_config=None, record=False, release=None",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--kafka-bootstrap` and `--kafka-state`."""
    group = parser.getgroup("pykbroker")
    group.addoption(
        _STATE,
        metavar="DIR",
        help="let kafka_broker begin with a copy of this log directory of a broker that was stopped; "
        "kafka_broker.reset() puts the copy back to its beginning",
    )
    group.addoption(
        _OPTION,
        metavar="HOST:PORT",
        help="let kafka_broker be this cluster, which runs already, without TLS and SASL; tests that need a node in "
        "this process are skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for fixture, arguments in MARKS.items():
        config.addinivalue_line(
            "markers", f"{fixture}({arguments}): {fixture} is of this test's own, made with these arguments"
        )
    if config.getoption(_OPTION) is not None and config.getoption(_STATE) is not None:
        raise pytest.UsageError(
            f"{_OPTION} names a cluster that runs already, so {_STATE} has no effect: leave one out"
        )
    if config.getoption(_OPTION) is not None:
        config.pluginmanager.register(_SkipsWhatIsOutside(), "pykbroker-outside")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a test with the mark `kafka_broker` have its own value of this fixture, which `pytest_runtest_setup` makes.
    The fixture itself has the scope of the session, so that fixtures of any scope can use it."""
    marker = metafunc.definition.get_closest_marker("kafka_broker")
    if marker is not None and "kafka_broker" in metafunc.fixturenames:
        parameter = pytest.param(marker, id=getattr(pytest, "HIDDEN_PARAM", "own"))
        metafunc.parametrize("kafka_broker", [parameter])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the broker of a test with the mark `kafka_broker`."""
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    marker = item.get_closest_marker("kafka_broker")
    if marker is None or "kafka_broker" not in parameters:
        return
    _needs_own_node(item.config, "the mark kafka_broker")
    from pykbroker.testing.embedded import Broker

    block = item.stash[_OWN_BROKER] = ExitStack()
    parameters["kafka_broker"] = block.enter_context(_made(Broker, marker))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Stop the broker of a test with the mark `kafka_broker`, after the test's fixtures have ended."""
    try:
        return (yield)
    finally:
        block = item.stash.get(_OWN_BROKER, None)
        if block is not None:
            del item.stash[_OWN_BROKER]
            block.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a mark on a test that does not take the fixture: it would have no effect."""
    for item in items:
        for name in {mark.name for mark in item.own_markers} & MARKS.keys():
            if name not in getattr(item, "fixturenames", ()):
                raise pytest.UsageError(
                    f"{item.nodeid} has the mark {name}, and does not take the fixture {name}: add it to the arguments "
                    "of the test"
                )


def _made(make: Callable[..., T], marker: pytest.Mark) -> T:
    """Make a broker or a cluster with the arguments of a mark. Fails the test if there is no such argument."""
    import inspect

    arguments = inspect.signature(make)
    try:
        arguments.bind(*marker.args, **marker.kwargs)
    except TypeError as error:
        given = ", ".join(name for name in arguments.parameters if name not in _OLD_ARGUMENTS)
        pytest.fail(f"the mark {marker.name} is not possible: {error}; its arguments are {given}", pytrace=False)
    return make(*marker.args, **marker.kwargs)


def _needs_own_node(config: pytest.Config, what: str) -> None:
    """Skip the test if the tests run on a cluster outside this process."""
    outside = config.getoption(_OPTION)
    if outside is not None:
        pytest.skip(f"{what} needs a broker in this process, and {_OPTION} is {outside}")


class _SkipsWhatIsOutside:
    """Skips a test at the moment when it uses a part of `kafka_broker` that a cluster outside does not have."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        with _skipping():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        with _skipping():
            return (yield)


@contextmanager
def _skipping() -> Iterator[None]:
    from pykbroker.testing.existing_cluster import NotInThisProcess

    try:
        yield
    except NotInThisProcess as error:
        pytest.skip(f"kafka_broker.{error}")


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker | ExistingCluster]:
    """A broker on a free port of localhost; pass `kafka_broker.bootstrap_servers` to any client.

    The session has one broker; with `@pytest.mark.kafka_broker(config={...})` a test has its own broker. With
    `--kafka-bootstrap` it is an `ExistingCluster`. With `--kafka-state` it begins with a copy of a directory.
    """
    outside = request.config.getoption(_OPTION)
    if outside is not None:
        from pykbroker.testing.existing_cluster import ExistingCluster

        with ExistingCluster(outside) as cluster:
            yield cluster
        return
    from pykbroker.testing.embedded import Broker

    with Broker(state=request.config.getoption(_STATE)) as broker:
        yield broker


@pytest.fixture
def kafka_faults(request: pytest.FixtureRequest, kafka_broker: Broker) -> Iterator[Faults]:
    """The fault rules of `kafka_broker`. All rules are removed after each test that uses this fixture. Raises
    the exception of a callback that failed."""
    _needs_own_node(request.config, "kafka_faults")
    yield kafka_broker.faults
    failures = [fault.failure for fault in kafka_broker.faults if fault.failure is not None]
    kafka_broker.faults.clear()
    if failures:
        raise failures[0]


@pytest.fixture(scope="session")
def _kafka_shared_secure() -> Iterator[SecureBroker]:
    from pykbroker.testing.secure_broker import SecureBroker

    with SecureBroker() as broker:
        yield broker


@pytest.fixture
def kafka_broker_secure(request: pytest.FixtureRequest) -> Iterator[SecureBroker]:
    """A broker whose clients must authenticate: SASL_SSL with SCRAM-SHA-512, and the users alice and bob.

    `kafka_broker_secure.kafka_python("alice")` returns settings of a client; `confluent`, `aiokafka` and `java` return
    settings of other clients. The session has one broker; with `@pytest.mark.kafka_broker_secure(protocol="SSL")` a
    test has its own broker.
    """
    _needs_own_node(request.config, "kafka_broker_secure")
    marker = request.node.get_closest_marker("kafka_broker_secure")
    if marker is None:
        yield request.getfixturevalue("_kafka_shared_secure")
        return
    from pykbroker.testing.secure_broker import SecureBroker

    with _made(SecureBroker, marker) as broker:
        yield broker


class _SharedCluster:
    """The session's cluster, made when a test first needs it, and made again after a test has left it broken."""

    def __init__(self, make: Callable[[], Cluster]) -> None:
        self._make = make
        self._cluster: Cluster | None = None

    def get(self) -> Cluster:
        """Return a whole cluster: all nodes serve, no traffic is cut, every replica is in sync."""
        if self._cluster is not None:
            try:
                self._cluster.restore()
            except Exception:  # noqa: BLE001  # whatever a test has done to it: the next one gets another
                self.close()
        if self._cluster is None:
            self._cluster = self._make().start()
        return self._cluster

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None


@pytest.fixture(scope="session")
def _kafka_shared_cluster() -> Iterator[_SharedCluster]:
    from pykbroker.testing.cluster import Cluster

    shared = _SharedCluster(Cluster)
    yield shared
    shared.close()


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three nodes; a test may kill, stop and pause them and cut the network between them.

    The session has one cluster; before each test that uses it, the effects of other tests are undone. With
    `@pytest.mark.kafka_cluster(nodes=5, config={...})` a test has its own cluster.
    """
    _needs_own_node(request.config, "kafka_cluster")
    marker = request.node.get_closest_marker("kafka_cluster")
    if marker is None:
        shared: _SharedCluster = request.getfixturevalue("_kafka_shared_cluster")
        yield shared.get()
        return
    from pykbroker.testing.cluster import Cluster

    with _made(Cluster, marker) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _kafka_shared_secure_cluster() -> Iterator[_SharedCluster]:
    from pykbroker.testing.secure_cluster import SecureCluster

    shared = _SharedCluster(SecureCluster)
    yield shared
    shared.close()


@pytest.fixture
def kafka_cluster_secure(request: pytest.FixtureRequest) -> Iterator[SecureCluster]:
    """Three nodes, as `kafka_cluster`, whose clients must authenticate, as those of `kafka_broker_secure`.

    The session has one cluster; with `@pytest.mark.kafka_cluster_secure(protocol="SSL")` a test has its own cluster.
    """
    _needs_own_node(request.config, "kafka_cluster_secure")
    from pykbroker.testing.secure_cluster import SecureCluster

    marker = request.node.get_closest_marker("kafka_cluster_secure")
    if marker is None:
        shared: _SharedCluster = request.getfixturevalue("_kafka_shared_secure_cluster")
        cluster = shared.get()
        assert isinstance(cluster, SecureCluster)
        yield cluster
        return
    with _made(SecureCluster, marker) as cluster:
        yield cluster


@pytest.fixture
def kafka_topics(request: pytest.FixtureRequest) -> Iterator[Callable[[str], str]]:
    """A function: `kafka_topics("orders")` returns a topic name that no other test uses, neither in this run nor in
    another run on the same broker. With `--kafka-bootstrap` these topics are deleted after the test."""
    import re
    import uuid

    prefix = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:100]
    namespace = f"{prefix}-{uuid.uuid4().hex[:8]}"

    def topic(name: str) -> str:
        return f"{namespace}-{name}"

    if request.config.getoption(_OPTION) is None:
        yield topic
    else:
        cluster: ExistingCluster = request.getfixturevalue("kafka_broker")
        yield topic
        for name in cluster.topics():
            if name.startswith(f"{namespace}-"):
                cluster.delete_topic(name)
