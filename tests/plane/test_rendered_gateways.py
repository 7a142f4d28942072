"""The pods of gateways whose proxy is nginx get the configuration of their Service, and wait for the next one (R32)."""

import asyncio
from typing import Any

import grpc
import msgspec
import pytest
from tests.make.objects import endpoint_slice, headgate_keys, pod, port, service, split
from tests.make.values import snapshot

from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.latest import Latest
from headgate.plane.rendered_gateways import METHOD, Configuration, GatewayQuery, RenderedGateways
from headgate.resources.meta import Object
from headgate.settings import Settings
from headgate.xds.authentication import StatusError

POD, STRANGER = "sidecar/headgate-system/web-1", "sidecar/shop/web-1"


def objects(next_weight: int) -> list[Object]:
    """Return a Service with a split, its backends, the pod of its gateway, and a pod of a user with the same annotation."""
    shop: dict[str, Any] = {"namespace": "shop"}
    addresses = {"web": "10.96.0.1", "web-next": "10.96.0.2", "web-current": "10.96.0.3"}
    services = [service(name, port(80, "http"), clusterIP=address, **shop) for name, address in addresses.items()]
    slices = [
        endpoint_slice(name, [f"10.244.0.{number}"], {"http": 8080}, **shop)
        for number, name in enumerate(("web-next", "web-current"), 1)
    ]
    shares = split("web", {"web-next": next_weight, "web-current": 900}, name="my-canary", **shop)
    served = headgate_keys(proxy_of_service="shop/web")
    pods = [pod("web-1", namespace=place, annotations=served) for place in ("headgate-system", "shop")]
    return [*services, *slices, shares, *pods]


class RenderingRig:
    """The compiled mesh, and the method that pods call."""

    def __init__(self) -> None:
        self.compiled: Latest[Compiled | None] = Latest(None)
        self.snapshot: Latest[Snapshot | None] = Latest(None)
        self._method = RenderedGateways(self.compiled, self.snapshot).methods[METHOD]
        self.set_weight(100)

    def set_weight(self, weight: int) -> None:
        self.snapshot.set(snapshot(*objects(weight)))
        found = self.snapshot.get()
        assert found is not None
        self.compiled.set(compile_mesh(found, Settings(gateway_pods=True)))

    async def ask(self, node: str, known: str = "") -> Configuration:
        query = msgspec.json.encode(GatewayQuery(node=node, known=known))
        return msgspec.json.decode(await self._method(query, lambda _node: None), type=Configuration)


async def test_a_pod_gets_the_configuration_of_its_service_on_ports_without_a_privilege() -> None:
    """The weights are those of the example in SMI's specification."""
    found = await RenderingRig().ask(POD)
    text = found.files[found.main]
    assert "listen 61080 default_server;" in text
    assert "server 10.244.0.1:8080 weight=1 " in text
    assert "server 10.244.0.2:8080 weight=9 " in text


async def test_a_request_waits_for_another_configuration() -> None:
    rig = RenderingRig()
    first = await rig.ask(POD)
    waiting = asyncio.create_task(rig.ask(POD, first.version))
    await asyncio.sleep(0)
    rig.compiled.replace(rig.compiled.get())  # the same configuration
    await asyncio.sleep(0)
    assert not waiting.done()
    rig.set_weight(900)
    second = await waiting
    assert second.version != first.version
    assert "weight=9" not in second.files[second.main]


@pytest.mark.parametrize("node", [STRANGER, "sidecar/headgate-system/unknown", "gateway/web-1"])
async def test_a_pod_that_headgate_has_not_created_for_a_service_gets_nothing(node: str) -> None:
    with pytest.raises(StatusError) as failure:
        await RenderingRig().ask(node)
    assert failure.value.code is grpc.StatusCode.NOT_FOUND
