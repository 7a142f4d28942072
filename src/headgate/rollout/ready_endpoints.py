"""Whether the Services of a rollout exist, and the canary has endpoints that proxies send requests to (D33)."""

from headgate.compiler.endpoints import endpoints
from headgate.compiler.snapshot import Snapshot
from headgate.resources.meta import service_name
from headgate.rollout.plan import RolloutPlan


def missing_services(plan: RolloutPlan, namespace: str, snapshot: Snapshot | None, domain: str) -> tuple[str, ...]:
    """Return the backends that name no existing Service, as written. The Canary creates its root from an existing backend."""
    if snapshot is None:
        return ()
    names = [backend.service for backend in plan.spec.backends]
    return tuple(name for name in names if service_name(name, namespace, domain) not in snapshot.services)


def canary_is_ready(plan: RolloutPlan, namespace: str, snapshot: Snapshot | None, domain: str) -> bool:
    """Return whether the canary's Service has a ready endpoint on any port; True while this is unknown.

    `namespace` is the Canary's. A Service that does not exist has no endpoint.
    """
    if snapshot is None or plan.analysis is None:
        return True
    name = service_name(plan.analysis.canary, namespace, domain)
    if name not in snapshot.services:
        return False
    service, slices = snapshot.services[name][1], snapshot.slices.get(name, ())
    listed = endpoints(name, service, slices, domain)
    return any(not endpoint.terminating for port in listed for endpoint in port.ready)
