"""Kubeconfigs without a cluster: OIDC with a fake identity provider, mistakes, and no secrets in messages."""

import base64
import json
import ssl
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from tests.api.request_header_ca import FrontProxyAuthority

from headgate.errors import HeadgateError, ProxyError, Unavailable
from headgate.kubernetes.credentials import InCluster, Kubeconfig

SECRET = "a-secret-that-no-message-may-say"


def jwt(name: str, expires: float) -> str:
    parts = ({"alg": "RS256"}, {"sub": name, "exp": expires})
    return ".".join(
        [*(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), "s"]
    )


def write(path: Path, user: Any, **cluster: Any) -> Path:
    content = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "there", "user": "me"}}],
        "clusters": [{"name": "there", "cluster": {"server": "https://127.0.0.1:1"} | cluster}],
        "users": [{"name": "me", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    path.chmod(0o600)
    return path


class Provider:
    """A fake identity provider that refreshes tokens, over TLS."""

    def __init__(self, url: str, authority: bytes) -> None:
        self.url = url
        self.asked: list[dict[str, str]] = []
        self.authority = base64.b64encode(authority).decode()

    def user(self, token: str, **more: str) -> dict[str, Any]:
        config = {
            "idp-issuer-url": self.url,
            "client-id": "headgate",
            "client-secret": SECRET,
            "id-token": token,
            "refresh-token": "refresh-1",
            "idp-certificate-authority-data": self.authority,
        }
        return {"auth-provider": {"name": "oidc", "config": config | more}}


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    authority = FrontProxyAuthority()
    directory = tmp_path / "provider"
    directory.mkdir()
    certificate, key = authority.write(directory, "provider", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def known(_: web.Request) -> web.Response:
        return web.json_response({"token_endpoint": f"{found.url}/token"})

    async def renew(request: web.Request) -> web.Response:
        found.asked.append({name: str(value) for name, value in (await request.post()).items()})
        return web.json_response({"id_token": jwt("new", time.time() + 3600), "refresh_token": "refresh-2"})

    app = web.Application()
    app.add_routes([web.get("/.well-known/openid-configuration", known), web.post("/token", renew)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    found = Provider(f"https://localhost:{runner.addresses[0][1]}", authority.pem)
    yield found
    await runner.cleanup()


async def test_an_oidc_token_is_used_until_it_expires(tmp_path: Path, provider: Provider) -> None:
    token = jwt("me", time.time() + 3600)
    found = await Kubeconfig([write(tmp_path / "config", provider.user(token))]).connect()
    assert found.headers() == [("authorization", f"Bearer {token}")]
    assert provider.asked == []


async def test_an_expired_oidc_token_is_refreshed_and_written_back(tmp_path: Path, provider: Provider) -> None:
    path = write(tmp_path / "config", provider.user(jwt("me", time.time() - 1)), **{"certificate-authority": "ca.crt"})
    (tmp_path / "ca.crt").write_bytes(FrontProxyAuthority().pem)
    ((_, token),) = (await Kubeconfig([path]).connect()).headers()
    assert provider.asked == [{"grant_type": "refresh_token", "refresh_token": "refresh-1"}]
    content = yaml.safe_load(path.read_text())
    config = content["users"][0]["user"]["auth-provider"]["config"]
    assert (f"Bearer {config['id-token']}", config["refresh-token"]) == (token, "refresh-2")
    assert content["clusters"][0]["cluster"]["certificate-authority"] == "ca.crt"  # nothing else has changed
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await Kubeconfig([path]).connect()
    assert len(provider.asked) == 1


@pytest.mark.parametrize("named", [True, False])
async def test_a_provider_without_a_trusted_certificate_gets_no_secret(
    tmp_path: Path, provider: Provider, named: bool
) -> None:
    provider.authority = base64.b64encode(FrontProxyAuthority().pem).decode()
    user = provider.user(jwt("me", 0))
    if not named:  # then only the system's roots are trusted
        del user["auth-provider"]["config"]["idp-certificate-authority-data"]
    path = write(tmp_path / "config", user)
    with pytest.raises(
        HeadgateError, match=rf"the kubeconfig {path} can't be used: .*CERTIFICATE_VERIFY_FAILED"
    ) as raised:
        await Kubeconfig([path]).connect()
    assert provider.asked == []
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"token": SECRET, "client-certificate": "missing.crt"}, "missing.crt"),
        ({"token": SECRET, "client-certificate-data": "%", "client-key-data": "%"}, "can't be used"),
        ({"token": SECRET, "exec": {"command": "x"}}, "missing key 'apiVersion'"),
        ({"token": SECRET, "exec": {"apiVersion": "v1", "command": "x", "args": SECRET}}, "can't be used"),
        (
            {"token": SECRET, "auth-provider": {"name": "oidc", "config": {"id-token": SECRET}}},
            "3 period-delimited parts",
        ),
        ({"token": SECRET, "auth-provider": {"name": "oidc", "config": {}}}, "refresh-token"),
        ({"token": SECRET, "auth-provider": {"name": "oidc"}}, "missing configuration"),
        ({"tokenFile": "missing"}, "missing"),
    ],
)
async def test_the_error_for_an_unusable_user_contains_no_secrets(tmp_path: Path, user: Any, message: str) -> None:
    path = write(tmp_path / "config", user)
    with pytest.raises(HeadgateError, match=rf"the kubeconfig {path} can't be used: ") as raised:
        await Kubeconfig([path]).connect()
    assert message in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "is not YAML"),
        ("", "is empty or not a YAML object"),
        ("users: [1, {user: null}]", "has no current context"),
        ("current-context: it", "has no context 'it'"),
        ("{current-context: it, contexts: [{name: it, context: {cluster: a}}]}", "has no cluster 'a'"),
        (
            "{current-context: it, contexts: [{name: it, context: {cluster: a}}], clusters: [{name: a, cluster: {}}]}",
            "names no server URL in its cluster",
        ),
    ],
)
def test_the_error_for_an_unusable_kubeconfig_names_the_file(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(HeadgateError, match=message) as raised:
        Kubeconfig([path])
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"server": "https://127.0.0.1:99999"}, "names no server URL"),
        ({"server": "127.0.0.1:6443"}, "names no server URL"),
        ({"proxy-url": "socks5://127.0.0.1:1080"}, "names a proxy-url that is not http or https"),
    ],
)
def test_an_unusable_server_url_is_an_error(tmp_path: Path, cluster: dict[str, str], message: str) -> None:
    with pytest.raises(HeadgateError, match=message):
        Kubeconfig([write(tmp_path / "config", {}, **cluster)])


async def test_a_token_that_can_not_be_written_back_is_an_error(tmp_path: Path, provider: Provider) -> None:
    path = write(tmp_path / "config", provider.user(jwt("me", 0)))
    config = Kubeconfig([path])
    path.unlink()
    path.mkdir()  # where even root can't write a file
    with pytest.raises(HeadgateError, match=rf"the kubeconfig {path} can't be used: .*Is a directory"):
        await config.connect()


def test_a_missing_file_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"the kubeconfig .*/missing does not exist"):
        Kubeconfig([tmp_path / "missing"])


async def test_a_pod_finds_its_api_server_by_its_environment(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(FrontProxyAuthority().pem)
    (tmp_path / "token").write_text("a-token\n")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = await InCluster(environment, tmp_path).connect()
    assert found.host == "https://[fd00::1]:6443"
    assert found.headers() == [("authorization", "Bearer a-token")]
    with pytest.raises(
        ProxyError, match="headgate does not run in a pod with a ServiceAccount: Service host/port is not set"
    ):
        await InCluster({}, tmp_path).connect()
