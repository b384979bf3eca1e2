"""The name under which other machines reach this one, as `InetAddress.getLocalHost().getCanonicalHostName()` finds it.

Responsible for the rules of Java's method, and for calling the resolver of the operating system on a thread, because
its calls may block for many seconds. Not responsible for a machine without a name (node/advertised.py).
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

#: The longest time for which a start waits for the resolver, in all.
LIMIT_S: Final = 1.0
_LOCALHOST: Final = "localhost"
_LOOPBACK: Final = "127.0.0.1"


def canonical_name(host_name: str, addresses_of: Callable[[str], list[str]], name_of: Callable[[str], str]) -> str:
    """Return the full name of the first address of `host_name`, if that name resolves to this address again. Otherwise
    return the address.

    `addresses_of` returns the addresses of a name, `name_of` the name of an address; both raise OSError if the resolver
    does not know it. Raises OSError if `host_name` has no address.
    """
    address = _LOOPBACK if host_name == _LOCALHOST else addresses_of(host_name)[0]
    try:
        name = name_of(address)
        if address in addresses_of(name):
            return name
    except OSError:
        # A name is preferred, but an address works as well, and Java's method also returns the address in this case.
        return spelled(address)
    return spelled(address)


def spelled(host: str) -> str:
    """Return an IPv6 address as Java writes it, with all its groups. Return a name or an IPv4 address unchanged."""
    text, percent, scope = host.partition("%")
    try:
        address = ip_address(text)
    except ValueError:
        return host
    if address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":")) + percent + scope


def addresses_of(name: str) -> list[str]:
    """Return the addresses of a name, IPv4 addresses first. Raises OSError."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{name!r} is not the name of a machine: {error}") from error
    ordered = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    return list(dict.fromkeys(str(address[0]) for *_, address in ordered))


def name_of(address: str) -> str:
    """Return the name of an address. Raises OSError."""
    return socket.getnameinfo((address, 0), socket.NI_NAMEREQD)[0]


def name_of_this_machine() -> str:
    """Return the name of this machine from the operating system. Blocks. Raises OSError."""
    host_name = socket.gethostname()
    try:
        return canonical_name(host_name, addresses_of, name_of)
    except OSError as error:
        raise OSError(f"{host_name}: {error.strerror or error}") from error


def ask_on_a_thread(
    loop: asyncio.AbstractEventLoop, ask: Callable[[], str] = name_of_this_machine, limit_s: float = LIMIT_S
) -> asyncio.Future[str]:
    """Return a future of the result of `ask`. It fails with the error of `ask`, or with TimeoutError if `ask` takes
    longer than `limit_s`.

    The thread is a daemon, so a resolver that hangs delays the start only up to the limit, and does not delay the end
    of the process.
    """
    answer: asyncio.Future[str] = loop.create_future()

    def end(name: str, error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(name)
        else:
            answer.set_exception(error)

    def run() -> None:
        name, raised = "", None
        try:
            name = ask()
        except Exception as error:  # noqa: BLE001  # whatever it raises is raised on the loop
            raised = error
        try:
            loop.call_soon_threadsafe(end, name, raised)
        except RuntimeError:
            # The time limit is over, and the loop is closed.
            return

    timer = loop.call_later(limit_s, end, "", TimeoutError(f"the resolver did not answer within {limit_s:g} s"))
    answer.add_done_callback(lambda _: timer.cancel())
    threading.Thread(target=run, name="pykbroker-own-name", daemon=True).start()
    return answer
