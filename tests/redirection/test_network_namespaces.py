"""Which network namespace belongs to a pod, by a directory in the form of /proc."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.redirection.network_namespaces import NamespaceError, first_processes, is_of_pod, pod_namespace

UID = "0b5a6ab6-6a3e-4a4c-8b1a-1f1f0a6f8a10"
SYSTEMD = UID.replace("-", "_")
CGROUPS = {
    "containerd": f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD}.slice/cri-containerd-1.scope",
    "containerd with cgroupfs": f"11:memory:/kubepods/burstable/pod{UID}/abc\n1:cpu:/kubepods/burstable/pod{UID}/abc",
    "guaranteed": f"0::/kubepods/pod{UID}/abc",
    "the cgroup of the pod": f"0::/kubepods/pod{UID}",
    "another root": f"0::/../../kubepods-besteffort.slice/kubepods-besteffort-pod{SYSTEMD}.slice/crio-1.scope",
    "kind": f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SYSTEMD}.slice/cri-containerd-1.scope",
}
OTHER = "7d1c2b3a-6a3e-4a4c-8b1a-1f1f0a6f8a10"
FOREIGN = (
    "0::/",
    "0::/system.slice/sshd.service",
    f"0::/kubepods/pod{UID}0/abc",
    f"0::/kubepods/pod{UID[:-1]}/abc",
    f"0::/kubepods/pod{OTHER}/abc/pod{UID}",
    f"0::/kubepods/pod{OTHER}/abc/kubepods/pod{UID}/abc",
    f"2:cpu:/kubepods/pod{UID}/abc\n1:memory:/kubepods/pod{OTHER}/abc",
)
Add = Callable[..., Path]


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def process(proc: Path) -> Add:
    """Return a function that adds a process; `net` is the name of its network namespace."""

    def add(pid: str, *, net: str, started: int = 1, cgroups: str = CGROUPS["guaranteed"]) -> Path:
        (proc / pid / "ns").mkdir(parents=True)
        namespace = proc / net
        namespace.touch()
        (proc / pid / "ns/net").hardlink_to(namespace)
        (proc / pid / "cgroup").write_text(cgroups)
        (proc / pid / "stat").write_text(f"{pid} (a) b) S {' '.join(['0'] * 18)} {started} 0")
        return namespace

    add("1", net="node", cgroups="0::/init.scope")
    add("self", net="agent", cgroups="0::/kubepods/podother")
    return add


@pytest.mark.parametrize("cgroups", CGROUPS.values(), ids=list(CGROUPS))
def test_the_cgroups_of_every_runtime_name_the_pod(cgroups: str) -> None:
    assert is_of_pod(cgroups, UID)


@pytest.mark.parametrize("cgroups", FOREIGN)
def test_processes_of_the_node_and_of_other_pods_do_not_belong_to_the_pod(cgroups: str) -> None:
    assert not is_of_pod(cgroups, UID)


def test_the_namespace_is_that_of_the_first_process(proc: Path, process: Add) -> None:
    """The application may have made another one. PIDs begin again after the largest one."""
    process("20", net="made-by-the-application", started=900)
    namespace = process("31000", net="pod", started=100)
    process("10", net="other", cgroups=FOREIGN[-1])
    assert first_processes(UID, proc) == [31000, 20]
    with pod_namespace(UID, proc) as opened:
        assert os.fstat(opened).st_ino == namespace.stat().st_ino


def test_processes_of_the_runtime_in_the_namespace_of_the_node_do_not_count(proc: Path, process: Add) -> None:
    """CRI-O can put its monitor of a container into the pod's cgroup. Rules there would redirect the whole node."""
    process("20", net="node", started=1)
    namespace = process("21", net="pod", started=2)
    with pod_namespace(UID, proc) as opened:
        assert os.fstat(opened).st_ino == namespace.stat().st_ino


@pytest.mark.parametrize("net", ["node", "agent", ""])
def test_a_pod_in_the_network_of_the_node_or_without_a_process_has_no_namespace(
    proc: Path, process: Add, net: str
) -> None:
    if net:
        process("20", net=net)
    with pytest.raises(NamespaceError, match=f"no process of the pod {UID}"), pod_namespace(UID, proc):
        pass


@pytest.mark.parametrize("ended", ["cgroup", "ns/net", "read"])
def test_the_search_goes_on_after_a_process_that_ends_while_it_is_opened(
    proc: Path, process: Add, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    """The kernel fails to open a file of an ended process with ENOENT, and to read it with ESRCH."""
    process("20", net="ended", started=1)
    namespace = process("21", net="pod", started=2)
    real = os.open
    ends = iter([True])

    def opening(path: object, *arguments: int, **options: int) -> int:
        if path == ("cgroup" if ended == "read" else ended) and next(ends, False):
            raise ProcessLookupError if ended == "read" else FileNotFoundError
        return real(path, *arguments, **options)  # type: ignore[call-overload, no-any-return]

    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(os, "open", opening)
    with pod_namespace(UID, proc) as opened:
        assert os.fstat(opened).st_ino == namespace.stat().st_ino
    assert len(list(Path("/proc/self/fd").iterdir())) == before
