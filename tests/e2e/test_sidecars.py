"""Sidecars of pods with `headgate up` and `headgate run` (R70, R74, R76, D21)."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from tests.e2e.manifests import counting_deployment, service_manifest, site, workload
from tests.e2e.running_mesh import RunningMesh
from tests.headgate_program import command
from tests.make.objects import http_route_group, http_rule, manifest, obj, tls_config, traffic_target
from tests.waiting import until
from tests.wire import Address

REQUEST_PROGRAM = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode().strip())"
"""A program that sends one request through the proxy that its environment names."""
STRICT = tls_config("strict", {"app": "v1"}, "v1.example")


def run(mesh: RunningMesh, *words: str, **more: Any) -> "subprocess.Popen[str]":
    """Start `headgate run` in the mesh, with an environment that names no proxy."""
    environment = {name: text for name, text in os.environ.items() if "proxy" not in name.lower()}
    return subprocess.Popen(
        [*command(), "run", "--state", str(mesh.state), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **{"env": environment, **more},
    )


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Wait for the end of a process; return exit code, stdout and stderr."""
    out, errors = process.communicate(timeout=60)
    return process.returncode, out, errors


def ask(mesh: RunningMesh, url: str, *words: str) -> tuple[int, str, str]:
    """Run a program that sends one request, by `headgate run` with options; return exit code, stdout and stderr."""
    return ended(run(mesh, *words, "--", sys.executable, "-c", REQUEST_PROGRAM, url))


def pods(mesh: RunningMesh, label: str, namespace: str = "default") -> Sequence[Any]:
    found = mesh.get("pods", namespace)["items"]
    return [pod for pod in found if pod["metadata"].get("labels", {}).get("app") == label]


