"""Which keys act: the names whose effect in today's broker a test shows. The only place that says so.

A key is added together with the test that proves it. `Key.acts`, docs/configuration.md and the README count from here.
"""

from __future__ import annotations

BROKER: frozenset[str] = frozenset()
TOPIC: frozenset[str] = frozenset()
GROUP: frozenset[str] = frozenset()
