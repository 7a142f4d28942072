"""The API server of the cluster that headgate runs in, as far as reviews need it: creating an object, reading one."""

from collections.abc import Awaitable

from headgate.errors import HeadgateError, ProxyError
from headgate.kubernetes.client import Client, Refused
from headgate.resources.meta import Object

_CREATES = "headgate's ServiceAccount needs a ClusterRoleBinding to system:auth-delegator"
_READS = "headgate's ServiceAccount needs a RoleBinding to extension-apiserver-authentication-reader in kube-system"


class ApiServer:
    """Asks as headgate's own ServiceAccount."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, path: str, body: Object) -> Object:
        """Create an object and return what became of it. Raises ProxyError."""
        return await _answer(self._client.post(path, body), _CREATES)

    async def read(self, path: str) -> Object:
        """Return an object. Raises ProxyError."""
        return await _answer(self._client.get(path), _READS)


async def _answer(answer: Awaitable[Object], need: str) -> Object:
    try:
        return await answer
    except Refused as error:
        raise ProxyError(f"{error} ({error.status}): {need}") from error
    except HeadgateError as error:
        raise ProxyError(str(error)) from error
