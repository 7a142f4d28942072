"""A client of the Kubernetes API for tests. It keeps one connection open: a call of kubectl takes 60 ms of CPU time."""

import base64
import contextlib
import http.client
import json
import ssl
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import yaml

from headgate.kinds import NAMES, KindNames, names_of

PATIENCE_S = 60.0
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


class Access(NamedTuple):
    """The address of an API server, and what authenticates it and the client: a certificate in `tls`, or a token in `headers`."""

    host: str
    port: int
    tls: ssl.SSLContext
    headers: Mapping[str, str]


def access(kubeconfig: Path) -> Access:
    """Return what a kubeconfig with one cluster and one user has."""
    content = yaml.safe_load(kubeconfig.read_text())
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    host, _, port = cluster["server"].removeprefix("https://").rpartition(":")
    tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    if "token" in user:
        return Access(host, int(port), tls, {"authorization": f"Bearer {user['token']}"})
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
        file.flush()
        tls.load_cert_chain(file.name)
    return Access(host, int(port), tls, {})


class Api:
    """A client of the API server in a kubeconfig. Threads may share it; it makes one call at a time."""

    def __init__(self, kubeconfig: Path) -> None:
        found = access(kubeconfig)
        self._connection = http.client.HTTPSConnection(found.host, found.port, timeout=PATIENCE_S, context=found.tls)
        self._headers = found.headers
        self._turn = threading.Lock()
        self._groups: dict[str, tuple[str, ...]] = {
            "": ("v1",)
        }  # the apiVersions of each group; the preferred one is first
        self._kinds: dict[KindNames, str] = {}
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    def call(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Any:
        """Make a call and return the response. Raises AssertionError if the call fails."""
        return json.loads(self._answer(method, path, body, content))

    def logs(self, pod: str, namespace: str = "default") -> str:
        """Return the log of a pod with one container."""
        return self._answer("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log").decode()

    def _answer(self, method: str, path: str, body: Any = None, content: str = "application/json") -> bytes:
        headers = {**self._headers, "content-type": content}
        sent = None if body is None else json.dumps(body)
        with self._turn:
            try:
                status, text = self._exchange(method, path, sent, headers)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                raise AssertionError(f"{method} {path}: {error!r}") from error
        assert status < 300, f"{method} {path}: {status} {text.decode()}"
        return text

    def _exchange(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        with contextlib.suppress(
            ConnectionError, ssl.SSLEOFError
        ):  # the server closes connections that are idle for 5 s
            return self._once(method, path, body, headers)
        self._connection.close()
        return self._once(method, path, body, headers)

    def _once(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        self._connection.request(method, path, body, dict(headers))
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def get(self, what: str, namespace: str = "default", selector: str = "") -> Any:
        """Return an object (`kind/name`) or a list of them (`kind`), with kubectl's names of kinds.

        A kind that headgate does not know is written as `RESOURCE.VERSION.GROUP`; it is cluster-scoped without a namespace.
        """
        query = f"?{urlencode({'labelSelector': selector})}" if selector else ""
        return self.call("GET", f"{self._place(what, namespace)}{query}")

    def delete(self, what: str, namespace: str = "default") -> None:
        """Delete an object (`kind/name`)."""
        self.call("DELETE", self._place(what, namespace))

    def patch(self, what: str, change: Mapping[str, Any], namespace: str = "default") -> Any:
        """Merge a change into an object (`kind/name`), and return the object."""
        return self.call("PATCH", self._place(what, namespace), change, MERGE)

    def apply(self, obj: Mapping[str, Any], namespace: str = "default") -> Any:
        """Apply an object by server-side apply, and return it."""
        group, metadata = obj["apiVersion"].rpartition("/")[0], obj["metadata"]
        names = names_of(obj["kind"], group or None)  # the oldest apiVersion of TrafficSplit has no group
        path = self._path(names, obj["apiVersion"], metadata.get("namespace", namespace))
        return self.call("PATCH", f"{path}/{metadata['name']}?fieldManager=tests&force=true", obj, APPLY)

    def collection(self, obj: Mapping[str, Any]) -> str:
        """Return the path of the collection to which an object of any kind belongs."""
        version, kind, metadata = obj["apiVersion"], obj["kind"], obj["metadata"]
        root = f"/{'apis' if '/' in version else 'api'}/{version}"
        if (version, kind) not in self._resources:
            listed = [item for item in self.call("GET", root)["resources"] if "/" not in item["name"]]
            served = {item["kind"]: (item["name"], item["namespaced"]) for item in listed}
            self._resources[version, kind] = served[kind]
        plural, namespaced = self._resources[version, kind]
        return (
            f"{root}/namespaces/{metadata.get('namespace') or 'default'}/{plural}" if namespaced else f"{root}/{plural}"
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _place(self, what: str, namespace: str) -> str:
        word, _, name = what.partition("/")
        if "." in word:
            plural, version, group = word.split(".", 2)
            place = f"/apis/{group}/{version}" if group else f"/api/{version}"
            return "/".join(filter(None, (place, namespace and f"namespaces/{namespace}", plural, name)))
        names = next(names for names in NAMES if word in names.words)
        return self._path(names, self._served_version(names), namespace) + (f"/{name}" if name else "")

    def _served_version(self, names: KindNames) -> str:
        """Return the first apiVersion that has a kind, beginning with the preferred one of its group."""
        if names not in self._kinds:
            served = next((item for item in self._versions(names.group) if self._serves(item, names)), "")
            assert served, f"the API server has no {names.plural} in the group {names.group}"
            self._kinds[names] = served
        return self._kinds[names]

    def _serves(self, version: str, names: KindNames) -> bool:
        found = self.call("GET", f"/apis/{version}" if names.group else f"/api/{version}")
        return any(item["name"] == names.plural for item in found["resources"])

    def preferred_version(self, group: str) -> str:
        """Return the apiVersion of a group that the API server prefers."""
        return self._versions(group)[0]

    def _versions(self, group: str) -> tuple[str, ...]:
        if group not in self._groups:
            found = self.call("GET", f"/apis/{group}")
            versions = (found["preferredVersion"], *found["versions"])
            self._groups[group] = tuple(dict.fromkeys(item["groupVersion"] for item in versions))
        return self._groups[group]

    @staticmethod
    def _path(names: KindNames, version: str, namespace: str) -> str:
        root = f"/{'apis' if '/' in version else 'api'}/{version}"
        return f"{root}/namespaces/{namespace}/{names.plural}" if names.namespaced else f"{root}/{names.plural}"
