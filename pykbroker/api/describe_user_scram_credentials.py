"""DescribeUserScramCredentials, version 0. KIP-554."""

from __future__ import annotations

from collections import Counter

from pykbroker.dispatch.context import AnyContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(ctx: AnyContext, request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    if not ctx.authorize(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        # No user name is returned, as in Apache Kafka. If the list of users is null, Apache Kafka sends no response at
        # all.
        refused = [DescribeUserScramCredentialsResult(error_code=code, error_message=None) for _ in request.users or ()]
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=refused)
    known = ctx.services.metadata.image.scram
    users = [user.name for user in request.users or ()] or [name for _, name in known]
    asked_twice = {name for name, count in Counter(users).items() if request.users and count > 1}
    by_user: dict[str, list[CredentialInfo]] = {}
    for (mechanism, user), credential in known.items():
        by_user.setdefault(user, []).append(CredentialInfo(mechanism=mechanism, iterations=credential.iterations))
    results = []
    for name in dict.fromkeys(users):
        result = DescribeUserScramCredentialsResult(user=name)
        if name in asked_twice:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = f"Cannot describe the credentials of one user twice in a request: {name}"
        else:
            result.credential_infos = by_user.get(name, [])
            if not result.credential_infos:
                result.error_code = ErrorCode.RESOURCE_NOT_FOUND
                result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
        results.append(result)
    return DescribeUserScramCredentialsResponse(results=results)


HANDLERS = Handlers(handle)
