"""Find splits and routes of TCP ports whose clients call pods by their names (D37).

A transparent sidecar sees only the address of a TCP connection, which the name of a pod and that of its headless Service share.
The connection goes to the pod that has the address: a client of one database must not write to another.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.routing import Endpoints, RouteTable
from headgate.resources.registry import TRAFFIC_SPLIT


def findings(tables: Iterable[RouteTable], endpoints: Iterable[Endpoints]) -> tuple[Finding, ...]:
    """Return a finding for each split and route of a TCP port that has pods with names."""
    routed = [
        table for table in tables if not table.protocol.is_http and any(route.origin for route in table.all_routes)
    ]
    if not routed:
        return ()
    named = {entry.ref: pod.hostname for entry in endpoints for pod in entry.ready if pod.hostname}
    return tuple(chain.from_iterable(_of_table(table, named[table.ref]) for table in routed if table.ref in named))


def _of_table(table: RouteTable, hostname: str) -> Iterator[Finding]:
    namespace, service = table.ref.service.split("/")
    message = (
        f"port {table.ref.port} of the headless Service {table.ref.service} is {table.protocol.value}, and its pods have names "
        f"such as {hostname}.{service}.{namespace}. A transparent sidecar connects to the pod whose address its client calls, "
        "without this object; to route such connections, create the Service with a clusterIP"
    )
    for origin in dict.fromkeys(route.origin for route in table.all_routes if route.origin):
        field = "spec.service" if origin.kind == TRAFFIC_SPLIT.kind else "spec.parentRefs"
        yield Finding(origin, Reason.NOT_ROUTED, field, message)
