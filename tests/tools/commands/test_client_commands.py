"""The connection options that all commands of a cluster share, and their errors if no node answers."""

from __future__ import annotations

import io
import shlex
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pykbroker.__main__ import main
from pykbroker.testing import Broker
from pykbroker.tools.commands import bench, client_options, reference
from pykbroker.tools.commands.main import program
from testkit.ports import steady_port

COMMANDS = [
    pytest.param(ctx, command, id=ctx.command_path)
    for ctx, command in reference.leaves(program())
    if any(parameter.name == "bootstrap_server" for parameter in command.params)
]


#: A node that has not been formatted.
NODE = """process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:9093
log.dirs=data
"""


@pytest.fixture
def closed() -> Iterator[str]:
    """An address that refuses connections as long as the test lasts."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize(("ctx", "command"), COMMANDS)
def test_without_a_broker_one_line_says_so(
    ctx: click.Context,
    command: click.Command,
    closed: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    # The check of a node reads this file before it asks.
    (tmp_path / "server.properties").write_text(NODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    words = shlex.split(reference.leaf_example(command).splitlines()[0].partition(" | ")[0].partition(" < ")[0])
    assert main([*words[1:], "-b", closed]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line == (
        f"pykbroker: {closed} cannot be reached: Connection refused. Is a broker running there? `-b HOST:PORT` names "
        "another"
    )


@pytest.mark.slow
def test_a_broker_that_advertises_another_address(closed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker does so in a container whose name the host cannot resolve."""
    port = steady_port()
    with Broker({"advertised.listeners": f"PLAINTEXT://{closed}"}, port=port):
        assert main(["groups", "list", "-b", f"localhost:{port}", "-X", "default.api.timeout.ms=300"]) == 1
    assert capsys.readouterr().err == (
        f"pykbroker: {closed} cannot be reached: Connection refused. A broker gave this address: see its "
        "advertised.listeners\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "cannot be reached: "),
        (b"\0\0\0\x08\0\0\0\0what", "cannot be reached: "),
        (b"", "does not answer: "),
    ],
)
def test_what_is_no_broker(answer: bytes, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        connections = []

        def serve() -> None:
            connection, _ = server.accept()
            connections.append(connection)
            connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert main(["topics", "list", "-b", address, "-X", "request.timeout.ms=1000"]) == 1
        thread.join()
        connections[0].close()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"pykbroker: {address} {said}")


