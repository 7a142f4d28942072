"""The headgate that runs with its state in a directory."""

import os
from pathlib import Path

from headgate.cli.arguments import DEFAULT_STATE
from headgate.errors import Unavailable
from headgate.standalone.instance import Instance, read_instance

START_HINT = "start one with `headgate up DIR`, or name its state directory with --state"


def default_state() -> Path:
    """Return the state directory of commands without --state: what `source STATE/env` has set, else `.headgate`."""
    return Path(os.environ.get("HEADGATE_STATE") or DEFAULT_STATE)


def find_instance(state: Path | None) -> Instance | None:
    """Return the instance whose state is in that directory, else in the default one; None when none runs there."""
    found = read_instance(state or default_state())
    return found if found and _runs(found.pid) else None


def instance(state: Path | None) -> Instance:
    """Return the running instance. Raises Unavailable with what to do when there is none."""
    found = find_instance(state)
    if found is None:
        raise Unavailable(f"no headgate runs with its state in {state or default_state()}: {START_HINT}")
    return found


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        return True
    return True
