"""What the exchange of one mechanism is to the rest: tokens in, challenges out, a user at its end.

The two errors are Apache Kafka's SaslAuthenticationException, whose text a client reads, and SaslException, which a
client reads as one text for every reason.
"""

from __future__ import annotations

from typing import Protocol


class AuthenticationFailed(Exception):
    """The exchange failed; a client is told this text."""


class InvalidCredentials(Exception):
    """The exchange failed; a client is not told why. The text is for the log and has nothing that the client sent."""


class SaslServer(Protocol):
    """The server's side of one exchange. After an error it is of no use."""

    @property
    def user(self) -> str | None:
        """The user that is authenticated; None until the exchange is complete."""
        ...

    def evaluate(self, token: bytes) -> bytes:
        """The challenge that answers a token. Raises AuthenticationFailed or InvalidCredentials."""
        ...
