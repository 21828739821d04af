"""What a sandbox may reach."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxd_client.arguments import checked
from sandboxd_client.door_results import EgressInfo
from sandboxd_client.methods.doors import GET_EGRESS, SET_EGRESS
from sandboxd_client.session import SessionHold
from sandboxd_proto.v1 import door_service_pb2 as pb


@checked
class AsyncEgress:
    """Hosts that the sandbox may reach, through a proxy that its commands find in HTTP_PROXY and
    HTTPS_PROXY. Without rules it reaches nothing.

    Rules are `example.com`, `*.example.com:8443`, `GET+HEAD example.com:80`, or `NAME.door` for an
    upstream that the operator has named.

    Example:
        await sandbox.egress.set(["example.com"])
        print((await sandbox.egress.get()).rules)
    """

    def __init__(self, hold: SessionHold) -> None:
        self._hold = hold

    async def get(self) -> EgressInfo:
        """The rules, figures, and the last requests that were refused.

        Example:
            for denial in (await sandbox.egress.get()).recent_denials:
                print(denial.host, denial.message)
        """
        request = pb.GetEgressRequest(session_id=self._hold.id)
        answer = await self._hold.connection.call(GET_EGRESS, request)
        return EgressInfo.of(answer.egress)

    async def set(self, rules: Sequence[str] | None) -> EgressInfo:
        """Replace the rules; an empty list closes the door, None means those of the environment.

        Connections that are no longer allowed end. EgressNotAllowedError if the token does not
        allow a rule.

        Example:
            await sandbox.egress.set(["*.example.com", "GET example.org:80"])
            await sandbox.egress.set([])
        """
        request = pb.SetEgressRequest(session_id=self._hold.id, incarnation=self._hold.incarnation)
        if rules is not None:
            request.rules.SetInParent()
            request.rules.rules.extend(rules)
        answer = await self._hold.connection.call(SET_EGRESS, request)
        return EgressInfo.of(answer.egress)
