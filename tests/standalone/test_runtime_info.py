"""The shell environment that `headgate up` writes."""

import subprocess
from pathlib import Path

from headgate.standalone.runtime_info import RuntimeInfo, write_environment

INFO = RuntimeInfo(
    api="https://127.0.0.1:1",
    kubeconfig="/a b/kubeconfig",
    proxy="127.0.0.1:1",
    probe="/probe",
    admin="/admin",
    pid=4711,
)


def test_the_environment_appends_headgates_programs_to_the_path(tmp_path: Path) -> None:
    state = tmp_path / "it's here"
    state.mkdir()
    path = write_environment(state, INFO, tmp_path / "of headgate")
    shown = subprocess.run(
        ["sh", "-c", '. "$1" && echo "$PATH" && echo "$KUBECONFIG" && echo "$HEADGATE_STATE"', "-", path],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.splitlines() == [f"/usr/bin:/bin:{tmp_path}/of headgate", "/a b/kubeconfig", str(state)]
