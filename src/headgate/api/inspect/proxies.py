"""The resource `proxies`: what each proxy was sent, has acknowledged and has rejected; `proxies/config` has the resources."""

from collections.abc import Callable

from headgate.api import responses
from headgate.api.inspect.resource import InspectCall, InspectResource, Subresource
from headgate.api.status import ApiError, unsupported_value
from headgate.formatting import NONE
from headgate.plane.inspector import ConfigQuery
from headgate.resources.inspect import TYPES, Proxy, ProxyConfig, ProxyList, in_namespace
from headgate.resources.meta import since


async def _get(call: InspectCall) -> Proxy | None:
    return call.inspector.proxy(call.path.object_name)


async def _list(call: InspectCall) -> ProxyList:
    return ProxyList(items=in_namespace(call.inspector.proxies(), call.path.namespace))


async def _config(call: InspectCall) -> ProxyConfig | None:
    """Return a proxy's configuration for the parameters `type`, `name` and `content`. Raises ApiError 400."""
    type = call.query.get("type", "")
    if type not in ("", *TYPES):
        raise ApiError(400, f"{unsupported_value('type', type, TYPES)}; omit it for all types")
    content = responses.query_flag(call.query, "content")
    return await call.inspector.config(ConfigQuery(call.path.object_name, type, call.query.get("name", ""), content))


def _counts(name: str) -> Callable[[Proxy], str]:
    def cell(proxy: Proxy) -> str:
        counts = next((counts for counts in proxy.status.types if counts.type == name), None)
        if counts is None:
            return NONE
        return str(counts.held) if counts.held == counts.resources else f"{counts.held}/{counts.resources}"

    return cell


PROXIES = InspectResource(
    "proxies",
    "Proxy",
    Proxy,
    get=_get,
    list=_list,
    columns=(
        (
            "State",
            "The state of the proxy: InSync, Lagging, Refused or Disconnected.",
            lambda proxy: proxy.status.state,
        ),
        ("Last_ACK", "Time since the proxy's last ACK.", lambda proxy: since(proxy.status.last_acknowledged_time)),
        *(
            (name.capitalize(), f"The number of acknowledged {name}, and of all {name} of the proxy.", _counts(name))
            for name in ("clusters", "endpoints", "listeners", "routes", "secrets")
        ),
    ),
    subresources={"config": Subresource("ProxyConfig", ProxyConfig, get=_config)},
)
