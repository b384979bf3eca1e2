"""PLAIN on the server: one token has a name and a password, which are compared with the users of a JAAS entry. RFC
4616.

Texts of errors are those of Apache Kafka's PlainSaslServer. Users come from options `user_<name>="<password>"`.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from pykbroker.sasl.sasl_server import AuthenticationFailed

PLAIN: Final = "PLAIN"
_USER: Final = "user_"


class PlainUsers:
    """Names and passwords of users. Its `repr` shows neither."""

    __slots__ = ("_passwords",)

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options`: those of the login module, with a `user_<name>` for each user."""
        self._passwords = {
            name.removeprefix(_USER): password.encode() for name, password in options.items() if name.startswith(_USER)
        }

    def __repr__(self) -> str:
        return "PlainUsers([hidden])"

    def are(self, name: str, password: str) -> bool:
        """Return True if the password is that of the user. It takes the same time for each user, and for an unknown
        user."""
        expected = self._passwords.get(name)
        same = hmac.compare_digest(password.encode(), b"" if expected is None else expected)
        return same and expected is not None


class PlainServer:
    """One exchange (see SaslServer)."""

    __slots__ = ("_users", "user")

    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.user: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        parts = token.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authzid, name, password = parts
        if not name:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        if not self._users.are(name, password):
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authzid and authzid != name:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = name
        return b""
