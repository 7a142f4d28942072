"""The API server of the cluster that headgate runs in, as far as reviews need it: creating an object, reading one."""

import asyncio
import http.client
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from headgate.errors import ProxyError
from headgate.resources.meta import Object, Value

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S = 10.0
MOST_BYTES = 1 << 20
_NEEDS: Mapping[str, str] = {
    "POST": "headgate's ServiceAccount needs a ClusterRoleBinding to system:auth-delegator",
    "GET": "headgate's ServiceAccount needs a RoleBinding to extension-apiserver-authentication-reader in kube-system",
}


class ApiServer(Value, frozen=True, kw_only=True):
    """An API server: `url` is https://host:port; `roots` (PEM) and `token` are files, read anew for each request."""

    url: str
    roots: Path
    token: Path

    async def create(self, path: str, body: Object) -> Object:
        """Create an object and return what became of it. Raises ProxyError."""
        return await asyncio.to_thread(self._ask, "POST", path, msgspec.json.encode(body))

    async def read(self, path: str) -> Object:
        """Return an object. Raises ProxyError."""
        return await asyncio.to_thread(self._ask, "GET", path, None)

    def _ask(self, method: str, path: str, body: bytes | None) -> Object:
        what = f"{method} {path.rpartition('/')[2]}"
        try:
            status, content = self._call(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            raise ProxyError(f"the API server {self.url} can't be asked: {error}") from error
        if status in {401, 403}:
            raise ProxyError(f"the API server refuses {what} ({status}): {_NEEDS[method]}")
        if status not in {200, 201}:
            raise ProxyError(f"the API server answers {what} with {status}")
        try:
            return msgspec.json.decode(content, type=dict[str, object])
        except msgspec.DecodeError as error:
            raise ProxyError("the API server's answer is no JSON") from error

    def _call(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        where = urlsplit(self.url)
        headers = {
            "authorization": f"Bearer {self.token.read_text().strip()}",
            "content-type": "application/json",
            "accept": "application/json",
        }
        connection = http.client.HTTPSConnection(
            where.hostname or "",
            where.port,
            timeout=TIMEOUT_S,
            context=ssl.create_default_context(cafile=str(self.roots)),
        )
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(MOST_BYTES)
        finally:
            connection.close()


def in_cluster(environ: Mapping[str, str]) -> ApiServer:
    """Return the API server that a pod finds by its environment. Raises ProxyError outside of a cluster."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ProxyError("this is no pod of a cluster: KUBERNETES_SERVICE_HOST is not set")
    name = f"[{host}]" if ":" in host else host
    return ApiServer(url=f"https://{name}:{port}", roots=ACCOUNT / "ca.crt", token=ACCOUNT / "token")