def test_where_the_cluster_is(closed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(client_options.BOOTSTRAP_VARIABLE, closed)
    assert main(["topics", "list"]) == 1
    assert capsys.readouterr().err.startswith(f"pykbroker: {closed} cannot be reached")
    assert main(["topics", "list", "-b", f"{closed},localhost:1"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"pykbroker: {closed} cannot be reached: Connection refused; localhost:1 cannot be reached: ")
    monkeypatch.delenv(client_options.BOOTSTRAP_VARIABLE)
    help_text = program().get_command(click.Context(program()), "topics")
    assert isinstance(help_text, click.Group)
    (option,) = [one for one in help_text.commands["list"].params if one.name == "bootstrap_server"]
    assert option.default == "localhost:9092"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("-b", "a:1,:b"), 2, "Invalid value for '-b' / '--bootstrap-server': ':b' is not HOST or HOST:PORT."),
        (("-b", "::1"), 2, "Invalid value for '-b' / '--bootstrap-server': '::1' is not HOST or HOST:PORT."),
        (("-b", "a:b"), 2, "Invalid value for '-b' / '--bootstrap-server': 'a:b' is not HOST or HOST:PORT."),
        (("-b", "a:65536"), 2, "Invalid value for '-b' / '--bootstrap-server': 'a:65536' is not HOST or HOST:PORT."),
        (("-X", "acks"), 1, "-X takes KEY=VALUE, not 'acks'"),
        (("-X", "security.protocol=TLS"), 1, "Invalid value TLS for configuration security.protocol"),
        (
            ("-X", "security.protocl=SSL"),
            1,
            "-X security.protocl: Kafka's clients have no such property: did you mean security.protocol?",
        ),
        (("-X", "request.timeout.ms=x"), 1, "Invalid value x for configuration request.timeout.ms: Not a number"),
        (
            ("-X", "request.timeout.ms=-1"),
            1,
            "Invalid value -1 for configuration request.timeout.ms: Value must be at least 0",
        ),
        (("-X", "security.protocol=SASL_SSL"), 1, "sasl.mechanism=GSSAPI is not supported here"),
        (("--command-config", "/nowhere"), 1, "/nowhere: No such file or directory"),
    ],
)
def test_wrong_options_are_one_line(
    words: tuple[str, ...], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", "list", *words]) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"pykbroker: {said}")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("produce t -J -D x", 2, "--json does not go with --delimiter."),
        ("produce t -J --key-as hex", 2, "--json goes with neither files nor encodings: each line says its own."),
        ("transactions list x", 2, "Got unexpected extra argument (x). Try 'pykbroker transactions list --help'."),
        ("consume t -J -f x", 2, "--format does not go with --json."),
        ("configs alter topic t --set a=1 --delete a", 1, "a is changed by two options: say one change"),
        ("configs alter topic t --append a=1 --subtract a=2", 1, "a is changed by two options: say one change"),
        ("topics alter t -c a=1 --delete-config a", 1, "a is changed by two options: say one change"),
        (
            "topics list -X bootstrap.servers=a:1",
            2,
            "-X bootstrap.servers does not go with --bootstrap-server, which sets it too.",
        ),
        (
            "topics list -X bootstrap.controllers=a:1",
            2,
            "-X bootstrap.controllers has no effect here: this command connects to brokers, see -b.",
        ),
        (
            "acls list -X bootstrap.controllers=a:1",
            2,
            "--bootstrap-server does not go with -X bootstrap.controllers.",
        ),
        (
            "acls list --bootstrap-controller a:1",
            2,
            "--bootstrap-server does not go with --bootstrap-controller.",
        ),
        ("consume t -g a -X group.id=b", 2, "-X group.id does not go with --group, which sets it too."),
        (
            "consume t --isolation read_committed -X isolation.level=read_uncommitted",
            2,
            "-X isolation.level does not go with --isolation, which sets it too.",
        ),
        ("produce t --acks 1 -X acks=all", 2, "-X acks does not go with --acks, which sets it too."),
        (
            "produce t -z lz4 -X compression.type=gzip",
            2,
            "-X compression.type does not go with --compression, which sets it too.",
        ),
        (
            "produce t --no-idempotence -X enable.idempotence=true",
            2,
            "-X enable.idempotence does not go with --idempotence, which sets it too.",
        ),
        (
            "consume t -e",
            2,
            "No such option '-e'. A read ends at the end of the topic without it, and --follow goes on. Try",
        ),
        ("consume -C -t t", 2, "No such option '-C'. The command's name says it already. Try"),
        ("consume -t t", 2, "No such option '-t'. The topic needs no option: pykbroker consume TOPIC. Try"),
        ("topics create --topic t", 2, "No such option '--topic'. The topic needs no option: pykbroker topics create"),
        ("consume t --from-beginning", 2, "No such option '--from-beginning'. A read begins at the beginning, unless"),
        (
            "consume t -o beginning",
            2,
            "Invalid value for '-o' / '--output': 'beginning' is not one of 'text', 'json'; --from says where to begin",
        ),
        ("topics alter t --set a=1", 2, "No such option '--set'. -c KEY=VALUE sets a configuration. Try"),
        ("configs alter topic t -c a=1", 2, "No such option '-c'. --set KEY=VALUE sets a configuration. Try"),
        ("topics --list", 2, "No such option '--list'. Did you mean 'pykbroker topics list'? Try"),
        ("bench produce t --acks 1 -X acks=all", 2, "-X acks does not go with --acks, which sets it too."),
    ],
)
def test_options_that_exclude_each_other(
    words: str, status: int, said: str, closed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cluster is not asked. A user knows options by the names that they have on the command line."""
    assert main([*words.split(), "-b", closed]) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"pykbroker: {said}")


def test_an_option_of_a_load_counts_before_a_property() -> None:
    of_file = client_options.ClientOptions("a:1", {"acks": "1", "compression.type": "lz4"})
    given = bench._producer_properties(of_file, "all", "zstd")
    assert (given["acks"], given["compression.type"]) == ("all", "zstd")
    left_out = bench._producer_properties(of_file, None, None)
    assert (left_out["acks"], left_out["compression.type"]) == ("1", "lz4")
    by_default = bench._producer_properties(client_options.ClientOptions("a:1", {}), None, None)
    assert (by_default["acks"], by_default["compression.type"]) == ("all", "none")


def test_brokers_and_controllers_have_their_own_default_port() -> None:
    seen: list[client_options.ClientOptions] = []

    @click.command()
    @client_options.controller_options
    def command(client: client_options.ClientOptions) -> None:
        seen.append(client)

    command.main(["-b", "a, b:1, :2"], standalone_mode=False)
    command.main(["--bootstrap-controller", "a,b:1"], standalone_mode=False)
    assert [(one.bootstrap, one.of_controllers) for one in seen] == [
        ("a:9092,b:1,localhost:2", False),
        ("a:9093,b:1", True),
    ]


def chosen(words: list[str], *, file: Path | None = None, of_controllers: bool = False) -> tuple[str, bool]:
    """Return the addresses that a command connects to, and whether they are controllers."""
    seen: list[client_options.ClientOptions] = []

    @click.command()
    @(client_options.controller_options if of_controllers else client_options.client_options)
    def command(client: client_options.ClientOptions) -> None:
        seen.append(client)

    in_file = [] if file is None else ["--command-config", str(file)]
    command.main([*words, *in_file], standalone_mode=False)
    return seen[0].bootstrap, seen[0].of_controllers


def test_addresses_of_a_property_count_if_no_option_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source counts before the one that is further from the command line: -b or -X, the file, the environment."""
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=of-the-file:1\n")
    property_of_x = ["-X", "bootstrap.servers= a:1,[::1]:2"]
    assert chosen(property_of_x) == ("a:1,[::1]:2", False)
    monkeypatch.setenv(client_options.BOOTSTRAP_VARIABLE, "of-the-environment:1")
    assert chosen([]) == ("of-the-environment:1", False)
    assert chosen([], file=file) == ("of-the-file:1", False)
    assert chosen(property_of_x, file=file) == ("a:1,[::1]:2", False)
    assert chosen(["-b", "b:1"], file=file) == ("b:1", False)
    assert chosen(["-b", "b:1", "-X", "bootstrap.servers=b:1 ,"]) == ("b:1", False)
    controllers = ["-X", "bootstrap.controllers=c:1"]
    assert chosen(controllers, file=file, of_controllers=True) == ("c:1", True)
    assert chosen(["--bootstrap-controller", "c:1"], file=file, of_controllers=True) == ("c:1", True)


def test_an_address_of_a_property_needs_its_port(capsys: pytest.CaptureFixture[str]) -> None:
    """The property is that of a Java client, which has no default port."""
    assert main(["topics", "list", "-X", "bootstrap.servers=a"]) == 1
    assert capsys.readouterr().err == "pykbroker: Invalid url in bootstrap.servers: a\n"


def test_the_words_count_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=of-the-file\nrequest.timeout.ms=7\nsecurity.protocol=SSL\n")
    seen: list[client_options.ClientOptions] = []

    @click.command()
    @client_options.client_options
    def command(client: client_options.ClientOptions) -> None:
        seen.append(client)

    words = ["--command-config", str(file), "-X", "client.id=a=b", "-X", "security.protocol=PLAINTEXT", "-b", "h:1"]
    command.main(words, standalone_mode=False)
    assert seen[0].bootstrap == "h:1"
    assert seen[0].properties == {
        "client.id": "a=b",
        "request.timeout.ms": "7",
        "security.protocol": "PLAINTEXT",
    }
