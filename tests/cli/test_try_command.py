"""`headgate try` against a served API and a fake proxy on the probe socket."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

import pytest
from tests.cli.conftest import ServedMesh
from tests.make import objects
from tests.stream_server import stream_server

from headgate.cli import try_command
from headgate.cli.senders import Sender
from headgate.resources.registry import key_of

Serve = Callable[[Iterable[str]], contextlib.AbstractAsyncContextManager[list[str]]]


@pytest.fixture
def proxy(served: ServedMesh) -> Serve:
    """Return a function that serves a cycle of responses on the probe socket and yields the list of received requests."""

    @contextlib.asynccontextmanager
    async def serve(responses: Iterable[str]) -> AsyncIterator[list[str]]:
        requests: list[str] = []
        cycle = itertools.cycle(responses)

        async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next((int(x[16:]) for x in head.split("\r\n") if x.lower().startswith("content-length: ")), 0)
                requests.append(head + (await reader.readexactly(length)).decode())
                writer.write(next(cycle).encode())

        async with stream_server(respond, served.probe):
            yield requests

    return serve


def response(backend: str = "", status: int = 200, body: str = "ok") -> str:
    upstream = (
        f"x-headgate-backend: default/{backend}\r\nx-headgate-pod: default/{backend}-0:8080 \r\n" if backend else ""
    )
    return f"HTTP/1.1 {status} Any\r\ncontent-length: {len(body)}\r\n{upstream}\r\n{body}"


async def split_of(served: ServedMesh, weights: Mapping[str, int]) -> None:
    await served.store.create(objects.service("website", 8080, 9090))
    for number, name in enumerate(weights, 1):
        for obj in objects.backed_service(name, ("", f"127.0.0.{number}")):
            await served.store.create(obj)
    await served.store.create(objects.split("website", weights))


async def test_try_succeeds_when_the_distribution_fits(served: ServedMesh, proxy: Serve) -> None:
    """R1, R7."""
    await split_of(served, {"v1": 3, "v2": 1, "v3": 0})
    async with proxy([*[response("v1")] * 3, response("v2")]) as requests:
        ran = await served.run("try", "http://website:8080/a?b=c", "--number", "40", "-o", "json")
    found = json.loads(ran.out)
    assert (ran.code, found["fits"], found["split"], found["port"]) == (0, True, "default/website", 8080)
    assert {row["backend"]: row["requests"] for row in found["backends"]} == {
        "default/v1": 30,
        "default/v2": 10,
        "default/v3": 0,
    }
    assert found["pods"] == {"default/v1-0": 30, "default/v2-0": 10}
    assert found["statuses"] == {"200": 40}
    assert all(head.startswith("GET http://website:8080/a?b=c HTTP/1.1\r\nhost: website:8080\r\n") for head in requests)


async def test_all_requests_of_one_user_of_a_sticky_split_belong_to_one_backend(
    served: ServedMesh, proxy: Serve
) -> None:
    await split_of(served, {"v1": 1, "v2": 1})
    sticky = {"headgate.dev/sticky": "header:x-user"}
    await served.store.update(objects.split("website", {"v1": 1, "v2": 1}, annotations=sticky))
    explained = await served.run("explain", "http://website:8080/", "-H", "x-user: alice", "-o", "json")
    backend = json.loads(explained.out)["status"]["stickiness"]["service"].removeprefix("default/")
    arguments = ("try", "website", "--number", "100", "-H", "x-user: alice")
    async with proxy([response(backend)]):
        kept = await served.run(*arguments)
        document = json.loads((await served.run(*arguments, "-o", "json")).out)
    assert kept.code == 0
    assert "one user by the header x-user, port 8080: fits; 100 x 200" in kept.out
    assert document["user"] == {"by": "Header", "name": "x-user"}
    async with proxy([response("v1"), response("v2")]):
        moved = await served.run(*arguments)
    assert moved.code == 1
    assert "does not fit" in moved.out


async def test_try_exits_with_1_when_the_distribution_does_not_fit(served: ServedMesh, proxy: Serve) -> None:
    await split_of(served, {"v1": 3, "v2": 1})
    async with proxy([response("v1"), response("v2")]):
        ran = await served.run("try", "website.default.svc.cluster.local", "--number", "100", "--concurrency", "5")
    assert ran.code == 1
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["default/v1", "75.00%", "50.00%", "50", "62.01%", "..", "87.99%", "NO"] in rows
    assert "does not fit" in ran.out


async def test_try_fails_and_says_so_if_a_backend_with_a_weight_does_not_exist(
    served: ServedMesh, proxy: Serve
) -> None:
    await split_of(served, {"v1": 9})
    await served.store.update(objects.split("website", {"v1": 9, "gone": 1, "unused": 0}))
    finding = "Service default/gone not found; it gets no traffic until it exists"
    async with proxy([response("v1")]):
        ran = await served.run("try", "http://website:8080/", "--number", "10")
        shown = json.loads((await served.run("try", "website", "--number", "10", "-o", "json")).out)
    assert ran.code == 1
    assert f"left out: default/gone: {finding}\n" in ran.out
    assert "does not fit the weights, because default/gone can't be used; 10 x 200" in ran.out
    assert {line.split()[0]: line.split()[-1] for line in ran.out.splitlines()[1:4]} == {
        "default/v1": "yes",
        "default/gone": "NO",
        "default/unused": "yes",
    }
    assert shown["fits"] is False
    assert shown["leftOut"] == [{"backend": "default/gone", "reason": "BackendNotFound", "message": finding}]


async def test_a_backend_without_ready_endpoints_leaves_its_share_to_the_others_with_a_line_that_says_so(
    served: ServedMesh, proxy: Serve
) -> None:
    """D9."""
    await split_of(served, {"v1": 9})
    await served.store.create(objects.service("v2", 8080))
    await served.store.update(objects.split("website", {"v1": 9, "v2": 1}))
    async with proxy([response("v1")]):
        ran = await served.run("try", "http://website:8080/", "--number", "10")
        other = await served.run("try", "http://website:9090/", "--number", "10")
    assert ran.code == 0
    assert (
        "Service default/v2 has no ready endpoint on port 8080; it gets no traffic there until it has one\n" in ran.out
    )
    assert "port 8080: fits" in ran.out
    assert other.code == 1
    assert "Service default/v2 has only port 8080; add port 9090 to it" in other.out


async def test_try_fails_if_a_backend_with_weight_0_gets_a_single_request(served: ServedMesh, proxy: Serve) -> None:
    """R8."""
    await split_of(served, {"v1": 1, "v2": 0})
    async with proxy([*[response("v1")] * 999, response("v2")]):
        assert (await served.run("try", "website", "--number", "1000")).code == 1


async def test_failures_are_shown_with_the_first_line_of_the_body(served: ServedMesh, proxy: Serve) -> None:
    await split_of(served, {"v1": 1})
    async with proxy(
        [response("v1"), response("v1", 500, "it broke\nbadly"), response("", 503, "no healthy upstream")]
    ):
        ran = await served.run("try", "website", "--number", "30")
    assert ran.code == 1
    assert "10 x 500 from default/v1: it broke\n" in ran.out
    assert "10 x 503 from the proxy: no healthy upstream" in ran.out
    assert "20 failed" in ran.out


async def test_a_404_of_the_application_is_not_a_failure(served: ServedMesh, proxy: Serve) -> None:
    await split_of(served, {"v1": 1})
    async with proxy([response("v1", 404)]):
        ended = await served.run("try", "website", "--number", "5")
    assert ended.code == 0
    assert "the shares fit, but every response is an error; 5 x 404" in ended.out


async def test_a_denial_by_a_sidecar_is_a_failure(served: ServedMesh, proxy: Serve) -> None:
    """The sidecar marks its 403 with a header, to distinguish this 403 from one of the application."""
    await split_of(served, {"v1": 1})
    refusal = response("v1", 403, "headgate: access denied").replace("\r\n\r\n", "\r\nx-headgate-denied: true\r\n\r\n")
    async with proxy([refusal, response("v1", 403, "not yours")]):
        ran = await served.run("try", "website", "--number", "10")
    assert ran.code == 1
    assert "5 x 403 from the sidecar of default/v1: headgate: access denied\n" in ran.out
    assert "5 failed" in ran.out


async def test_method_headers_and_body_are_sent(served: ServedMesh, proxy: Serve) -> None:
    await split_of(served, {"v1": 1})
    async with proxy([response("v1")]) as requests:
        assert (await served.run("try", "website", "--number", "1", "-d", "häh", "-H", "X-User: a b")).code == 0
    assert requests[0].startswith("POST http://website/ HTTP/1.1\r\n")
    assert "\r\nX-User: a b\r\n" in requests[0]
    assert requests[0].endswith("\r\n\r\nhäh")


async def test_a_host_header_of_the_urls_host_is_sent_once(served: ServedMesh, proxy: Serve) -> None:
    await split_of(served, {"v1": 1})
    async with proxy([response("v1")]) as requests:
        assert (await served.run("try", "website:8080", "--number", "1", "-H", "hOST: Website:8080")).code == 0
    assert requests[0].lower().count("\r\nhost: ") == 1


@pytest.mark.parametrize(
    ("headers", "mistake"),
    [
        (["Host: shop.example"], "the gateway is an HTTP proxy for its clients"),
        (["HOST: a", "host: b"], "several Host headers"),
        (["Host: a b"], "'a b' is no valid Host"),
        (["Host:"], "'' is no valid Host"),
        (["Host: website:99999"], "'website:99999' is no valid Host"),
        (["Host: website:0"], "'website:0' is no valid Host"),
        (["Host: website:"], "'website:' is no valid Host"),
        (["Host: me@website"], "'me@website' is no valid Host"),
        (["Host: fd00::1"], "'fd00::1' is no valid Host"),
        (["Host: [fd00::x]:80"], "'[fd00::x]:80' is no valid Host"),
        (["Host: [fd00::1]x"], "'[fd00::1]x' is no valid Host"),
    ],
)
async def test_a_host_that_the_proxy_would_replace_is_an_error_before_any_request(
    served: ServedMesh, proxy: Serve, headers: list[str], mistake: str
) -> None:
    await split_of(served, {"v1": 1})
    async with proxy([response("v1")]) as requests:
        ran = await served.run("try", "website", *(word for header in headers for word in ("-H", header)))
    assert (ran.code, requests) == (2, [])
    assert mistake in ran.err


@pytest.mark.parametrize(
    "url", ["website:0", "website:99999", "http://[fd00::x]/", "[fd00::1]x:80", "[fe80::1%25eth0]"]
)
async def test_an_invalid_url_is_a_usage_error(served: ServedMesh, url: str) -> None:
    ran = await served.run("try", url)
    assert ran.code == 2
    assert f"'{url}' has no" in ran.err


@pytest.mark.parametrize(("url", "warns"), [("website", True), ("website:8080", False)])
async def test_a_port_that_only_an_http_proxy_chooses_has_a_warning(
    served: ServedMesh, proxy: Serve, url: str, warns: bool
) -> None:
    """A client with a transparent sidecar connects to port 80, which the Service lacks."""
    await split_of(served, {"v1": 1})
    async with proxy([response("v1")]):
        ran = await served.run("try", url, "--number", "1")
    assert ran.code == 0, ran.err
    assert ("Behind a transparent sidecar, a client needs http://website:8080/" in ran.err) is warns


async def test_a_url_may_have_the_ipv6_address_of_a_service(served: ServedMesh, proxy: Serve) -> None:
    await split_of(served, {"v1": 1})
    service = await served.store.get(key_of(objects.service("website", 8080)))
    await served.store.update({**service, "spec": {**service["spec"], "clusterIP": "fd00::1"}})
    async with proxy([response("v1")]) as requests:
        ran = await served.run("try", "http://[fd00::1]:8080/a", "--number", "1")
    assert ran.code == 0, ran.err
    assert requests[0].startswith("GET http://[fd00::1]:8080/a HTTP/1.1\r\n")


@pytest.mark.parametrize("host", ["shop.example", "my_svc", "[fd00::1]:8080", "Shop.example:65535"])
async def test_a_transparent_sidecar_gets_the_host_and_the_address_of_the_service(
    served: ServedMesh, proxy: Serve, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """The host decides about routes, and the URL about the Service, as for `curl -H 'Host: ...'` in such a pod."""
    await split_of(served, {"v1": 1, "v2": 0})
    await served.store.create(objects.http_route_group("shop", {"shop": {"headers": [{"host": ".+"}]}}))
    await served.store.create(objects.split("website", {"v2": 1}, name="a-shop", matches=["shop"]))
    service = await served.store.get(key_of(objects.service("website", 8080)))
    await served.store.update({**service, "spec": {**service["spec"], "clusterIP": "127.9.9.9"}})

    async def local_gateway(_client: object, _state: object) -> Sender:
        return Sender(served.probe, by_address=True)

    monkeypatch.setattr(try_command, "local_gateway", local_gateway)
    async with proxy([response("v2")]) as requests:
        ran = await served.run("try", "website:8080/a?b=c", "--number", "2", "-H", f"Host: {host}")
    assert ran.code == 0, ran.err
    assert "TrafficSplit default/a-shop" in ran.out
    assert requests[0].lower().startswith(f"get http://{host}/a?b=c http/1.1\r\n".lower())
    assert f"\r\nhost: {host}\r\n" in requests[0]
    assert "\r\nx-headgate-address: 127.9.9.9:8080\r\n" in requests[0]


async def test_closed_connections_are_replaced(served: ServedMesh, proxy: Serve) -> None:
    await split_of(served, {"v1": 1})
    closing = response("v1").replace("\r\n", "\r\nconnection: close\r\n", 1)
    async with proxy([closing]):
        assert (await served.run("try", "website", "--number", "20", "--concurrency", "3")).code == 0


async def test_try_expects_all_requests_at_a_service_without_a_split(served: ServedMesh, proxy: Serve) -> None:
    for obj in objects.backed_service("website", ("", "127.0.0.1"), number=9090):
        await served.store.create(obj)
    async with proxy([response("website")]):
        ran = await served.run("try", "http://website:9090", "--number", "5")
    assert ran.code == 0
    assert "Service default/website (no split), port 9090: fits" in ran.out


def http_route(path: str, weights: Mapping[str, int], **filters: object) -> dict[str, object]:
    refs = [{"name": name, "port": 8080, "weight": weight} for name, weight in weights.items()]
    rule = {"matches": [{"path": {"value": path}}], "backendRefs": refs, **filters}
    parents = [{"group": "", "kind": "Service", "name": "website"}]
    metadata = {"name": "web", "namespace": "default"}
    spec = {"parentRefs": parents, "rules": [rule]}
    return {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": metadata, "spec": spec}


async def test_try_compares_with_the_weights_of_the_matching_route(served: ServedMesh, proxy: Serve) -> None:
    """The route takes precedence over a split of the same Service."""
    await split_of(served, {"v1": 1, "v2": 0})
    await served.store.create(http_route("/shop", {"v1": 3, "v2": 1}))
    async with proxy([*[response("v1")] * 3, response("v2")]):
        shop = await served.run("try", "http://website:8080/shop", "--number", "40")
        scripted = json.loads((await served.run("try", "http://website:8080/shop", "--number", "40", "-o", "json")).out)
    assert shop.code == 0
    assert "HTTPRoute default/web, rule 0, port 8080: fits; 40 x 200" in shop.out
    assert [line.split()[:4] for line in shop.out.splitlines()[1:3]] == [
        ["default/v1", "75.00%", "75.00%", "30"],
        ["default/v2", "25.00%", "25.00%", "10"],
    ]
    assert (scripted["route"], scripted["split"]) == ("HTTPRoute default/web, rule 0", None)
    async with proxy([response("", 404, "no such route")]):
        other = await served.run("try", "http://website:8080/other", "--number", "5")
    assert other.code == 1
    assert "no route matches, port 8080: 5 failed; 5 x 404" in other.out
    assert "BACKEND" not in other.out


async def test_a_timeout_of_a_request_is_a_failure(served: ServedMesh, proxy: Serve) -> None:
    await split_of(served, {"v1": 1})
    async with proxy([""]):
        ran = await served.run("try", "website", "--number", "2", "--timeout", "200ms")
    assert ran.code == 1
    assert "2 x no response: no response within 0.2 s; raise --timeout" in ran.out


async def test_observed_shares_are_dashes_if_no_backend_responds(served: ServedMesh, proxy: Serve) -> None:
    await split_of(served, {"v1": 3, "v2": 1})
    async with proxy([response(status=503)]):
        ran = await served.run("try", "website", "--number", "2")
    assert ran.code == 1
    rows = [line.split() for line in ran.out.splitlines()[1:3]]
    assert rows == [["default/v1", "75.00%", "-", "0", "-", "-"], ["default/v2", "25.00%", "-", "0", "-", "-"]]


async def test_an_unknown_service_or_port_is_an_error_before_any_request(served: ServedMesh, proxy: Serve) -> None:
    await split_of(served, {"v1": 1})
    async with proxy([response("v1")]) as requests:
        unknown, closed = await served.run("try", "missing"), await served.run("try", "http://website:81")
    assert (unknown.code, closed.code, requests) == (1, 1, [])
    assert "no Service has the host missing" in unknown.err
    ports = "its ports are 8080 (http), 9090 (http): did you mean http://website:8080/?"
    assert f"Service default/website has no port 81; {ports}" in closed.err


async def test_a_tcp_port_is_an_error_with_the_address_to_connect_to(served: ServedMesh, proxy: Serve) -> None:
    """R61. `try` sends only HTTP requests."""
    await served.store.create(
        objects.service("db", clusterIP="127.77.0.9", ports=[{"port": 3306, "appProtocol": "mysql"}])
    )
    await served.store.create(objects.service("cache", clusterIP="None", ports=[{"port": 6379, "name": "redis"}]))
    async with proxy([response("v1")]) as requests:
        addressed, headless = await served.run("try", "db"), await served.run("try", "cache")
    assert (addressed.code, headless.code, requests) == (1, 1, [])
    assert "port 3306 of Service default/db is tcp-server-first" in addressed.err
    assert "the port's appProtocol is mysql" in addressed.err
    assert "127.77.0.9:3306" in addressed.err
    assert "cache.default:6379 by CONNECT through the HTTP proxy" in headless.err


async def test_an_unreachable_proxy_exits_with_3(served: ServedMesh) -> None:
    await split_of(served, {"v1": 1})
    ran = await served.run("try", "website")
    assert ran.code == 3
    assert "can't be reached" in ran.err


async def test_try_uses_a_split_with_matches_only_for_matching_requests(served: ServedMesh, proxy: Serve) -> None:
    """R11, R12, D8."""
    await split_of(served, {"v1": 1})
    spec = {"matches": [{"name": "m", "headers": {"user-agent": ".*Firefox.*"}}]}
    metadata = {"name": "firefox", "namespace": "default"}
    group = {"apiVersion": "specs.smi-spec.io/v1alpha4", "kind": "HTTPRouteGroup", "metadata": metadata, "spec": spec}
    await served.store.create(group)
    split = objects.split("website", {"v2": 1}, name="z")
    split["spec"]["matches"] = [{"kind": "HTTPRouteGroup", "name": "firefox"}]
    for obj in objects.backed_service("v2", ("", "127.0.0.2")):
        await served.store.create(obj)
    await served.store.create(split)
    async with proxy([response("v2")]):
        fits = await served.run("try", "website", "--number", "5", "-H", "user-agent: Firefox")
        unmatched = await served.run("try", "website", "--number", "5")
    assert (fits.code, unmatched.code) == (0, 1)
    assert "TrafficSplit default/z" in fits.out
    assert "TrafficSplit default/website" in unmatched.out
