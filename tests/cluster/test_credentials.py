"""Every kind of credentials in a kubeconfig, tested by the user that a real API server identifies."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.api_server import ADMIN, HEADGATE, UNPRIVILEGED, KubeApiServer
from tests.stream_server import stream_server

from headgate.errors import HeadgateError, NotFound, Unavailable
from headgate.kubernetes.client import AccessDenied, Client, path_of
from headgate.kubernetes.credentials import Kubeconfig
from headgate.resources.registry import KINDS

PARTS = (("certificate", "crt"), ("key", "key"))


class KubeconfigWriter:
    """A writer of kubeconfigs for the cluster."""

    def __init__(self, directory: Path, cluster: KubeApiServer) -> None:
        self.directory = directory
        self.cluster: dict[str, Any] = {"server": cluster.url, "certificate-authority": str(cluster.root / "api.crt")}

    def write(self, user: dict[str, Any], name: str = "config", **cluster: Any) -> Path:
        path = self.directory / name
        content = {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me", "namespace": "shop"}}],
            "clusters": [{"name": "it", "cluster": self.cluster | cluster}],
            "users": [{"name": "me", "user": user}],
        }
        path.write_text(json.dumps(content))
        return path

    def program(self, status: dict[str, str], then: str = "") -> dict[str, Any]:
        """Return a user with a credentials program, which records its runs and its environment."""
        api = "client.authentication.k8s.io/v1"
        answer = json.dumps({"apiVersion": api, "kind": "ExecCredential", "status": status})
        path = self.directory / "log-in"
        path.write_text(
            f"#!/bin/sh\necho \"$CALLER $1 $KUBERNETES_EXEC_INFO\" >> {path}.runs\n{then}\ncat <<'END'\n{answer}\nEND\n"
        )
        path.chmod(0o700)
        env = [{"name": "CALLER", "value": "me"}]
        return {"exec": {"apiVersion": api, "command": "./log-in", "args": ["now"], "env": env}}

    @property
    def runs(self) -> list[str]:
        return (self.directory / "log-in.runs").read_text().splitlines()


@pytest.fixture
def configs(tmp_path: Path, cluster: KubeApiServer) -> KubeconfigWriter:
    return KubeconfigWriter(tmp_path, cluster)


async def identified_user(client: Client) -> str:
    """Return the user that the server identified, from the server's message about a denied request."""
    with pytest.raises(AccessDenied, match="the API refuses") as raised:
        await client.get("/api/v1/nodes")
    return str(raised.value).partition('User "')[2].partition('"')[0]


async def user_of(*paths: Path) -> str:
    return await identified_user(Client(Kubeconfig(paths)))


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def test_a_token_authenticates(configs):
    path = configs.write({"token": HEADGATE})
    assert await user_of(path) == "headgate"
    assert Kubeconfig([path]).namespace == "shop"


async def test_a_relative_token_file_authenticates(configs):
    (configs.directory / "token").write_text(f"{HEADGATE}\n")
    assert await user_of(configs.write({"tokenFile": "token"})) == "headgate"


async def test_a_replaced_token_file_is_read_again(configs):
    file = configs.directory / "token"
    file.write_text(HEADGATE)
    client = Client(Kubeconfig([configs.write({"tokenFile": "token"})]))
    assert await identified_user(client) == "headgate"
    client._connection.api_key["BearerToken"] = "Bearer one-that-expired"
    file.write_text(UNPRIVILEGED)
    assert await identified_user(client) == "unprivileged"


async def test_a_client_certificate_in_files_authenticates(configs, cluster):
    for name in ("certified.crt", "certified.key"):
        (configs.directory / name).write_bytes((cluster.root / name).read_bytes())
    path = configs.write({"client-certificate": "certified.crt", "client-key": "certified.key"})
    assert await user_of(path) == "certified"


