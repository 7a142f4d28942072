"""`headgate version`: show the versions of headgate and Envoy, and the addresses of the running headgate."""

import os
import subprocess

from headgate import __version__
from headgate.cli.arguments import State
from headgate.cli.common_options import Output
from headgate.cli.connection import find_runtime_info, remains, remains_texts
from headgate.cli.output import Format, answer, stdout
from headgate.errors import ProxyError
from headgate.standalone.proxies.envoy_binary import find_envoy

TIMEOUT_S = 10


def version(output: Output = Format.TABLE, state: State = None) -> None:
    """Show the versions of headgate and Envoy, and the addresses of the running headgate."""
    running, (own, below) = find_runtime_info(state), remains(state)
    versions = {
        "headgate": __version__,
        "envoy": envoy_version(),
        "instance": running,
        "survivors": own.survivors if own else (),
        "below": {part.state.name: {"instance": part.running, "survivors": part.survivors} for part in below},
    }
    runs = [f"API {running.api}, proxy {running.proxy}, process {running.pid}"] if running else []
    runs += remains_texts(state)
    lines = "\n          ".join(runs or ["nothing on this machine"])
    text = f"headgate  {versions['headgate']}\nenvoy     {versions['envoy']}\nrunning   {lines}"
    answer(versions, output, lambda: stdout().print(text, soft_wrap=True))


def envoy_version() -> str:
    """Return the version of the Envoy binary, or `unknown` with the reason."""
    try:
        binary = find_envoy(os.environ)
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)  # noqa: S603 - the binary is the user's choice
    except (ProxyError, OSError, subprocess.SubprocessError) as error:
        return f"unknown: {error}"
    # Envoy prints `envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL`.
    parts = done.stdout.strip().split("/")
    return parts[-4] if len(parts) >= 5 else done.stdout.strip()
