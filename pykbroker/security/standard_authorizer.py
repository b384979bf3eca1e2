"""Apache Kafka's StandardAuthorizer: it checks super users first, then the ACLs of the metadata log, then the default.

Responsible for this order, for the time before the ACLs are loaded, for storing decisions between requests, and for the
log of decisions (`kafka.authorizer.logger`). Not responsible for the meaning of ACLs (acl_index.py) nor for getting
their changes (node/loop_side.py).

Until `complete_initial_load` it only decides for super users, and raises AuthorizerNotReady for other principals. It
stores decisions until an ACL changes. It stores at most MAX_DECISIONS, and only for names of at most KEPT_CHARACTERS,
because clients choose names and must not be able to fill the memory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from pykbroker.security.acl import Acl, Permission, java_address
from pykbroker.security.acl_index import AclIndex
from pykbroker.security.authorizer import Asker, AuthorizerNotReady, Operation, Resource
from pykbroker_wire.apis import APIS

MAX_DECISIONS: Final = 10_000
#: The longest name for which a decision is stored. Names of groups and transactions may have up to 32,767 characters.
KEPT_CHARACTERS: Final = 256
#: The most log lines for refusals of one client within a second, unless the log has the level DEBUG.
MOST_REFUSALS: Final = 100
_TRACE: Final = logging.DEBUG - 5

logger = logging.getLogger(__name__)
#: Logs a line for each decision, with Apache Kafka's logger name and words, which log pipelines expect.
audit_logger = logging.getLogger("kafka.authorizer.logger")
_DEBUG: Final = logging.DEBUG
#: The logger's own cache of enabled levels, which it empties when a level changes. It is read directly, because a call
#: of the logger costs as much as the decision.
_levels: Mapping[int, bool] = getattr(audit_logger, "_cache", {})


class Decision(NamedTuple):
    """A decision. `rule`: the rule that decided, as Apache Kafka names it in the log."""

    allowed: bool
    rule: Acl | str

    def __str__(self) -> str:
        return f"MatchingAcl(acl={self.rule})" if isinstance(self.rule, Acl) else self.rule


_SUPER_USER: Final = Decision(True, "SuperUser")
_Question = tuple[str, str, int, int, str | None]


class StandardAuthorizer:
    """The authorizer of one half of a node."""

    keeps_acls = True

    def __init__(
        self,
        node_id: int,
        super_users: Collection[str] = (),
        *,
        allow_if_no_acl: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`super_users`: principals, "Type:name". `allow_if_no_acl`: allow.everyone.if.no.acl.found. `now` returns
        seconds."""
        self._prefix = f"[StandardAuthorizer {node_id}]"
        self._super_users = frozenset(super_users)
        self._default = Decision(True, "DefaultAllow") if allow_if_no_acl else Decision(False, "DefaultDeny")
        self._index = AclIndex()
        self._decisions: dict[_Question, Decision] = {}
        #: the number of decisions, by result; for metrics
        self.allowed = 0
        self.denied = 0
        self._loaded = False
        self._waiting: list[Callable[[], None]] = []
        self._flood = _Flood(now)
        result = "ALLOWED" if allow_if_no_acl else "DENIED"
        logger.info("%s set super.users=%s, default result=%s", self._prefix, ",".join(super_users), result)

    @property
    def acls(self) -> Iterable[Acl]:
        return self._index

    # Its ACLs.

    def change(self, changes: Mapping[bytes, Acl | None]) -> None:
        """Add the ACLs with these ids, or remove an ACL whose value is None. All changes apply from the next decision
        on."""
        for acl_id, acl in changes.items():
            if acl is None:
                self._index.remove(acl_id)
            else:
                self._index.add(acl_id, acl)
        self._decisions.clear()

    @property
    def acl_count(self) -> int:
        return len(self._index)

    @property
    def is_loaded(self) -> bool:
        return self._loaded

    def when_loaded(self, callback: Callable[[], None]) -> None:
        """Call `callback` once: now if the ACLs are already loaded, otherwise when they are."""
        if self._loaded:
            callback()
        else:
            self._waiting.append(callback)

    def complete_initial_load(self) -> None:
        """Note that all ACLs that were committed when this node started are loaded. From now on it decides for all
        principals."""
        if self._loaded:
            return
        self._loaded = True
        logger.info("%s Completed initial ACL load process: %d ACLs.", self._prefix, len(self._index))
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    # Its decisions.

    def authorize(self, asker: Asker, operation: Operation, resource: Resource, name: str, quiet: bool = False) -> bool:
        peer = asker.peer
        principal, host = peer.session.principal, peer.client_host
        decision = self._decisions.get((principal, host, operation, resource, name))
        if decision is None:
            decision = self._decide(principal, host, operation, resource, name)
        if decision[0]:
            self.allowed += 1
            if _levels.get(_DEBUG) is False:
                return True
            level = _DEBUG
        else:
            self.denied += 1
            level = _TRACE if quiet else logging.INFO
            if not quiet and self._flood.is_full(principal, host):
                return False
        if audit_logger.isEnabledFor(level):
            audit_logger.log(level, "%s", _line(asker, operation, resource, name, decision))
        return decision.allowed

    def would_allow(self, asker: Asker, operation: Operation, resource: Resource, name: str) -> bool:
        decision = self._decision(asker, operation, resource, name)
        if decision.allowed:
            self.allowed += 1
        else:
            self.denied += 1
        if audit_logger.isEnabledFor(_TRACE):
            audit_logger.log(_TRACE, "%s", _line(asker, operation, resource, name, decision))
        return decision.allowed

    def explain(self, asker: Asker, operation: Operation, resource: Resource, name: str) -> str:
        """Return the rule that decides, as the log has it."""
        return str(self._decision(asker, operation, resource, name))

    def authorize_some(self, asker: Asker, operation: Operation, resource: Resource) -> bool:
        # No ACL is likely to have this name, so this call checks super users, rules for `*`, and the default without
        # any rule.
        if self.authorize(asker, operation, resource, "hardcode", quiet=True):
            return True
        principal, host = asker.principal, asker.client_host
        question = (principal, host, operation, resource, None)
        decision = self._decisions.get(question)
        if decision is None:
            allowed = self._index.allows_some(principal, java_address(host), operation, resource)
            decision = Decision(allowed, "Some" if allowed else "None")
            self._keep(question, decision)
        return decision.allowed

    def _decision(self, asker: Asker, operation: Operation, resource: Resource, name: str) -> Decision:
        """Return a stored decision or a new decision. `authorize` repeats this code to save the call in each
        request."""
        principal, host = asker.principal, asker.client_host
        kept = self._decisions.get((principal, host, operation, resource, name))
        return kept or self._decide(principal, host, operation, resource, name)

    def _decide(self, principal: str, host: str, operation: int, resource: int, name: str) -> Decision:
        if principal in self._super_users:
            decision = _SUPER_USER
        elif not self._loaded:
            raise AuthorizerNotReady(f"{self._prefix} The ACLs are not loaded yet.")
        else:
            rule, has_rules = self._index.decide(principal, java_address(host), operation, resource, name)
            if rule is not None:
                decision = Decision(rule.permission_type == _ALLOW, rule)
            else:
                decision = _DENY if has_rules else self._default
        self._keep((principal, host, operation, resource, name), decision)
        return decision

    def _keep(self, question: _Question, decision: Decision) -> None:
        name = question[-1]
        if name is not None and len(name) > KEPT_CHARACTERS:
            return
        if len(self._decisions) >= MAX_DECISIONS:
            # Drop all at once. The next requests decide again, and no request has to maintain an order of use.
            self._decisions.clear()
        self._decisions[question] = decision