def names_on_certificate(address: Address) -> x509.SubjectAlternativeName:
    """Assert that a server rejects a client without certificate; return the names on the server's certificate."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(address) as plain, trust.wrap_socket(plain) as secure:
        certificate = secure.getpeercert(binary_form=True)
        with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"):
            secure.recv(1)
    assert certificate
    return (
        x509.load_der_x509_certificate(certificate)
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )


@pytest.fixture
def meshed(shared_mesh: Callable[..., RunningMesh]) -> RunningMesh:
    """Return a mesh of two Deployments of one pod each, and a Service that is split between them."""
    mesh = shared_mesh(site)
    until(lambda: len(mesh.sidecars()) == 2, "the end of the programs of earlier tests")
    mesh.settle()
    until(lambda: mesh.send(4, mesh.request("web", 8080)) == {"v1": 3, "v2": 1}, "the endpoints of an earlier test")
    return mesh


def test_every_pod_gets_a_sidecar_and_serves_through_it(meshed: RunningMesh) -> None:
    for pod in meshed.get("pods")["items"]:
        assert pod["metadata"]["annotations"]["headgate.dev/sidecar-mode"] == "explicit"
        conditions = {item["type"]: item["status"] for item in pod["status"]["conditions"]}
        assert conditions["headgate.dev/SidecarReady"] == conditions["Ready"] == "True"
    assert meshed.send(40, meshed.request("web", 8080)) == {"v1": 30, "v2": 10}
    assert meshed.complaints == []


def test_a_strict_pod_accepts_mutual_tls_only_and_no_request_fails(meshed: RunningMesh) -> None:
    """R74, R76: the pod rejects plaintext and TLS without a client certificate."""
    (pod,) = pods(meshed, "v1")
    address = Address(pod["status"]["podIP"], 8080)
    with meshed.load(meshed.request("web", 8080)) as load:
        meshed.apply(manifest(STRICT))

        def refused() -> bool:
            with socket.create_connection(address) as plain:
                plain.sendall(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
                try:
                    return plain.recv(100) == b""
                except ConnectionResetError:
                    return True

        until(refused, "the strict tls_mode")
        seen = load.sent
        until(lambda: load.sent > seen + 100)
    assert set(load.counts) == {"v1", "v2"}
    names = names_on_certificate(address)
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://cluster.local/ns/default/sa/default"]
    assert "v1.example" in names.get_values_for_type(x509.DNSName)  # R75
    code, out, errors = ask(meshed, "http://v1:8080/")
    assert (code, out.strip()) == (0, "v1"), errors
    (after,) = pods(meshed, "v1")
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["ready"]
    meshed.delete("tlsconfig/strict")
    until(lambda: not refused(), "the permissive mode")


def test_a_restarted_headgate_adopts_the_sidecars_under_load(meshed: RunningMesh) -> None:
    before = (meshed.processes(), meshed.sidecars())
    with meshed.load(meshed.request("web", 8080)) as load:
        meshed.kill()
        seen = load.sent
        until(lambda: load.sent > seen + 50)
        meshed.start()
        seen = load.sent
        until(lambda: load.sent > seen + 50)
    assert set(load.counts) == {"v1", "v2"}
    assert (meshed.processes(), meshed.sidecars()) == before
    meshed.patch("deployment/v1", {"spec": {"replicas": 0}})
    until(lambda: len(meshed.sidecars()) == 1)
    meshed.roll_out("v1", {"spec": {"replicas": 1}})


def test_a_rollout_behind_sidecars_loses_no_request(meshed: RunningMesh) -> None:
    """The test rolls the change back, too."""
    first = workload("v1", meshed.root)
    edited = first.replace('"value": "v1"', '"value": "v1-new"')
    assert edited != first
    with meshed.load(meshed.request("v1", 8080)) as load:
        for text, answer in ((edited, "v1-new"), (first, "v1")):
            meshed.write("v1.yaml", text)
            meshed.wait_for_rollout("v1")
            until(lambda: len(meshed.sidecars()) == 2)
            seen = load.counts[answer]
            until(lambda: load.counts[answer] > seen + 20)  # noqa: B023  # called at once
    assert set(load.counts) == {"v1", "v1-new"}


def test_with_sidecars_labelled_only_labelled_pods_get_a_sidecar(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    mesh = new_mesh("--sidecars", "labelled", manifests=site(tmp_path))
    assert mesh.sidecars() == {}
    assert mesh.send(4, mesh.request("web", 8080)) == {"v1": 3, "v2": 1}
    wanted = json.loads(counting_deployment("v3", tmp_path / "v3", labels={"app": "v3"}, ports={"http": 8080}))
    wanted["spec"]["template"]["metadata"]["labels"]["headgate.dev/inject"] = "true"
    mesh.apply(json.dumps(wanted), service_manifest("v3", {"http": 8080}, selector={"app": "v3"}))
    mesh.wait_for_rollout("v3")
    assert len(mesh.sidecars()) == 1
    until(lambda: mesh.send(1, mesh.request("v3", 8080)) == {"v3": 1})


def test_a_tls_config_injects_sidecars_into_new_pods_and_reports_existing_pods_without_a_sidecar(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """R73, R77: the test uses `--sidecars labelled`. A pod with the label `inject: false` gets no sidecar."""
    mesh = new_mesh("--sidecars", "labelled", manifests={"old.yaml": workload("v1", tmp_path)})
    assert mesh.sidecars() == {}
    mesh.apply(manifest(STRICT))

    def programmed() -> tuple[str, str]:
        conditions = mesh.get("tlsconfig/strict")["status"]["conditions"]
        return next((item["status"], item["message"]) for item in conditions if item["type"] == "Programmed")

    (old,) = pods(mesh, "v1")
    _, message = until(lambda: found if (found := programmed())[0] == "False" else None)
    assert f"pod default/{old['metadata']['name']}" in message
    assert "Replace the pods (kubectl rollout restart)" in message
    code, out, _ = mesh.headgate("explain", f"pod/{old['metadata']['name']}")
    assert code == 1
    assert "New pods   get one: the TLSConfig strict selects the pod" in out
    mesh.restart("v1")
    until(lambda: programmed() == ("True", "strict on 1 of 1 pods"))
    (new,) = pods(mesh, "v1")
    assert "InSync: it has its configuration" in mesh.headgate("explain", f"pod/{new['metadata']['name']}")[1]
    assert len(mesh.sidecars()) == 1
    patch = {"spec": {"template": {"metadata": {"labels": {"headgate.dev/inject": "false"}}}}}
    mesh.roll_out("v1", patch)
    until(lambda: programmed()[0] == "False")
    until(lambda: mesh.sidecars() == {})


def test_with_sidecars_none_no_pod_gets_a_sidecar_and_run_fails(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    mesh = new_mesh("--sidecars", "none", manifests=site(tmp_path))
    assert mesh.sidecars() == {}
    assert mesh.send(40, mesh.request("web", 8080)) == {"v1": 30, "v2": 10}
    code, _, errors = ended(run(mesh, "--", "true"))
    assert code == 1
    assert "this headgate runs with --sidecars none" in errors


def test_headgate_restarts_a_sidecar_that_was_killed(meshed: RunningMesh) -> None:
    ((name, pid), *_) = sorted(meshed.sidecars().items())
    os.kill(pid, signal.SIGKILL)
    until(lambda: meshed.sidecars().get(name, pid) != pid)
    until(lambda: meshed.send(20, meshed.request("web", 8080)) == {"v1": 15, "v2": 5})


# --- headgate run ---


def test_a_program_run_with_a_service_account_has_the_rights_of_that_account(meshed: RunningMesh) -> None:
    """R70: the ServiceAccount decides, not the user of the terminal."""
    group = http_route_group("all", {"any": {"methods": ["GET"], "pathRegex": ".*"}})
    target = traffic_target("buyers", "v2", ["buyer"], [http_rule("all")])
    meshed.apply(manifest(*(obj("ServiceAccount", account) for account in ("buyer", "thief", "v2"))))
    meshed.roll_out("v2", {"spec": {"template": {"spec": {"serviceAccountName": "v2"}}}})
    meshed.apply(manifest(group, target))
    until(lambda: "403" in ask(meshed, "http://v2:8080/", "--service-account", "thief")[2])
    assert ask(meshed, "http://v2:8080/", "--service-account", "thief")[0] == 1
    code, out, errors = ask(meshed, "http://v2:8080/", "--service-account", "buyer")
    assert (code, out.strip()) == (0, "v2"), errors
    meshed.delete("traffictarget/buyers")
    until(lambda: meshed.send(1, meshed.request("v2", 8080)) == {"v2": 1})


def test_a_program_started_by_run_serves_behind_a_service_until_it_ends(meshed: RunningMesh, tmp_path: Path) -> None:
    meshed.apply(service_manifest("mine", {"http": 8080}, selector={"app": "mine"}))
    script = tmp_path / "pod.py"
    script.write_text((Path(__file__).parent / "pod.py").read_text())
    environment = {**os.environ, "NAME": "mine", "COUNT": str(tmp_path / "count")}
    process = run(
        meshed, "--label", "app=mine", "--port", "http=8080", "--", sys.executable, "-I", str(script), env=environment
    )
    until(lambda: meshed.send(1, meshed.request("mine", 8080)) == {"mine": 1})
    (pod,) = pods(meshed, "mine")
    assert "command" in pod["spec"]["containers"][0]
    assert pod["spec"]["containers"][0]["command"] == [sys.executable]  # the pod omits arguments, which may be secret
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 0  # the program exits with 0 after SIGTERM
    until(lambda: not pods(meshed, "mine"))
    until(lambda: meshed.send(1, meshed.request("mine", 8080)) == {"503": 1})


def test_run_passes_directory_environment_and_exit_code_of_the_program(meshed: RunningMesh, tmp_path: Path) -> None:
    script = 'pwd; echo "$MINE $HOST:$PORT_ADMIN $http_proxy $HTTP_PROXY"; exit 7'
    environment = {**os.environ, "MINE": "yes", "HTTP_PROXY": "http://elsewhere:3128"}
    process = run(meshed, "--port", "admin=9000", "--", "sh", "-c", script, cwd=tmp_path, env=environment)
    code, out, errors = ended(process)
    assert code == 7, errors
    directory, line = out.splitlines()
    mine, address, lower, upper = line.split()
    host, _, port = address.partition(":")
    assert (directory, mine, lower, upper) == (str(tmp_path), "yes", f"http://{host}:15001", f"http://{host}:15001")
    assert int(port) != 9000
    assert f"{host}:9000 is forwarded to port {port} ($PORT_9000)" in errors


def test_run_exits_with_137_when_the_program_is_killed(meshed: RunningMesh) -> None:
    assert ended(run(meshed, "--", "sh", "-c", "kill -KILL $$"))[0] == 137


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_run_forwards_signals_to_the_program(meshed: RunningMesh, number: signal.Signals) -> None:
    script = f"trap 'exit {number}' {number.name[3:]}; echo ready; while :; do sleep 0.02; done"
    process = run(meshed, "--", "sh", "-c", script, start_new_session=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert ended(process)[0] == number


def test_the_pod_of_a_killed_run_command_is_deleted(meshed: RunningMesh) -> None:
    process = run(meshed, "--label", "app=killed", "--", "sleep", "600", start_new_session=True)
    (pod,) = until(lambda: pods(meshed, "killed"))
    name = pod["metadata"]["name"]
    until(lambda: [uid for uid in meshed.sidecars() if name in uid])
    os.killpg(process.pid, signal.SIGKILL)
    ended(process)
    until(lambda: not pods(meshed, "killed"))
    until(lambda: not [uid for uid in meshed.sidecars() if name in uid])


def test_deleting_the_pod_of_a_run_command_terminates_its_program(meshed: RunningMesh) -> None:
    script = "trap 'echo terminated; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    process = run(meshed, "--label", "app=deleted", "--", "sh", "-c", script)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    (pod,) = pods(meshed, "deleted")
    meshed.delete(f"pod/{pod['metadata']['name']}")
    code, out, errors = ended(process)
    assert (code, out) == (0, "terminated\n")
    assert "was deleted; terminating the program" in errors


def test_run_reports_mistakes_and_leaves_no_pod(meshed: RunningMesh, tmp_path: Path) -> None:
    code, _, errors = ended(run(meshed, "--label", "app=wrong", "--", "no-such-program"))
    assert code == 127
    assert "program 'no-such-program' not found" in errors
    plain = tmp_path / "plain"
    plain.touch(mode=0o600)
    code, _, errors = ended(run(meshed, "--label", "app=wrong", "--", str(plain)))
    assert code == 126
    assert f"'{plain}' is not executable; set its mode with chmod +x" in errors
    assert ended(run(meshed, "--port", "99999", "--", "true"))[0] == 2
    assert "write KEY=VALUE" in ended(run(meshed, "--label", "app", "--", "true"))[2]
    assert "15001 is the sidecar's own" in ended(run(meshed, "--port", "15001", "--", "true"))[2]
    assert (
        "ServiceAccount default/missing not found"
        in ended(run(meshed, "--service-account", "missing", "--", "true"))[2]
    )
    for options, mistake in (
        (("--service-account", "No/Account"), "'No/Account' is not the name of a ServiceAccount"),
        (("-n", "nowhere"), 'namespaces "nowhere" not found'),
    ):
        code, _, errors = ended(run(meshed, *options, "--", "true"))
        assert code == 1
        assert mistake in errors
        assert "the program gets its identity" not in errors
    until(lambda: not pods(meshed, "wrong"))


def test_run_rejects_the_gateways_service_account(meshed: RunningMesh) -> None:
    """R70: with this account, a program could call all workloads that allow the gateway's clients."""
    code, _, errors = ended(run(meshed, "-n", "headgate-system", "--service-account", "gateway", "--", "true"))
    assert code == 1
    assert (
        "spec.serviceAccountName: is the ServiceAccount of the node's gateway; give the pod another ServiceAccount"
        in errors
    )
