"""Every way of a kubeconfig to log in, before a real API server that says whom it takes the caller for."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import ADMIN, HEADGATE, NO_PEER, Cluster

from headgate.errors import HeadgateError, NotFound, Unavailable
from headgate.kubernetes.client import AccessDenied, Client, path_of
from headgate.kubernetes.credentials import InCluster, Kubeconfig
from headgate.resources.registry import KINDS

PARTS = (("certificate", "crt"), ("key", "key"))


class Configs:
    """Writes kubeconfigs for the cluster."""

    def __init__(self, directory: Path, cluster: Cluster) -> None:
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
        """Return a user whose credentials a program prints; it notes that it ran, and what it was told."""
        api = "client.authentication.k8s.io/v1"
        answer = json.dumps({"apiVersion": api, "kind": "ExecCredential", "status": status})
        path = self.directory / "log-in"
        path.write_text(
            f"#!/bin/sh\necho \"$WHO $1 $KUBERNETES_EXEC_INFO\" >> {path}.runs\n{then}\ncat <<'END'\n{answer}\nEND\n"
        )
        path.chmod(0o700)
        env = [{"name": "WHO", "value": "me"}]
        return {"exec": {"apiVersion": api, "command": "./log-in", "args": ["now"], "env": env}}

    @property
    def runs(self) -> list[str]:
        return (self.directory / "log-in.runs").read_text().splitlines()


@pytest.fixture
def configs(tmp_path: Path, cluster: Cluster) -> Configs:
    return Configs(tmp_path, cluster)


async def taken_for(client: Client) -> str:
    """Return whom the server takes the client for: it says so when it refuses."""
    with pytest.raises(AccessDenied, match="the API refuses") as raised:
        await client.get("/api/v1/nodes")
    return str(raised.value).partition('User "')[2].partition('"')[0]


async def who(*paths: Path) -> str:
    return await taken_for(Client(Kubeconfig(paths)))


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def test_a_token(configs):
    path = configs.write({"token": HEADGATE})
    assert await who(path) == "headgate"
    assert Kubeconfig([path]).namespace == "shop"


async def test_a_file_with_a_token_beside_the_kubeconfig(configs):
    (configs.directory / "token").write_text(f"{HEADGATE}\n")
    assert await who(configs.write({"tokenFile": "token"})) == "headgate"


async def test_a_token_that_was_replaced_is_read_again(configs):
    file = configs.directory / "token"
    file.write_text(HEADGATE)
    client = Client(Kubeconfig([configs.write({"tokenFile": "token"})]))
    assert await taken_for(client) == "headgate"
    client._login.api_key["BearerToken"] = "Bearer one-that-expired"
    file.write_text(NO_PEER)
    assert await taken_for(client) == "nobody"


async def test_a_client_certificate_in_files(configs, cluster):
    for name in ("certified.crt", "certified.key"):
        (configs.directory / name).write_bytes((cluster.root / name).read_bytes())
    path = configs.write({"client-certificate": "certified.crt", "client-key": "certified.key"})
    assert await who(path) == "certified"


async def test_a_client_certificate_as_data_leaves_no_key_behind(configs, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    user = {f"client-{part}-data": encoded(cluster.root / f"certified.{end}") for part, end in PARTS}
    path = configs.write(user, **{"certificate-authority-data": encoded(cluster.root / "api.crt")})
    assert await who(path) == "certified"
    assert list(tmp_path.iterdir()) == [path]


async def test_a_program_with_a_token_runs_once_for_many_requests(configs):
    client = Client(Kubeconfig([configs.write(configs.program({"token": HEADGATE}))]))
    for _ in range(3):
        assert await taken_for(client) == "headgate"
    (run,) = configs.runs
    assert run.startswith("me now {")
    assert json.loads(run.removeprefix("me now "))["kind"] == "ExecCredential"


async def test_a_program_with_a_certificate(configs, cluster):
    status = {f"client{part.title()}Data": (cluster.root / f"certified.{end}").read_text() for part, end in PARTS}
    assert await who(configs.write(configs.program(status))) == "certified"


async def test_a_program_that_fails_or_is_not_there_is_named(configs):
    path = configs.write(configs.program({"token": HEADGATE}, then="echo log in first >&2; exit 3"))
    with pytest.raises(HeadgateError, match=rf"{path} can't be used: exec: process returned 3. log in first"):
        await who(path)
    user = configs.program({})
    user["exec"] |= {"command": "no-such-program", "installHint": "Install it from the shop"}
    with pytest.raises(HeadgateError, match=r"No such file or directory: 'no-such-program'. Install it from the shop"):
        await who(configs.write(user))


async def test_a_user_without_credentials_is_anonymous(configs):
    assert await who(configs.write({})) == "system:anonymous"


async def test_a_user_acts_as_another_where_the_kubeconfig_says_so(configs):
    assert await who(configs.write({"token": ADMIN, "as": "jane", "as-user-extra": {"why": ["x"]}})) == "jane"
    path = configs.write({"token": ADMIN, "as": "jane", "as-groups": ["a", "system:masters"]})
    assert (await Client(Kubeconfig([path])).get("/api/v1/nodes"))["items"] == []


async def test_another_authority_gets_no_token_unless_the_user_wants_it_so(configs, cluster):
    other = {"certificate-authority": str(cluster.root / "users.crt")}
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED") as raised:
        await who(configs.write({"token": HEADGATE}, **other))
    assert HEADGATE not in str(raised.value)
    assert await who(configs.write({"token": HEADGATE}, **other, **{"insecure-skip-tls-verify": True})) == "headgate"


async def test_the_name_of_the_servers_certificate(configs):
    with pytest.raises(Unavailable, match=r"not valid for 'elsewhere\.example'"):
        await who(configs.write({"token": HEADGATE}, **{"tls-server-name": "elsewhere.example"}))
    assert await who(configs.write({"token": HEADGATE}, **{"tls-server-name": "localhost"})) == "headgate"


async def test_several_files_are_one_kubeconfig_and_the_first_entry_counts(configs, tmp_path):
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
    assert await who(*paths) == "headgate"


@pytest.fixture
async def proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """An HTTP proxy that knows CONNECT, and what was asked of it."""
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

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def test_a_proxy_on_the_way(configs, cluster, proxy, monkeypatch):
    url, asked = proxy
    assert await who(configs.write({"token": HEADGATE}, **{"proxy-url": url})) == "headgate"
    assert asked == [f"CONNECT 127.0.0.1:{cluster.port}"]
    monkeypatch.setenv("HTTPS_PROXY", url)  # `source STATE/env` sets one: it is not for the API of this machine
    assert await who(configs.write({"token": HEADGATE})) == "headgate"
    assert len(asked) == 1


async def test_the_account_of_a_pod(cluster):
    cluster.api(NO_PEER)
    assert await taken_for(Client(InCluster(cluster.environment, cluster.root / NO_PEER))) == "nobody"


async def test_objects_are_made_watched_changed_and_deleted(configs):
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
