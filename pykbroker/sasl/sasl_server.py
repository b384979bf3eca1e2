"""The interface of the server's side of an exchange: it takes tokens, returns challenges, and has a user at its end.

The two errors correspond to Apache Kafka's: the client gets the text of a SaslAuthenticationException, but the same
text for every SaslException.
"""

from __future__ import annotations

from typing import Protocol


class AuthenticationFailed(Exception):
    """The exchange failed; the client gets this text."""


class InvalidCredentials(Exception):
    """The exchange failed; the client gets no reason. The text is for the log and contains no data from the client."""


class SaslServer(Protocol):
    """The server's side of one exchange. Do not use it after an error."""

    @property
    def user(self) -> str | None:
        """The authenticated user, or None until the exchange is complete."""
        ...

    def evaluate(self, token: bytes) -> bytes:
        """Return the challenge that answers a token. Raises AuthenticationFailed or InvalidCredentials."""
        ...
