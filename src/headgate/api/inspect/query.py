"""The parser of paths of the inspect API (D29)."""

from collections.abc import Mapping, Sequence

from headgate.api import responses
from headgate.api.inspect.registry import RESOURCES
from headgate.api.inspect.resource import WATCH, InspectPath
from headgate.api.selectors import selected_name
from headgate.api.status import no_such_path

_NAMESPACES = "namespaces"


def parse_path(parts: Sequence[str], query: Mapping[str, str]) -> InspectPath:
    """Parse the path after the version: `[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]`. Raises ApiError 404.

    As in Kubernetes, the parameters `watch` and `fieldSelector` decide the verb and the name that RBAC authorizes.
    """
    inside = len(parts) > 2 and parts[0] == _NAMESPACES and parts[2] not in RESOURCES[_NAMESPACES].subresources
    namespace, rest = (parts[1], parts[2:]) if inside else ("", parts)
    match rest:
        case [plural, *tail] if all(parts) and len(tail) <= 2 and (resource := RESOURCES.get(plural)):
            name, subresource = (*tail, "", "")[:2]
        case _:
            raise no_such_path()
    selected = "" if name else selected_name(query.get("fieldSelector", ""))
    watches = responses.query_flag(query, WATCH) and not subresource and bool(resource.list)
    path = InspectPath(resource, namespace, name, subresource, watches, selected)
    if not _exists(path):
        raise no_such_path()
    return path


def _exists(path: InspectPath) -> bool:
    resource = path.resource
    if path.subresource not in resource.subresources if path.subresource else path.action not in resource.verbs:
        return False
    may_omit = resource.namespaced and (resource.spans_namespaces or path.action == "list")
    return resource.namespaced == bool(path.namespace) or may_omit
