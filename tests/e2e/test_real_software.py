"""Servers and clients that are not headgate's: with sidecars and mutual TLS, they exchange what they exchange without."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.e2e.manifests import service_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.make import objects
from tests.make.objects import manifest
from tests.ports import free_port
from tests.waiting import until
from tests.wire import Address, listens

POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"))), Path("/usr/lib/postgresql"))
UPLOAD_BYTES = 3_000_000
NODE = """
const http = require("http");
http.createServer((request, response) => {
  let length = 0;
  request.on("data", part => length += part.length);
  request.on("end", () => {
    if (request.url === "/early") response.writeEarlyHints({link: "</a.css>; rel=preload"});
    if (request.url === "/events") {
      response.writeHead(200, {"content-type": "text/event-stream"});
      for (let event = 0; event < 3; event++) response.write(`data: ${event}\\n\\n`);
    }
    if (request.url === "/trailer") response.writeHead(200, {trailer: "x-sum"}).addTrailers({"x-sum": "1"});
    response.end(`${request.method} ${length}\\n`);
  });
}).listen(process.env.PORT, process.env.HOST);
"""
UVICORN = """
async def app(scope, receive, send):
    length = 0
    while scope["type"] == "http" and (message := await receive())["type"] == "http.request":
        length += len(message["body"])
        if not message["more_body"]:
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "body": f"{scope['method']} {length}".encode()})
            return
"""
NGINX = """
daemon off; worker_processes 1; pid nginx.pid; error_log stderr;
events {}
http {
  access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  server { listen LISTEN; root .; client_max_body_size 100m; location /private { return 401; } }
}
"""
CURL = 'curl -s -m 30 -w " %{http_code}\\n" --noproxy "*"'
H2LOAD = "h2load -n 300 -c 3 {} http://$HOST:$PORT/ | grep -o '300 succeeded'"


class Software(NamedTuple):
    """A server, and clients whose output must not change; both are shell commands with `$HOST` and `$PORT`.

    `needs` are the programs that they run, and `files` those that the server reads, in its working directory.
    """

    needs: tuple[str, ...]
    server: str
    clients: tuple[str, ...]
    protocol: str = "http"
    files: Mapping[str, str] = {}


SOFTWARE = {
    "redis": Software(
        ("redis-server", "redis-cli"),
        "exec redis-server --bind $HOST --port $PORT --save '' --protected-mode no",
        (
            "redis-cli -h $HOST -p $PORT SET key value",
            "redis-cli -h $HOST -p $PORT GET key",
            "seq 1000 | sed 's/^/SET /; s/$/ x/' | redis-cli -h $HOST -p $PORT --pipe",
            "redis-cli -h $HOST -p $PORT DBSIZE",
        ),
        "redis",
    ),
    "mosquitto": Software(
        ("mosquitto", "mosquitto_pub", "mosquitto_sub"),
        "printf 'listener %s %s\\nallow_anonymous true\\n' $PORT $HOST > m.conf && exec mosquitto -c m.conf",
        (
            "mosquitto_pub -h $HOST -p $PORT -q 1 -r -t room/1 -m warm",
            "mosquitto_pub -h $HOST -p $PORT -q 2 -r -t room/2 -m cold -V 5",
            "mosquitto_sub -h $HOST -p $PORT -t 'room/#' -v -C 2 -W 30 | sort",
        ),
        "mqtt",
    ),
    "postgresql": Software(
        (str(POSTGRES / "initdb"), "psql", "openssl", "setpriv"),
        "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=db -keyout key.pem -out cert.pem -days 2 2> /dev/null && "
        "if [ $(id -u) = 0 ]; then chown -R 65534 . && as='setpriv --reuid=65534 --clear-groups'; fi && "
        f"$as {POSTGRES}/initdb -D data -U me --auth=trust > /dev/null && "
        f"exec $as {POSTGRES}/postgres -D data -h $HOST -p $PORT -k '' -c ssl=on "
        "-c ssl_cert_file=$PWD/cert.pem -c ssl_key_file=$PWD/key.pem -c fsync=off",
        tuple(
            f"psql -Atq 'host='$HOST' port='$PORT' user=me dbname=postgres sslmode={mode}' -c \"{query}\""
            for mode in ("require", "disable")
            for query in (
                "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
                "SELECT count(*), sum(n) FROM generate_series(1, 100000) AS n",
                "SELECT repeat('x', 300000)",
            )
        ),
        "postgresql",
    ),
    "nginx": Software(
        ("nginx", "curl", "h2load"),
        "sed s/LISTEN/$HOST:$PORT/ template > nginx.conf && head -c 3000000 /dev/zero > zero && exec nginx -p . -c nginx.conf",
        (
            f"{CURL} http://$HOST:$PORT/zero | md5sum",
            f"{CURL} -r 100-199 http://$HOST:$PORT/zero | wc -c",
            f"{CURL} -X DELETE http://$HOST:$PORT/index.html -o /dev/null",
            f"{CURL} -H 'Expect: 100-continue' -T <(head -c 3000000 /dev/zero) http://$HOST:$PORT/private/x -o /dev/null",
            H2LOAD.format("--h1"),
        ),
        files={"template": NGINX, "index.html": "nginx"},
    ),
    "node": Software(
        ("node", "curl"),
        "exec node server.js",
        (
            f"head -c {UPLOAD_BYTES} /dev/zero | {CURL} -T - http://$HOST:$PORT/",
            f"{CURL} -N http://$HOST:$PORT/events",
            f"{CURL} -D - http://$HOST:$PORT/early | tr A-Z a-z | grep -e '^http/1.1 [0-9]*' -e ^link -o",
            f"{CURL} --raw -H 'TE: trailers' http://$HOST:$PORT/trailer | tr A-Z a-z | grep x-sum",
            f"{CURL} --http1.0 http://$HOST:$PORT/",
        ),
        files={"server.js": NODE},
    ),
    "uvicorn": Software(
        ("curl", "h2load"),
        f"exec {sys.executable} -m uvicorn --log-level warning --host $HOST --port $PORT server:app",
        (
            f"head -c {UPLOAD_BYTES} /dev/zero | {CURL} -T - http://$HOST:$PORT/",
            f"{CURL} -d a=b http://$HOST:$PORT/",
            H2LOAD.format("--h1"),
        ),
        files={"server.py": UVICORN},
    ),
}


def outputs(software: Software, address: Address) -> list[tuple[str, int]]:
    """Run the clients; return what each of them prints, and its exit code."""
    environment = os.environ | {"HOST": address.host, "PORT": str(address.port)}
    run = [
        subprocess.run(
            ["bash", "-o", "pipefail", "-c", client],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        for client in software.clients
    ]
    return [(done.stdout, done.returncode) for done in run]


@pytest.fixture
def directory() -> Iterator[Path]:
    """Return a directory that other users can enter: PostgreSQL does not run as root."""
    with tempfile.TemporaryDirectory(prefix="hg") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def prepared(software: Software, directory: Path) -> Path:
    """Write a server's files into a new directory."""
    directory.mkdir()
    for name, text in software.files.items():
        (directory / name).write_text(text)
    return directory


