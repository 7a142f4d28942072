"""`headgate render`: configurations of other proxies from files and from the running mesh, and `--watch`."""

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.authority import Authority
from tests.cli.conftest import ServedMesh
from tests.cli.rendered_proxies import Watched, assert_watch_loses_no_request, split_website, written
from tests.make import objects
from tests.ports import free_port
from tests.render.nginx.nginx_process import needs_nginx, running

from headgate.api.certificate import certificate_in
from headgate.settings import Settings
from headgate.standalone.apiserver.app import write_kubeconfig


def test_render_prints_exact_weights_reduced_by_their_greatest_common_divisor(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    shown = run("render", "nginx", "-f", written(tmp_path, *split_website()), "--service", "website")
    assert shown.code == 0
    assert "server 127.0.0.1:1 weight=9 max_fails=0;" in shown.out
    assert "server 127.0.0.1:2 weight=1 max_fails=0;" in shown.out


def test_render_names_backends_by_dns(run: Callable[..., Any], tmp_path: Path) -> None:
    shown = run(
        "render", "nginx", "-f", written(tmp_path, *split_website()), "--service", "website", "--endpoints", "dns"
    )
    assert "server website-v1.default.svc.cluster.local:8080 weight=9 max_fails=0;" in shown.out


def test_render_reports_each_omission_and_fails_with_strict(run: Callable[..., Any], tmp_path: Path) -> None:
    *rest, split = split_website()
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
    shown = run("render", "nginx", "-f", written(tmp_path, *split_website()), "--service", "websiet")
    assert shown.code == 2
    assert "default/websiet has no routes; write one of: default/website, default/website-v1" in shown.err


def test_render_rejects_manifests_with_mistakes(run: Callable[..., Any], tmp_path: Path) -> None:
    """Else the configuration would silently lack a split."""
    *rest, _ = split_website()
    shown = run("render", "nginx", "-f", written(tmp_path, *rest, objects.split("website", {"website-v1": -5})))
    assert (shown.code, shown.out) == (1, "")
    assert "spec.backends[0].weight" in shown.err
    assert "so there is no configuration" in shown.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--watch"], "needs --output-dir"),
        (["--watch", "--output-dir", "dir", "-f", "file"], "it excludes -f"),
        (["--watch", "--output-dir", "dir", "--strict"], "it excludes --watch"),
        (["--reload", "true"], "needs --watch"),
        (["--listen", "localhost"], "'localhost' is not an IP address"),
        (["--domain", "a; b", "-f", "file"], "'a; b' is not a DNS domain such as cluster.local"),
        (["--mtls", "strict"], "is for manifests (-f)"),
    ],
)
def test_render_rejects_options_that_do_not_fit(run: Callable[..., Any], options: list[str], message: str) -> None:
    shown = run("render", "nginx", *options)
    assert shown.code == 2
    assert message in shown.err


def test_render_compiles_manifests_with_the_given_settings(run: Callable[..., Any], tmp_path: Path) -> None:
    container = {"name": "web", "command": ["true"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "website"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        },
    }
    file = written(tmp_path, objects.service("website", 80, selector={"app": "web"}), deployment)
    shown = run(
        *("render", "nginx", "-f", file, "--domain", "corp.example", "--mtls", "strict", "--access", "deny"),
    )
    assert " website.default.svc.corp.example" in shown.out
    assert "Pod default/website: MutualTLS it accepts mutual TLS only" in shown.err
    assert "Pod default/website: Access it allows only callers with an identity" in shown.err


@pytest.mark.parametrize("settings", [Settings(domain="corp.example")])
async def test_render_reads_the_running_mesh_and_its_settings(served: ServedMesh, settings: Settings) -> None:
    for obj in split_website():
        await served.store.create(obj)
    shown = await served.run("render", "nginx", "--service", "website")
    assert "server 127.0.0.1:1 weight=9 max_fails=0;" in shown.out, shown.err
    assert f" website.default.svc.{settings.domain}" in shown.out


def test_render_ends_with_an_error_if_the_api_cannot_be_reached(run: Callable[..., Any], tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, f"https://127.0.0.1:{free_port()}", "token", certificate_in(tmp_path))
    shown = run("render", "nginx", "--kubeconfig", str(kubeconfig))
    assert (shown.code, shown.out) == (3, "")
    assert shown.err.startswith("error: no API answers at https://127.0.0.1:")


@needs_nginx
async def test_watch_loses_no_request_while_weights_change(served: ServedMesh, tmp_path: Path) -> None:
    await assert_watch_loses_no_request(
        served, Watched("nginx", "`nginx -p", "nginx.conf", running), tmp_path / "nginx"
    )


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
    assert "2 files with certificates and keys left out; --output-dir DIR writes them" in printed.err
    assert run("render", "nginx", "-f", file, "--gateway", "edge", "--output-dir", str(tmp_path / "nginx")).code == 0
    key = tmp_path / "nginx" / "tls" / "default.shop.key"
    assert key.read_text() == authority.key.reveal()
    assert key.stat().st_mode & 0o777 == 0o600
