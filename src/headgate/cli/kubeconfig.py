"""The kubeconfig that leads to an API server: which one counts, and what it says."""

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from headgate.cli.instance import START_HINT, instance
from headgate.errors import HeadgateError, Unavailable
from headgate.resources.meta import Value


class Access(Value, frozen=True, kw_only=True):
    """How to call an API server. `ca` is PEM text, empty for the system's; `namespace` is the context's."""

    server: str
    token: str = ""
    ca: str = ""
    verify: bool = True
    namespace: str = "default"


def find_access(kubeconfig: Path | None, state: Path | None, environ: Mapping[str, str]) -> Access:
    """Return how to reach the API: by --kubeconfig, else --state, else $KUBECONFIG, else `.headgate`.

    Raises Unavailable when none of them leads anywhere, HeadgateError when the kubeconfig can't be used.
    """
    if kubeconfig is not None:
        return read_kubeconfig(kubeconfig)
    if state is None and (named := _first_existing(environ.get("KUBECONFIG", ""))):
        return read_kubeconfig(named)
    return read_kubeconfig(Path(instance(state).kubeconfig))


def _first_existing(paths: str) -> Path | None:
    return next((Path(path) for path in paths.split(os.pathsep) if path and Path(path).exists()), None)


def read_kubeconfig(path: Path) -> Access:
    """Return the access that a kubeconfig's current context gives: by token, or without authentication.

    Raises HeadgateError that names the file and what is missing.
    """
    try:
        content = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    except FileNotFoundError as error:
        raise Unavailable(f"the kubeconfig {path} does not exist: {START_HINT}") from error
    except OSError as error:
        raise HeadgateError(f"the kubeconfig {path} can't be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise HeadgateError(f"the kubeconfig {path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise HeadgateError(f"the kubeconfig {path} is empty or no object; name another with --kubeconfig")
    context = _named(content, "contexts", content.get("current-context"), path)
    cluster = _named(content, "clusters", context.get("cluster"), path)
    user = _named(content, "users", context["user"], path) if context.get("user") else {}
    return _access(path, cluster, user, namespace=str(context.get("namespace") or "default"))


def _named(content: Mapping[str, Any], part: str, name: object, path: Path) -> Mapping[str, Any]:
    """Return the entry of a kubeconfig's list: `contexts` have a `context` each, and so on."""
    for entry in content.get(part) or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(part.removesuffix("s"))
            return found if isinstance(found, dict) else {}
    wanted = f"{part.removesuffix('s')} {name!r}" if name else f"current {part.removesuffix('s')}"
    raise HeadgateError(f"the kubeconfig {path} has no {wanted}; correct it, or name another with --kubeconfig")


def _access(path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], *, namespace: str) -> Access:
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("http://", "https://")):
        raise HeadgateError(f"the kubeconfig {path} names no server URL in its cluster")
    if not user.get("token") and any(
        name in user for name in ("exec", "client-certificate", "client-certificate-data")
    ):
        raise HeadgateError(f"the kubeconfig {path} authenticates without a token; headgate's commands need one")
    return Access(
        server=server.rstrip("/"),
        token=str(user.get("token") or ""),
        ca=_certificates(path, cluster),
        verify=not cluster.get("insecure-skip-tls-verify"),
        namespace=namespace,
    )


def _certificates(path: Path, cluster: Mapping[str, Any]) -> str:
    try:
        if data := cluster.get("certificate-authority-data"):
            return base64.b64decode(data, validate=True).decode("ascii")
        if file := cluster.get("certificate-authority"):
            return Path(path.parent, str(file)).read_text("ascii")
    except (OSError, ValueError, binascii.Error) as error:
        raise HeadgateError(f"the certificate authority in the kubeconfig {path} can't be read: {error}") from error
    return ""