async def test_a_client_certificate_as_data_leaves_no_key_file_behind(configs, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    user = {f"client-{part}-data": encoded(cluster.root / f"certified.{end}") for part, end in PARTS}
    path = configs.write(user, **{"certificate-authority-data": encoded(cluster.root / "api.crt")})
    assert await user_of(path) == "certified"
    assert list(tmp_path.iterdir()) == [path]


async def test_a_credentials_program_runs_once_for_many_requests(configs):
    client = Client(Kubeconfig([configs.write(configs.program({"token": HEADGATE}))]))
    for _ in range(3):
        assert await identified_user(client) == "headgate"
    (run,) = configs.runs
    assert run.startswith("me now {")
    assert json.loads(run.removeprefix("me now "))["kind"] == "ExecCredential"


async def test_a_credentials_program_may_return_a_certificate(configs, cluster):
    status = {f"client{part.title()}Data": (cluster.root / f"certified.{end}").read_text() for part, end in PARTS}
    assert await user_of(configs.write(configs.program(status))) == "certified"


async def test_the_error_for_a_failed_or_missing_program_names_the_program(configs):
    path = configs.write(configs.program({"token": HEADGATE}, then="echo log in first >&2; exit 3"))
    with pytest.raises(HeadgateError, match=rf"{path} can't be used: exec: process returned 3. log in first"):
        await user_of(path)
    user = configs.program({})
    user["exec"] |= {"command": "no-such-program", "installHint": "Install it from the shop"}
    with pytest.raises(HeadgateError, match=r"No such file or directory: 'no-such-program'. Install it from the shop"):
        await user_of(configs.write(user))


async def test_a_user_without_credentials_is_anonymous(configs):
    assert await user_of(configs.write({})) == "system:anonymous"


async def test_a_kubeconfig_can_impersonate_another_user(configs):
    assert await user_of(configs.write({"token": ADMIN, "as": "jane", "as-user-extra": {"why": ["x"]}})) == "jane"
    path = configs.write({"token": ADMIN, "as": "jane", "as-groups": ["a", "system:masters"]})
    assert (await Client(Kubeconfig([path])).get("/api/v1/nodes"))["items"] == []


async def test_a_server_with_an_untrusted_certificate_gets_no_token_unless_insecure(configs, cluster):
    other = {"certificate-authority": str(cluster.root / "users.crt")}
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED") as raised:
        await user_of(configs.write({"token": HEADGATE}, **other))
    assert HEADGATE not in str(raised.value)
    assert (
        await user_of(configs.write({"token": HEADGATE}, **other, **{"insecure-skip-tls-verify": True})) == "headgate"
    )


async def test_tls_server_name_is_verified_instead_of_the_host(configs):
    with pytest.raises(Unavailable, match=r"not valid for 'elsewhere\.example'"):
        await user_of(configs.write({"token": HEADGATE}, **{"tls-server-name": "elsewhere.example"}))
    assert await user_of(configs.write({"token": HEADGATE}, **{"tls-server-name": "localhost"})) == "headgate"


async def test_several_kubeconfigs_are_merged_and_the_first_entry_takes_precedence(configs, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "token").write_text(HEADGATE)
    first = json.loads(configs.write({}).read_text())
    second = json.loads(configs.write({"tokenFile": "token"}).read_text())
    del first["users"]
    second["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    second["current-context"] = "another"
    paths = [tmp_path / "a" / "config", tmp_path / "missing", tmp_path / "b" / "config"]
    paths[0].write_text(json.dumps(first))
    paths[2].write_text(json.dumps(second))
    assert await user_of(*paths) == "headgate"


@pytest.fixture
async def proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """Run an HTTP proxy that supports CONNECT; yield its URL and its requests."""
    asked: list[str] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            while data := await reader.read(1 << 16):
                writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head.partition(" HTTP")[0])
        host, _, port = head.split()[1].partition(":")
        there, back = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pump(reader, back), pump(there, writer))

    async with stream_server(serve) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def test_a_client_uses_the_proxy_url_of_the_kubeconfig(configs, cluster, proxy, monkeypatch):
    url, asked = proxy
    assert await user_of(configs.write({"token": HEADGATE}, **{"proxy-url": url})) == "headgate"
    assert asked == [f"CONNECT 127.0.0.1:{cluster.port}"]
    monkeypatch.setenv("HTTPS_PROXY", url)  # not used for API servers on loopback
    assert await user_of(configs.write({"token": HEADGATE})) == "headgate"
    assert len(asked) == 1


async def test_a_pod_authenticates_by_its_service_account(cluster):
    assert await identified_user(cluster.client(UNPRIVILEGED)) == "unprivileged"


async def test_objects_are_created_watched_patched_and_deleted(configs):
    client = Client(Kubeconfig([configs.write({"token": ADMIN})]))
    kind = next(kind for kind in KINDS if kind.kind == "ConfigMap")
    created = await client.create(kind, {"metadata": {"namespace": "default", "name": "one"}, "data": {"a": "b"}})
    since = created["metadata"]["resourceVersion"]
    async with contextlib.aclosing(client.watch(kind, "default", resourceVersion=since)) as steps:
        await client.merge(path_of(kind, "default", "one"), {"data": {"a": "c"}})
        await client.delete(kind, created)
        seen = [await anext(steps) for _ in range(2)]
    assert [(step.type, step.object["data"]["a"]) for step in seen] == [("MODIFIED", "c"), ("DELETED", "c")]
    with pytest.raises(NotFound, match='configmaps "one" not found'):
        await client.get(path_of(kind, "default", "one"))
