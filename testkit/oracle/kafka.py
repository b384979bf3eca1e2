"""Apache Kafka, which judges the tests: its jars, its broker as a process, its command-line tools.

Not responsible for expectations of Kafka's answers (the tests have those), nor for pykbroker's own process
(compat_tests/node.py).

Invariants: a started broker listens on loopback only and is stopped by its starter, at the latest when the interpreter
exits; `start` returns only when clients can connect.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from testkit import needs
from testkit.kept import kept
from testkit.ports import steady_port

KAFKA = "4.3.1"
#: The newest release, whose messages and APIs pykbroker has: the second judge.
NEWEST = "4.4.0"
POMS = {KAFKA: Path(__file__).with_name("pom.xml"), NEWEST: Path(__file__).with_name("newest.xml")}
BROKER = "kafka.Kafka"

# A JVM that lives for a second or two gains nothing from the optimising compiler or a parallel collector, and both
# would take a core from the tested broker.
TOOL_JVM = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
BROKER_JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

# The settings of Apache Kafka's shipped server.properties for a single node.
SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}


def kafka_libs(version: str = KAFKA) -> Path:
    """Return the folder with Apache Kafka's jars; resolved once through Maven, kept in .cache/. Skips the test without
    Maven."""
    folder = needs.CACHE / f"kafka-{version}"
    libs, origin = folder / "libs", folder / "resolved-from"
    pom = POMS[version]
    wanted = hashlib.sha256(pom.read_bytes()).hexdigest()
    if libs.is_dir() and origin.is_file() and origin.read_text().strip() == wanted:
        return libs
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if libs.is_dir() and origin.is_file() and origin.read_text().strip() == wanted:
            return libs
        fresh = folder / "libs.new"
        _copy_dependencies(pom, version, fresh)
        shutil.rmtree(libs, ignore_errors=True)
        fresh.rename(libs)
        origin.write_text(wanted + "\n")
    return libs


def resolved(pom: Path, version: str = KAFKA) -> Path:
    """Return the folder with the jars that another pom names, in addition to Apache Kafka's own."""
    name = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    return kept("jars", f"{version}-{name}", partial(_copy_dependencies, pom, version))


