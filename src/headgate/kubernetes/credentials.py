"""The address of an API server and the credentials for it, from kubeconfigs or from a pod's ServiceAccount.

kubernetes_asyncio reads them; its API classes are not used (docs/internals/adr/0005-http-clients.md).
"""

import copy
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from headgate.atomic_file import write_private
from headgate.errors import HeadgateError, ProxyError, Unavailable
from headgate.kubernetes.connection import Connection

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LIBRARY = "kubernetes_asyncio"
_FILES = {"clusters": ("certificate-authority",), "users": ("client-certificate", "client-key", "tokenFile")}
_FAILURES = (
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)  # errors that the library raises for a malformed kubeconfig
_IMPERSONATION = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid", "as-groups": "Impersonate-Group"}


class Kubeconfig:
    """A context of one or more kubeconfigs, by default the current one.

    If several files have an entry of the same name, the first one counts. Raises Unavailable if no file exists, and
    HeadgateError with the file and what is wrong in it.
    """

    def __init__(self, paths: Sequence[Path], context_name: str = "") -> None:
        self._files = {path: _read(path) for path in [path for path in paths if path.exists()] or paths[:1]}
        self.name = f"the kubeconfig {':'.join(map(str, self._files))}"
        self._config = _merged(self._files)
        self.context = context_name or str(self._config["current-context"])
        context = self._named("contexts", self.context)
        self._names = {"cluster": context.get("cluster"), "user": context.get("user") or "anonymous"}
        self._cluster = self._named("clusters", self._names["cluster"])
        self._user = self._named("users", self._names["user"]) if context.get("user") else {}
        self.namespace = str(context.get("namespace") or "default")
        self.server = str(self._cluster.get("server"))
        if not _is_url(self.server):
            raise HeadgateError(f"{self.name} names no server URL in its cluster")
        if self._cluster.get("proxy-url") and not _is_url(self._cluster["proxy-url"]):
            raise HeadgateError(f"{self.name} names a proxy-url that is not http or https")
        self._library = _library()

    async def connect(self) -> Connection:
        """Return the connection settings: run the credentials program, refresh the OIDC token, read the certificate files."""
        library, connection, before = self._library, Connection(), copy.deepcopy(self._files)
        only = {
            "current-context": "current",
            "contexts": [{"name": "current", "context": self._names}],
            "clusters": [{"name": self._names["cluster"], "cluster": self._cluster}],
            "users": [{"name": self._names["user"], "user": self._user}],
        }
        try:
            await library.KubeConfigLoader(only, config_base_path="").load_and_set(connection)
            connection.read_certificates()
            self._keep(before)
        except FileNotFoundError as error:
            hint = str((self._user.get("exec") or {}).get("installHint") or "")
            raise HeadgateError(f"{self.name} can't be used: {error}" + f". {hint}" * bool(hint)) from error
        except library.FAILURES as error:
            raise HeadgateError(f"{self.name} can't be used: {error or type(error).__name__}") from error
        finally:
            library._cleanup_temp_files()  # noqa: SLF001 - OpenSSL reads keys from files only
        connection.impersonated = _impersonated(self._user)
        return connection

    def _named(self, part: str, name: object) -> dict[str, Any]:
        """Return the context, cluster or user with a name; `part` is `contexts`, `clusters` or `users`."""
        if name in self._config[part]:
            return dict(self._config[part][name].get(part.removesuffix("s")) or {})
        what = f"{part.removesuffix('s')} {name!r}" if name else f"current {part.removesuffix('s')}"
        names = ", ".join(map(str, self._config[part]))
        hint = f"it has {names}" if name and names else "correct it, or name another with --kubeconfig"
        raise HeadgateError(f"{self.name} has no {what}; {hint}")

    def _keep(self, before: Mapping[Path, Any]) -> None:
        """Write refreshed tokens back to their file, as kubectl does: the old refresh token may be revoked."""
        for path, content in self._files.items():
            if content != before[path]:
                write_private(path.resolve(), yaml.safe_dump(content, sort_keys=False).encode())