def outputs_without_headgate(software: Software, directory: Path) -> list[tuple[str, int]]:
    address = Address("127.0.0.1", free_port())
    environment = os.environ | {"HOST": address.host, "PORT": str(address.port)}
    started = subprocess.Popen(["sh", "-c", software.server], cwd=directory, env=environment, start_new_session=True)
    try:
        until(lambda: listens(address), "the server listens")
        return outputs(software, address)
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait()


@pytest.mark.parametrize("name", SOFTWARE)
def test_programs_exchange_the_same_as_without_headgate(
    mesh: RunningMesh, namespace: str, directory: Path, name: str
) -> None:
    software = SOFTWARE[name]
    if missing := [program for program in software.needs if not shutil.which(program)]:
        pytest.skip(f"{', '.join(missing)} not installed")
    expected = outputs_without_headgate(software, prepared(software, directory / "alone"))
    assert {code for _, code in expected} == {0}, expected
    where = prepared(software, directory / "pod")
    container = objects.container("app", 9000, command=["sh", "-c", software.server], workingDir=str(where))
    labels = {"app": name}
    mesh.apply(
        service_manifest(name, {"main": 9000}, selector=labels, app=software.protocol),
        manifest(objects.deployment(name, container, labels=labels, namespace="")),
        namespace=namespace,
    )
    mesh.kubectl("rollout", "status", "-n", namespace, f"deployment/{name}")
    mesh.settle()
    address = mesh.address(name, 9000, namespace)
    assert outputs(software, address) == expected
    mesh.apply(manifest(objects.tls_config("strict", labels, namespace="")), namespace=namespace)
    mesh.settle()
    assert outputs(software, address) == expected