def _copy_dependencies(pom: Path, version: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    command = [
        needs.program("mvn"),
        "-q",
        "-B",
        "-f",
        str(pom),
        f"-Dkafka.version={version}",
        "dependency:copy-dependencies",
        f"-DoutputDirectory={folder}",
    ]
    # One at a time, because two that download into Maven's own folder damage each other's files.
    with (needs.CACHE / "maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=900)
    if done.returncode != 0:
        raise RuntimeError(f"Maven could not resolve {pom.name}:\n{done.stdout}\n{done.stderr}")


def java_command(
    main: str,
    *,
    jvm: Sequence[str] = TOOL_JVM,
    extra_classpath: Sequence[Path] = (),
    sharing: Sequence[str] | None = None,
    version: str = KAFKA,
) -> list[str]:
    """Return the start of a command line that runs one of Kafka's main classes, or one in `extra_classpath`."""
    # Apache Kafka's jars come first, because an archive of classes can only be used if the class path begins as when it
    # was made.
    classpath = os.pathsep.join([f"{kafka_libs(version)}/*", *map(str, extra_classpath)])
    quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Xlog:disable"]
    return [
        needs.java(),
        *jvm,
        *(_shared_classes(main, version) if sharing is None else sharing),
        *quiet,
        "-cp",
        classpath,
        main,
    ]


def broker_command(jvm: Sequence[str] = BROKER_JVM, version: str = KAFKA) -> list[str]:
    """Return the start of the command line of a broker or controller; the file of its properties comes last."""
    archive = _archive("broker", version)
    if not archive.exists():
        _make_broker_archive(archive, version)
    return java_command(BROKER, jvm=jvm, version=version)


def _archive(name: str, version: str) -> Path:
    """Return the archive of the classes that such a JVM loads, with which each later start takes 40 % less CPU. A JVM
    that cannot use the archive ignores it. The first tool that connects to a broker makes that of the tools."""
    return kafka_libs(version).parent / f"{name}.jsa"


def _shared_classes(main: str, version: str) -> list[str]:
    # The broker's own tools, which format and read its files, load its classes.
    archive = _archive("broker" if main.startswith("kafka.") else "tools", version)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def _make_broker_archive(archive: Path, version: str) -> None:
    """Make the archive with a broker that starts, does a little and stops. Starts during this time have no archive."""
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if archive.exists():
            return
        fresh = archive.with_suffix(f".{os.getpid()}")
        with ApacheKafka(sharing=[f"-XX:ArchiveClassesAtExit={fresh}"], version=version) as kafka:
            asked = ["--bootstrap-server", kafka.bootstrap, "--create", "--topic", "made"]
            run_tool("org.apache.kafka.tools.TopicCommand", asked, version=version)
            kafka.stop()
        fresh.rename(archive)


def run_tool(
    main: str,
    args: Sequence[str],
    *,
    stdin: str | bytes | None = None,
    timeout: float = 60,
    check: bool = True,
    version: str = KAFKA,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools to its end; its output is text. With `check`, a failing tool fails the test."""
    archive = _archive("tools", version)
    fresh = archive.with_suffix(f".{os.getpid()}")
    making = not archive.exists() and "--bootstrap-server" in args
    sharing = [f"-XX:ArchiveClassesAtExit={fresh}"] if making else None
    done = subprocess.run(
        [*java_command(main, sharing=sharing, version=version), *args],
        input=stdin.encode() if isinstance(stdin, str) else (stdin if stdin is not None else b""),
        capture_output=True,
        timeout=timeout,
    )
    if fresh.exists():
        fresh.rename(archive)
    text = subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )
    if check and text.returncode != 0:
        name = main.rpartition(".")[2]
        raise AssertionError(f"{name} {' '.join(args)} ended with {text.returncode}\n{text.stdout}\n{text.stderr}")
    return text


def tool_command(main: str, args: Sequence[str]) -> list[str]:
    """Return the command line of a tool that runs in parallel to the test, as long as it needs."""
    return [*java_command(main), *args]


#: Formats a node. compat_tests/conftest.py sets a function that needs no further JVM.
format_tool: Callable[..., object] = run_tool


class ApacheKafka:
    """One combined broker and controller on loopback, formatted and started; `data_dir` is its log.dirs."""

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        data_dir: Path | None = None,
        port: int | None = None,
        format_args: Sequence[str] = (),
        sharing: Sequence[str] | None = None,
        version: str = KAFKA,
    ) -> None:
        """`sharing`: options of the JVM instead of the archive of classes that brokers share."""
        self._home = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self.data_dir = data_dir if data_dir is not None else self._home / "data"
        self.log_file = self._home / "server.log"
        self._config = dict(config or {})
        self._format_args = list(format_args)
        self._sharing = sharing
        self._version = version
        self._process: subprocess.Popen[bytes] | None = None
        self.port = steady_port() if port is None else port
        self.controller_port = self.port + 1
        self.bootstrap = f"localhost:{self.port}"
        atexit.register(self.close)

    def __enter__(self) -> ApacheKafka:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    def start(self, timeout: float = 90) -> ApacheKafka:
        properties = self._write_properties()
        if not (self.data_dir / "meta.properties").exists():
            cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            format_tool(
                "kafka.tools.StorageTool",
                ["format", f"--cluster-id={cluster_id}", "-c", str(properties), "--standalone", *self._format_args],
                version=self._version,
            )
        before = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            info = [f"-Dorg.slf4j.simpleLogger.log.{name}=info" for name in ("kafka", "org.apache.kafka")]
            jvm = [*BROKER_JVM, *info]
            command = (
                broker_command(jvm, self._version)
                if self._sharing is None
                else java_command(BROKER, jvm=jvm, sharing=self._sharing, version=self._version)
            )
            self._process = subprocess.Popen(
                [*command, str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"Apache Kafka ended with {self._process.returncode}:\n{self.tail()}")
            with self.log_file.open("rb") as log:
                log.seek(before)
                if b"Kafka Server started" in log.read():
                    return self
            time.sleep(0.05)
        self.close()
        raise TimeoutError(f"Apache Kafka was not ready after {timeout} s")

    def stop(self, timeout: float = 60) -> None:
        """Stop with a controlled shutdown; the data stays until `close`."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout)
        self._process = None

    def kill(self) -> None:
        """Send SIGKILL, like a crash."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)
        self._process = None

    def close(self) -> None:
        """Stop at once and remove everything of this broker (a given data_dir stays)."""
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)
        atexit.unregister(self.close)

    def tail(self, lines: int = 60) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def _write_properties(self) -> Path:
        values = {
            **SINGLE_NODE,
            "listeners": f"PLAINTEXT://localhost:{self.port},CONTROLLER://localhost:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://localhost:{self.port}",
            "controller.quorum.bootstrap.servers": f"localhost:{self.controller_port}",
            "log.dirs": str(self.data_dir),
            **self._config,
        }
        path = self._home / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return path
