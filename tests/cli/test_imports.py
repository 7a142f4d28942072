"""A command that asks one question imports no code of the server: its start would cost a multiple of its work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.api.certificate import certificate_in
from headgate.standalone.apiserver.app import write_kubeconfig

QUESTIONS = {
    "ca",
    "config",
    "explain",
    "history",
    "logs",
    "proxies",
    "rollback",
    "rollout",
    "status",
    "version",
    "wait",
}
INSTALLATION = {"headgate.kubernetes.install.installer", "headgate.kubernetes.install.manifests"}
SERVER = INSTALLATION | {
    "headgate.admission",
    "headgate.api",
    "headgate.compiler.compile",
    "headgate.identity",
    "headgate.objects",
    "headgate.plan",
    "headgate.plane",
    "headgate.standalone.app",
    "headgate.standalone.proxies.envoy_process",
    "headgate.standalone.store",
    "headgate.xds",
    "aiohttp",  # a request imports it, the help page does not
    "cryptography",
    "google.protobuf",
    "grpc",
    "sqlite3",
    "starlette",
    "uvicorn",
    "watchfiles",
}
# Load each command in a fork of a process that has imported the application. Coverage has imported modules at its start.
PROGRAM = """
import json, os, sys
before = set(sys.modules)
print(json.dumps(["", sorted(before)]))
from headgate.cli.app import load

for name in sys.argv[1:]:
    sys.stdout.flush()
    if not os.fork():
        load(name)
        print(json.dumps([name, sorted(set(sys.modules) - before)]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """The modules that each command has imported when it starts to run, and those of Python's start by an empty name."""
    command = [sys.executable, "-c", PROGRAM, *sorted(QUESTIONS), "up"]
    lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
    return {name: set(modules) for name, modules in map(json.loads, lines)}


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_a_question_imports_nothing_of_the_server(imported: dict[str, set[str]], name: str) -> None:
    assert imported[name] & SERVER == set()


def test_the_list_of_server_modules_has_only_modules_that_exist(imported: dict[str, set[str]]) -> None:
    assert imported["up"] | imported[""] >= SERVER - INSTALLATION


def test_a_command_without_a_request_imports_no_client(imported: dict[str, set[str]]) -> None:
    assert imported["version"] & {"asyncio", "headgate.kubernetes", "headgate.resources.registry", "yaml"} == set()


HOOK = """
import json, sys
before = set(sys.modules)
from headgate import cli
from headgate.cli import refusal

refusal.refuse_after_application = lambda: sys.exit(json.dumps(sorted(set(sys.modules) - before)))
sys.argv = ["headgate", "sidecar", "drain"]
cli.main()
"""


def test_the_hook_of_an_ending_sidecar_refuses_connections_before_it_imports_commands() -> None:
    """Until then, an application that ends at once loses connections: the imports of all commands take a second."""
    ended = subprocess.run([sys.executable, "-c", HOOK], capture_output=True, check=False, text=True)
    modules = set(json.loads(ended.stderr))
    assert "headgate.cli.admin_socket" in modules
    assert modules & (SERVER | {"asyncio", "headgate.cli.app", "typer", "yaml"}) == set()


SLOW = {
    "asyncio",
    "google.protobuf",
    "grpc",
    "headgate.admission",
    "headgate.cli.app",
    "http.client",
    "importlib.metadata",
    "msgspec",
    "rich",
    "typer",
}
CONTAINER = """
import json, sys
before = set(sys.modules)
import headgate.cli.gateway, headgate.cli.sidecar, headgate.redirection.exclusions, headgate.redirection.iptables
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_the_programs_of_a_starting_sidecar_import_nothing_slow() -> None:
    """Each pod runs three of them before its application starts. With what is slow, they take 4 s of processor time."""
    shown = subprocess.run([sys.executable, "-c", CONTAINER], stdout=subprocess.PIPE, check=True, text=True).stdout
    modules = set(json.loads(shown))
    assert modules >= {"headgate.cli.sidecar", "headgate.envoy.pod_bootstrap"}
    assert modules & SLOW == set()


CLIENT = """
import json, os, ssl, sys
from pathlib import Path
from headgate.cli.arguments import ApiOptions
from headgate.cli.connection import find_api

os.environ["SSL_CERT_DIR"] = "/chosen"
find_api(ApiOptions(kubeconfig=Path(sys.argv[1])))
from aiohttp.connector import _SSL_CONTEXT_UNVERIFIED, _SSL_CONTEXT_VERIFIED

contexts = [_SSL_CONTEXT_VERIFIED, _SSL_CONTEXT_UNVERIFIED]
counts = [context.cert_store_stats()["x509"] for context in contexts]
print(json.dumps([counts, os.environ.get("SSL_CERT_FILE"), os.environ["SSL_CERT_DIR"]]))
"""


def test_a_client_reads_no_root_certificates_but_those_of_its_kubeconfig(tmp_path: Path) -> None:
    """aiohttp reads the system's ones twice when it is imported: a sixth of the processor time of a question."""
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "https://127.0.0.1:1", "token", certificate_in(tmp_path))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SSL_CERT")}
    command = [sys.executable, "-c", CLIENT, str(kubeconfig)]
    shown = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=environment).stdout
    assert json.loads(shown) == [[0, 0], None, "/chosen"]
