"""Where a running headgate is: its state directory's `instance.json`, and the kubeconfig that leads to its API."""

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from headgate.cli.arguments import DEFAULT_STATE
from headgate.errors import HeadgateError, Unavailable
from headgate.resources.meta import Value

START_HINT = "start one with `headgate up DIR`, or name its state directory with --state"


class Instance(Value, frozen=True, kw_only=True):
    """What `headgate up` writes into `instance.json`.

    `api` is a URL; `kubeconfig`, `probe` and `admin` are paths (the latter two of unix sockets); `proxy` is HOST:PORT.
    """

    api: str
    kubeconfig: str
    proxy: str
    probe: str
    admin: str
    pid: int

    @property
    def alive(self) -> bool:
        """Whether the process that wrote it still runs."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # it is another user's
        return True


class Access(Value, frozen=True, kw_only=True):
    """How to call an API server. `ca` is PEM text, empty for the system's; `namespace` is the context's."""

    server: str
    token: str = ""
    ca: str = ""
    verify: bool = True
    namespace: str = "default"


def find_instance(state: Path | None) -> Instance | None:
    """Return the instance whose state is in that directory, `.headgate` by default; None when none runs there.

    Raises HeadgateError when its file is damaged.
    """
    path = (state or DEFAULT_STATE) / "instance.json"
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Instance)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HeadgateError(f"{path} can't be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise HeadgateError(f"{path} is damaged: {error}. Stop headgate and start it anew") from error
    return found if found.alive else None


def instance(state: Path | None) -> Instance:
    """Return the running instance. Raises Unavailable with what to do when there is none."""
    found = find_instance(state)
    if found is None:
        raise Unavailable(f"no headgate runs with its state in {state or DEFAULT_STATE}: {START_HINT}")
    return found


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
