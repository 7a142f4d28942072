"""`headgate render`: configurations of other proxies from files and from the running mesh, and `--watch`."""

import asyncio
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import World, make_split, service
from tests.differential.backends import Member, ask
from tests.e2e.inbound_rig import Authority
from tests.ports import free_port
from tests.render.nginx.nginx_process import needs_nginx, running

REQUEST = b"GET / HTTP/1.1\r\nhost: website\r\n\r\n"


def slice_of(name: str, port: int, address: int) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"]}],
        "ports": [{"name": f"p{port}", "port": address}],
    }


def canary(port: int = 8080, first: int = 1, second: int = 2) -> list[dict[str, Any]]:
    return [
        *(service(name, port) for name in ("website", "website-v1", "website-v2")),
        slice_of("website-v1", port, first),
        slice_of("website-v2", port, second),
        make_split({"website-v1": 90, "website-v2": 10}),
    ]


def written(directory: Path, *objects: dict[str, Any]) -> str:
    path = directory / "in.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def test_render_prints_exact_weights_reduced_by_their_greatest_common_divisor(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    shown = run("render", "nginx", "-f", written(tmp_path, *canary()), "--service", "website")
    assert shown.code == 0
    assert "server 127.0.0.1:1 weight=9 max_fails=0;" in shown.out
    assert "server 127.0.0.1:2 weight=1 max_fails=0;" in shown.out


def test_render_names_backends_by_dns(run: Callable[..., Any], tmp_path: Path) -> None:
    shown = run("render", "nginx", "-f", written(tmp_path, *canary()), "--service", "website", "--endpoints", "dns")
    assert "server website-v1.default.svc.cluster.local:8080 weight=9 max_fails=0;" in shown.out


def test_render_reports_each_omission_and_fails_with_strict(run: Callable[..., Any], tmp_path: Path) -> None:
    *rest, split = canary()
    split["metadata"]["annotations"] = {"headgate.dev/sticky": "cookie:user"}
    file = written(tmp_path, *rest, split)
    shown = run("render", "nginx", "-f", file)
    omission = (
        "TrafficSplit default/website: port 8080: sticky by cookie user: Sticky nginx has another hash than headgate"
    )
    assert shown.code == 0
    assert omission in shown.err
    assert f"#   {omission}" in shown.out
    assert run("render", "nginx", "-f", file, "--strict").code == 1


def test_render_rejects_unknown_names(run: Callable[..., Any], tmp_path: Path) -> None:
    shown = run("render", "nginx", "-f", written(tmp_path, *canary()), "--service", "websiet")
    assert shown.code == 2
    assert "default/websiet has no routes; write one of: default/website, default/website-v1" in shown.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--watch"], "needs -o DIR"),
        (["--watch", "-o", "dir", "-f", "file"], "it excludes -f"),
        (["--reload", "true"], "needs --watch"),
        (["--listen", "localhost"], "'localhost' is not an IP address"),
    ],
)
def test_render_rejects_options_that_do_not_fit(run: Callable[..., Any], options: list[str], message: str) -> None:
    shown = run("render", "nginx", *options)
    assert shown.code == 2
    assert message in shown.err


async def test_render_reads_the_running_mesh(world: World) -> None:
    for obj in canary():
        await world.store.create(obj)
    shown = await world.run("render", "nginx", "--service", "website")
    assert "server 127.0.0.1:1 weight=9 max_fails=0;" in shown.out, shown.err


class Clients:
    """Clients that send requests until they are stopped, each over a new connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.counted: Counter[str | int] = Counter()
        self._running = True

    async def run(self) -> None:
        while self._running:
            self.counted += (await ask(("127.0.0.1", self.port), REQUEST, 1)).counted

    def stop(self) -> None:
        self._running = False


async def line_with(process: Any, text: str) -> str:
    """Return the next line of a command's messages with a text."""
    async with asyncio.timeout(30):
        while text not in (line := (await process.stderr.readline()).decode()):
            assert line, f"the command ended before it printed {text!r}"
    return line


@needs_nginx
async def test_watch_loses_no_request_while_weights_change(world: World, tmp_path: Path) -> None:
    members = [await Member(number).start() for number in (1, 2)]
    port, directory = free_port(), tmp_path / "nginx"
    for obj in canary(port, *(member.port for member in members)):
        await world.store.create(obj)
    watching = await world.start("render", "nginx", "--service", "website", "-o", str(directory), "--watch")
    try:
        assert "start it with `nginx -p" in await line_with(watching, "has the new configuration")
        async with running(directory), asyncio.TaskGroup() as tasks:
            clients = Clients(port)
            sending = [tasks.create_task(clients.run()) for _ in range(4)]
            for weight in range(1, 101):
                await world.store.update(make_split({"website-v1": 100 - weight, "website-v2": weight}))
                if weight % 10 == 5:  # so that nginx reloads during the changes, not only after them
                    await line_with(watching, "the proxy loads it")
            while str(members[0].port) in (directory / "nginx.conf").read_text():
                await line_with(watching, "the proxy loads it")
            while (await ask(("127.0.0.1", port), REQUEST, 1)).counted != {"member 2": 1}:
                pass  # the workers with the earlier weights accept connections until they end
            clients.stop()
            await asyncio.gather(*sending)
    finally:
        watching.terminate()
        await watching.wait()
    for member in members:
        member.close()
    assert set(clients.counted) == {"member 1", "member 2"}


def test_private_keys_are_written_to_private_files_and_never_printed(run: Callable[..., Any], tmp_path: Path) -> None:
    authority = Authority().issue("", "shop.example.com")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "shop", "namespace": "default"},
        "type": "kubernetes.io/tls",
        "data": {
            name: b64encode(text.encode()).decode()
            for name, text in (("tls.crt", authority.chain), ("tls.key", authority.key.reveal()))
        },
    }
    listener = {"name": "https", "port": 8443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "shop"}]}}
    gateway = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": "headgate", "listeners": [listener]},
    }
    file = written(tmp_path, secret, gateway)
    printed = run("render", "nginx", "-f", file, "--gateway", "edge")
    assert "ssl_certificate_key tls/default.shop.key;" in printed.out
    assert "PRIVATE KEY" not in printed.out + printed.err
    assert "2 files with certificates and keys left out; -o DIR writes them" in printed.err
    assert run("render", "nginx", "-f", file, "--gateway", "edge", "-o", str(tmp_path / "nginx")).code == 0
    key = tmp_path / "nginx" / "tls" / "default.shop.key"
    assert key.read_text() == authority.key.reveal()
    assert key.stat().st_mode & 0o777 == 0o600
