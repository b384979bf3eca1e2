"""`pykbroker tls create`: certificates for development, as files that nodes and clients read.

Responsible for the options and the files; tls/authority.py makes the certificates. A file that exists is not
overwritten, and only the owner of a file can read it.
"""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pykbroker.tools.commands.command_group import CommandGroup

if TYPE_CHECKING:
    from pykbroker.tls.authority import Authority

_AUTHORITY_KEY, _AUTHORITY = "authority.key", "authority.pem"


@click.group("tls", cls=CommandGroup)
def command() -> None:
    """Make certificates for development."""


@command.command("create", example="pykbroker tls create certificates --host localhost --client alice")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--host", "hosts", multiple=True, help="A name or address of the node (may be repeated).")
@click.option("--client", "clients", multiple=True, metavar="NAME", help="A client (may be repeated).")
@click.option("--days", default=365, show_default=True, type=click.IntRange(1, 3650), help="How long they are good.")
def create(folder: Path, hosts: Sequence[str], clients: Sequence[str], days: int) -> None:
    """Make an authority, a node's certificate and those of clients.

    FOLDER gets PEM and PKCS12 files, and the properties that name them: node.properties for the node, NAME.properties
    for a Java client. If the folder already has an authority, that authority issues the new certificates. Use this for
    development alone, because the key of the authority is in the same folder.
    """
    now = datetime.datetime.now(datetime.UTC)
    names = ["node", *clients]
    for name in clients:
        if name in ("node", "authority", "trust") or not name or set(name) & set("/\\\0\n\r") or name.startswith("."):
            raise click.UsageError(f"{name!r} cannot be the name of a client's files")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _authority(folder, now, days)
    password = secrets.token_urlsafe(18)
    trust = folder / f"trust-{secrets.token_hex(3)}.p12"
    _write(trust, authority.truststore(password))
    for name in names:
        of_node = name == "node"
        if of_node and (folder / "node.pem").exists():
            continue
        issued = authority.issue(name, now=now, days=days, hosts=(hosts or ("localhost",)) if of_node else ())
        _write(folder / f"{name}.pem", issued.key_pem + issued.chain_pem)
        store = folder / f"{name}.p12"
        _write(store, issued.pkcs12(password))
        lines = {
            **({} if of_node else {"security.protocol": "SSL"}),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": store.absolute(),
            "ssl.keystore.password": password,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": trust.absolute(),
            "ssl.truststore.password": password,
        }
        properties = folder / f"{name}.properties"
        _write(properties, "".join(f"{key}={value}\n" for key, value in lines.items()).encode())
        click.echo(properties)


def _authority(folder: Path, now: datetime.datetime, days: int) -> Authority:
    """Return the authority in the folder, or a new one."""
    from pykbroker.config.kinds import ConfigError
    from pykbroker.tls.authority import Authority

    if (folder / _AUTHORITY_KEY).exists():
        try:
            return Authority.load((folder / _AUTHORITY_KEY).read_bytes(), (folder / _AUTHORITY).read_bytes())
        except ValueError as error:
            raise ConfigError(
                f"{folder / _AUTHORITY_KEY} is not the key of an authority that this command made"
            ) from error
    authority = Authority.create("pykbroker development", now=now, days=days)
    _write(folder / _AUTHORITY_KEY, authority.key_pem)
    _write(folder / _AUTHORITY, authority.certificate_pem)
    return authority


def _write(path: Path, data: bytes) -> None:
    """Write a new file of mode 0600. Raises FileExistsError if it exists."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
