"""Build Services on port 80, the Gateway `edge`, and its routes."""

from collections.abc import Collection
from functools import partial
from typing import Any

from tests.make.objects import GATEWAY_API, Object, backed_service, backend_ref, gateway, listener, route

from headgate.resources.meta import Key

SHOP = Key(GATEWAY_API, "HTTPRoute", "default", "shop")
ref = partial(backend_ref, port=80)


def services(*names: str, namespace: str = "default", dead: Collection[str] = (), app: str = "") -> list[Object]:
    """Return Services and their EndpointSlices; those in `dead` have no endpoints."""
    built: list[Object] = []
    for index, name in enumerate(names, 1):
        pair = backed_service(name, ("", f"10.1.0.{index}"), number=80, app=app, namespace=namespace)
        built += pair[: 1 if name in dead else 2]
    return built


def edge(*hostnames: str, **fields: Any) -> Object:
    """Return the Gateway with a listener for each hostname; an empty one stands for all hosts."""
    listeners = [
        {**listener(name=f"l{index}", **fields), **({"hostname": host} if host else {})}
        for index, host in enumerate(hostnames or ("",))
    ]
    return gateway("edge", *listeners, status={"addresses": [{"type": "IPAddress", "value": "10.2.0.1"}]})


def edge_route(*rules: Object, name: str = "shop", **more: Any) -> Object:
    """Return a route of the Gateway."""
    return route(name, *rules, parents=[{"name": "edge"}], **more)


def mirror(name: str, **fields: Any) -> Object:
    """Return a filter that mirrors requests to a Service."""
    return {"type": "RequestMirror", "requestMirror": {"backendRef": ref(name, **fields)}}