class _Flood:
    """Counts the consecutive refusals of one client. A request may name so many resources that the log lines about its
    refusals would fill a disk."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._whose = ("", "", 0)
        self._lines = 0

    def is_full(self, principal: str, host: str) -> bool:
        """Return True if this refusal gets no log line. The first time, log that lines are left out."""
        whose = (principal, host, int(self._now()))
        if whose != self._whose:
            self._whose, self._lines = whose, 0
        self._lines += 1
        if self._lines <= MOST_REFUSALS or audit_logger.isEnabledFor(_DEBUG):
            return False
        if self._lines == MOST_REFUSALS + 1:
            audit_logger.info(
                "%s",
                one_line(
                    f"Principal = {principal} is Denied more than {MOST_REFUSALS} operations within a second from host "
                    f"= {java_address(host)}: the lines of the others are left out"
                ),
            )
        return True


_ALLOW: Final = int(Permission.ALLOW)
_DENY: Final = Decision(False, "DefaultDeny")


def _line(asker: Asker, operation: Operation, resource: Resource, name: str, decision: Decision) -> str:
    kind = "".join(word.capitalize() for word in resource.name.split("_"))
    api = APIS.get(asker.api_key)
    line = (
        f"Principal = {asker.principal} is {'Allowed' if decision.allowed else 'Denied'} operation = {operation.name} "
        f"from host = {java_address(asker.client_host)} on resource = {kind}:LITERAL:{name} "
        f"for request = {asker.api_key if api is None else api.name} with resourceRefCount = 1 based on rule {decision}"
    )
    return one_line(line)


def one_line(text: str) -> str:
    """Escape the text of a log line, so that a name from a client can neither begin a line nor control a terminal."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in text
    )
