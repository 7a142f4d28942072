"""Apply the objects of gateways on a cluster; findings about those that the API server rejects, and about their pods.

Findings are about a Gateway, or about the object that requests the gateway of a Service.
"""

from collections.abc import Iterator

from headgate.backoff import LONGEST_S
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.errors import Denied, HeadgateError, Invalid, StoreError
from headgate.kubernetes.names import NAME, NAMESPACE
from headgate.kubernetes.permissions import REMEDY, is_denied
from headgate.kubernetes.retries import FailedAttempt
from headgate.objects.ports import Store
from headgate.resources.meta import Key, Object

_ATTEMPTS = 3
_QUOTA = " quota: "
"""In the messages of the API server: `exceeded quota: NAME, requested: ...`, `status unknown for quota: ...`."""


class NotApplied(HeadgateError):
    """An object of a gateway's proxies could not be applied because of `error`."""

    def __init__(self, obj: Object, error: StoreError) -> None:
        metadata = obj["metadata"]
        super().__init__(f"the {obj['kind']} {metadata['namespace']}/{metadata['name']} can't be applied: {error}")
        self.error = error


async def apply(store: Store, obj: Object, *, manager: str = NAME) -> None:
    """Apply an object of a gateway's proxies. Raises NotApplied."""
    try:
        await store.apply(obj, manager=manager)
    except StoreError as error:
        raise NotApplied(obj, error) from error


def rejections(about: Key, failure: FailedAttempt) -> Iterator[Finding]:
    """Yield a finding if the API server rejects an object of a gateway's proxies.

    Other errors can pass within a second, such as those of an API server that starts. They count from the third attempt.
    """
    error = failure.error.error if isinstance(failure.error, NotApplied) else failure.error
    if isinstance(error, Invalid | Denied) or failure.attempts >= _ATTEMPTS:
        reason, remedy = _remedy(error, about)
        message = f"{str(failure.error).rstrip('.')}. {remedy}; headgate tries again at least every {LONGEST_S:g} s"
        yield Finding(about, reason, "", message)


def missing_pods(about: Key, deployment: Object) -> Iterator[Finding]:
    """Yield a finding if the cluster rejects the pods of a gateway, for example because of a quota, and none is available.

    Kubernetes changes the condition of the Deployment only if the rejection begins or ends, so the message is stable.
    """
    status, metadata = deployment.get("status") or {}, deployment["metadata"]
    conditions = (condition for condition in status.get("conditions") or () if condition["type"] == "ReplicaFailure")
    condition = next((condition for condition in conditions if condition["status"] == "True"), None)
    if condition and not status.get("availableReplicas"):
        error = Denied(str(condition.get("message", "")))
        reason, remedy = _remedy(error, about)
        name = f"{metadata['namespace']}/{metadata['name']}"
        message = f"the Deployment {name} can't create its pods: {str(error).rstrip('.')}. {remedy}"
        yield Finding(about, reason, "", message)


def _remedy(error: HeadgateError, about: Key) -> tuple[Reason, str]:
    """Return the reason of a finding about an error of the API server, and what to do about it."""
    is_gateway = about.kind == "Gateway"
    if isinstance(error, Invalid):
        return (
            Reason.INVALID,
            f"Correct the value in the {'Gateway or in its parameters' if is_gateway else about.kind}",
        )
    if not isinstance(error, Denied):
        return Reason.OBJECT_REJECTED, "Look at the API server and at its admission webhooks"
    if is_denied(error):
        return Reason.OBJECT_REJECTED, f"{REMEDY[0].upper()}{REMEDY[1:]}"
    if _QUOTA in str(error):
        return Reason.NO_RESOURCES, f"Raise the ResourceQuota in {NAMESPACE}, or delete objects there"
    changed = "the Gateway, its parameters" if is_gateway else f"the {about.kind}"
    return Reason.OBJECT_REJECTED, f"Change {changed} or the policy that denies the request"
