"""Run a program in a user namespace with a limit of inotify instances."""

import subprocess
from collections.abc import Sequence

import pytest

_NAMESPACE = ("unshare", "--user", "--map-root-user")


def limited(instances: int, program: Sequence[str]) -> list[str]:
    """Return the arguments that run a program with at most so many inotify instances. Skip the test if that is impossible."""
    if subprocess.run([*_NAMESPACE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine has no user namespaces")
    script = f'echo {instances} > /proc/sys/user/max_inotify_instances && exec "$@"'
    return [*_NAMESPACE, "sh", "-c", script, "sh", *program]
