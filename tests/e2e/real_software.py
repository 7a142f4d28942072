"""Servers and clients that are not headgate's, and what they exchange without it."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.ports import free_port
from tests.waiting import until
from tests.wire import Address, listens

POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"))), Path("/usr/lib/postgresql"))
UPLOAD_BYTES = 3_000_000
HTTPX_CLI = ("/usr/bin/httpx",)
"""Debian's httpx, which is a module of /usr/bin/python3."""
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
GUNICORN = """
def app(environ, start_response):
    length = 0
    while part := environ["wsgi.input"].read(65536):
        length += len(part)
    body = f"{environ['REQUEST_METHOD']} {length}\\n".encode()
    start_response("200 OK", [("content-length", str(len(body)))])
    return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]
"""
HTTPX = """
import sys, time, httpx
with httpx.Client(base_url=sys.argv[1], timeout=30, trust_env=False) as client:
    for pause in (0, 2.5):  # gunicorn closes an idle connection after two seconds
        time.sleep(pause)
        for _ in range(20):
            print(client.get("/").text, end="")
    print(client.post("/", content=(b"x" * 1000 for _ in range(1000))).text, end="")
    print(client.head("/").headers["content-length"], client.put("/", json={"a": 1}).text, end="")
"""
"""A client with a pool of connections, a body in chunks, and a pause after which the server has closed its connections."""
UNDICI = """
const url = process.argv[1];
const bodies = async (several) => (await Promise.all(several)).map(answer => answer.text());
const stream = new ReadableStream({start(c) { for (let i = 0; i < 100; i++) c.enqueue(new Uint8Array(10000)); c.close(); }});
(async () => {
  for (let round = 0; round < 5; round++)
    console.log((await Promise.all(await bodies(Array.from({length: 20}, () => fetch(url))))).join(""));
  console.log(await (await fetch(url, {method: "POST", body: stream, duplex: "half"})).text());
  for await (const part of (await fetch(url + "events")).body) process.stdout.write(part);
  const aborted = new AbortController();
  const unread = await fetch(url + "events", {signal: aborted.signal});
  aborted.abort();
  console.log(unread.status, (await fetch(url + "early")).status);
})();
"""
"""Node's own `fetch`, which is undici: parallel requests over a pool, a streamed upload, a stream of events and an aborted request."""
CURL = 'curl -s -m 30 -w " %{http_code}\\n" --noproxy "*"'
H2LOAD = "h2load -n 300 -c 3 {} http://$HOST:$PORT/ | grep -o '300 succeeded'"


class Software(NamedTuple):
    """A server, and clients whose output must not change; both are shell commands with `$HOST` and `$PORT`.

    `needs` has the programs that they run, and `files` those that the server reads, in its working directory.
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
        f"$as {POSTGRES}/initdb -D data -U me --auth=trust --no-sync > /dev/null && "
        "echo host all all all trust >> data/pg_hba.conf && "  # the address of clients is that of their server's sidecar
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
            f"node -e '{UNDICI}' http://$HOST:$PORT/",
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
    "gunicorn": Software(
        ("gunicorn", "curl", "h2load", "/usr/bin/python3", *HTTPX_CLI),
        "exec gunicorn --log-level warning --threads 4 --bind $HOST:$PORT server:app",
        (
            f"{CURL} -T <(head -c {UPLOAD_BYTES} /dev/zero) -H 'Expect: 100-continue' http://$HOST:$PORT/",
            f"{CURL} -I http://$HOST:$PORT/ -o /dev/null",
            H2LOAD.format("--h1"),
            f"/usr/bin/python3 -c '{HTTPX}' http://$HOST:$PORT",
        ),
        files={"server.py": GUNICORN},
    ),
}


def outputs(software: Software, address: Address, *around: str) -> list[tuple[str, int]]:
    """Run the clients, within the command `around`; return what each of them prints, and its exit code."""
    environment = os.environ | {"HOST": address.host, "PORT": str(address.port)}
    run = [
        subprocess.run(
            [*around, "bash", "-o", "pipefail", "-c", client],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        for client in software.clients
    ]
    return [(done.stdout, done.returncode) for done in run]


def prepared(software: Software, directory: Path) -> Path:
    """Write a server's files into a new directory."""
    directory.mkdir()
    for name, text in software.files.items():
        (directory / name).write_text(text)
    return directory


def outputs_without_headgate(software: Software, directory: Path) -> list[tuple[str, int]]:
    """Run the server and its clients on loopback; return what the clients print. All of them must succeed."""
    address = Address("127.0.0.1", free_port())
    environment = os.environ | {"HOST": address.host, "PORT": str(address.port)}
    started = subprocess.Popen(["sh", "-c", software.server], cwd=directory, env=environment, start_new_session=True)
    try:
        until(lambda: listens(address), "the server listens")
        printed = outputs(software, address)
        assert {code for _, code in printed} == {0}, printed
        return printed
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait()


def missing(software: Software) -> str:
    """Return the programs that are not installed here, separated by commas."""
    return ", ".join(program for program in software.needs if not shutil.which(program))
