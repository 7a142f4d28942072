"""Which API a command asks: that of a kubeconfig, or that of a headgate on this machine."""

import os
from collections.abc import Mapping
from pathlib import Path

from headgate.cli.instance import START_HINT, instance
from headgate.errors import Unavailable
from headgate.kubernetes.client import Client, Hints
from headgate.kubernetes.credentials import Kubeconfig

_HINTS = Hints(unreachable=START_HINT, refused="The kubeconfig may be of an earlier `headgate up`")


def find_api(kubeconfig: Path | None, state: Path | None, environ: Mapping[str, str]) -> Client:
    """Return the API: by --kubeconfig, else --state, else $KUBECONFIG, else `.headgate`.

    Raises Unavailable when none of them leads anywhere, HeadgateError when the kubeconfig can't be used.
    """
    if kubeconfig is not None:
        return _api([kubeconfig])
    named = [Path(path) for path in environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if state is None and any(path.exists() for path in named):
        return _api(named)
    return api_of(state)


def api_of(state: Path | None) -> Client:
    """Return the API of the headgate whose state is in a directory. Raises Unavailable when none runs there."""
    return _api([Path(instance(state).kubeconfig)])


def _api(paths: list[Path]) -> Client:
    try:
        return Client(Kubeconfig(paths), _HINTS)
    except Unavailable as error:
        raise Unavailable(f"{error}: {START_HINT}") from error
