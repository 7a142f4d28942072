"""The resources of the inspect API, by their names in paths."""

from collections.abc import Mapping

from headgate.api.inspect.call_records import CALL_RECORDS
from headgate.api.inspect.explanations import EXPLANATIONS
from headgate.api.inspect.findings import FINDINGS
from headgate.api.inspect.mesh_statuses import MESH_STATUSES
from headgate.api.inspect.plans import PLANS
from headgate.api.inspect.proxies import PROXIES
from headgate.api.inspect.resource import InspectResource
from headgate.api.inspect.revisions import REVISIONS
from headgate.api.inspect.traffic_graphs import TRAFFIC_GRAPHS
from headgate.api.inspect.traffic_series import TRAFFIC_SERIES
from headgate.api.inspect.user_objects import USER_OBJECTS
from headgate.api.inspect.workload_sidecars import WORKLOAD_SIDECARS

RESOURCES: Mapping[str, InspectResource] = {
    resource.plural: resource
    for resource in (
        PROXIES,
        WORKLOAD_SIDECARS,
        EXPLANATIONS,
        PLANS,
        FINDINGS,
        CALL_RECORDS,
        REVISIONS,
        MESH_STATUSES,
        TRAFFIC_GRAPHS,
        TRAFFIC_SERIES,
        *USER_OBJECTS,
    )
}