class InCluster(NamedTuple):
    """The ServiceAccount of the pod in which headgate runs."""

    environ: Mapping[str, str]
    account: Path = ACCOUNT
    namespace: str = "default"

    async def connect(self) -> Connection:
        """Return the connection settings from the pod's environment and files. Raises ProxyError outside a cluster."""
        connection = Connection()
        try:
            loader = _library().InClusterConfigLoader(
                token_filename=str(self.account / "token"),
                cert_filename=str(self.account / "ca.crt"),
                try_refresh_token=False,
                environ=self.environ,
            )
            loader.load_and_set(connection)
            connection.read_certificates()
        except _library().FAILURES as error:
            raise ProxyError(f"headgate does not run in a pod with a ServiceAccount: {error}") from error
        return connection


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    except FileNotFoundError as error:
        raise Unavailable(f"the kubeconfig {path} does not exist") from error
    except OSError as error:
        raise HeadgateError(f"the kubeconfig {path} can't be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise HeadgateError(f"the kubeconfig {path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise HeadgateError(f"the kubeconfig {path} is empty or not a YAML object; name another with --kubeconfig")
    return content


def _is_url(text: object) -> bool:
    try:
        parts = urlsplit(str(text))
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number, or too large
        return False


def _merged(files: Mapping[Path, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the clusters, contexts and users of all kubeconfigs by name, with absolute paths of files."""
    merged: dict[str, Any] = {"clusters": {}, "contexts": {}, "users": {}}
    for path, content in files.items():
        for part, entries in merged.items():
            for entry in content.get(part) or ():
                if isinstance(entry, dict):
                    entries.setdefault(entry.get("name"), _placed(entry, part, path.parent.absolute()))
    current = (content.get("current-context") for content in files.values())
    return merged | {"current-context": next(filter(None, current), "")}


def _placed(entry: Mapping[str, Any], part: str, directory: Path) -> dict[str, Any]:
    """Return a copy of an entry with absolute paths: relative ones refer to the directory of the kubeconfig."""
    kind = part.removesuffix("s")
    body = dict(entry.get(kind) or {})
    body |= {name: str(directory / body[name]) for name in _FILES.get(part, ()) if body.get(name)}
    program = body.get("exec")
    if isinstance(program, dict) and "/" in str(program.get("command")):
        body["exec"] = program | {"command": str(directory / program["command"])}
    return {kind: body}


def _impersonated(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    headers = [(header, user[name]) for name, header in _IMPERSONATION.items() if user.get(name)]
    extra = (user.get("as-user-extra") or {}).items()
    headers += [(f"Impersonate-Extra-{name}", values) for name, values in extra]
    lists = [(header, value if isinstance(value, list) else [value]) for header, value in headers]
    return tuple((header, str(text)) for header, values in lists for text in values)


@cache
def _library() -> Any:
    """Import the kubeconfig loader alone. Importing its package would import 1,300 modules of API classes."""
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == _LIBRARY}
    try:
        for part in ("", ".client", ".config"):
            spec = find_spec(_LIBRARY + part)
            if spec is None:
                raise ImportError(f"{_LIBRARY}{part} is not installed")
            sys.modules[spec.name] = module_from_spec(spec)
        client: Any = sys.modules[f"{_LIBRARY}.client"]
        client.ApiClient = client.Configuration = Connection
        kube_config: Any = import_module(f"{_LIBRARY}.config.kube_config")
        kube_config.InClusterConfigLoader = import_module(f"{_LIBRARY}.config.incluster_config").InClusterConfigLoader
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == _LIBRARY]:
            del sys.modules[name]
        sys.modules |= kept
    from headgate.kubernetes.transport import FAILURES, provider_session  # noqa: PLC0415 - aiohttp takes 0.2 s

    kube_config.logger.disabled = True  # the library also logs the errors that it raises
    kube_config.OpenIDRequestor._client_session = provider_session  # noqa: SLF001 - the library's own session does not verify certificates
    kube_config.FAILURES = (kube_config.ConfigException, *FAILURES, *_FAILURES)
    return kube_config
