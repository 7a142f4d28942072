"""kubectl exec, and raw WebSocket clients, against the embedded API with a running pod."""

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import AsyncIterator

import pytest
from tests.embedded_api import UNCOLLECTED, EmbeddedApi, KubectlPort
from tests.make.objects import config_map
from tests.standalone.apiserver.pod_api import SLEEP, PodApi, output, running_pods
from tests.standalone.pods.machine import PORTS, SERVER, key, process_pod, python

from headgate.standalone.apiserver.sessions import MAX_SESSIONS, _copied
from headgate.standalone.pods.containers import ContainerRun
from headgate.standalone.processes import identity_of, until_gone
from headgate.standalone.supervisor import ProgramRecord


@pytest.fixture
async def pods(embedded_port: KubectlPort, tmp_path) -> AsyncIterator[PodApi]:
    async with running_pods(embedded_port, tmp_path) as served:
        yield served


@pytest.fixture
async def pods_of_each_kubectl(port_of_each_kubectl: KubectlPort, tmp_path) -> AsyncIterator[PodApi]:
    """Pods for one test, which calls the current kubectl, and once more for the older one: it may use another protocol."""
    async with running_pods(port_of_each_kubectl, tmp_path) as served:
        yield served


async def test_exec_has_the_environment_and_directory_of_the_container(pods, tmp_path) -> None:
    await pods.run(env=[{"name": "GREETING", "value": "hello"}], workingDir=str(tmp_path))
    out = await pods.api.ok("exec", "web", "--", "sh", "-c", "echo $GREETING $POD_NAME $PWD")
    assert out == f"hello web {tmp_path}\n"


async def test_exec_returns_the_exit_code_and_both_outputs(pods_of_each_kubectl) -> None:
    pods = pods_of_each_kubectl
    await pods.run()
    ran = await pods.api.kubectl("exec", "web", "--", "sh", "-c", "echo out; echo problem >&2; exit 7")
    assert (ran.code, ran.out) == (7, "out\n")
    assert "problem\n" in ran.err
    assert "exit code 7" in ran.err


class Endless:
    """A command that writes as fast as its output is read, and a client that reads as fast."""

    streams = (1,)
    count = 0

    async def read(self, _: int) -> bytes:
        self.count += 1
        assert self.count < 100, "the output leaves no time for anything else"
        return b"y"

    async def send(self, *_: object) -> None:
        """Send without waiting."""


async def test_fast_output_leaves_time_for_other_tasks() -> None:
    endless = Endless()
    copying = asyncio.create_task(_copied(endless, endless))  # type: ignore[arg-type]
    while not endless.count:
        await asyncio.sleep(0)
    copying.cancel()
    await asyncio.wait([copying])
    assert copying.cancelled()


async def test_exec_reads_stdin_to_its_end(pods) -> None:
    await pods.run()
    assert await pods.api.ok("exec", "-i", "web", "--", "wc", "-c", stdin="x" * 3_000_000) == "3000000\n"


async def test_exec_of_an_unknown_program_says_so(pods) -> None:
    await pods.run()
    ran = await pods.api.kubectl("exec", "web", "--", "no-such-program")
    assert ran.code == 1
    assert "program 'no-such-program' not found on this machine" in ran.err


class Screen:
    """The terminal of a kubectl."""

    def __init__(self, master: int) -> None:
        self.text = ""
        self._master = master
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)

    async def until(self, text: str) -> str:
        """Wait until the terminal shows a text; return what it shows up to there, and forget it."""
        while text not in self.text:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 30)
        before, _, self.text = self.text.partition(text)
        return before

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # EIO: kubectl has ended
            self.text += os.read(self._master, 4096).decode()
            self._changed.set()


@contextlib.asynccontextmanager
async def on_terminal(
    api: EmbeddedApi, *arguments: str, rows: int = 24, columns: int = 80
) -> AsyncIterator[tuple[Screen, asyncio.subprocess.Process]]:
    """Run kubectl on a terminal of this size."""
    master, slave = os.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *api.command(*arguments), stdin=slave, stdout=slave, stderr=slave, env={**os.environ, **UNCOLLECTED}
    )
    screen = Screen(master)
    try:
        yield screen, process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        screen.close()
        os.close(slave)


async def test_exec_with_a_terminal_has_job_control_and_the_size_of_the_client(pods_of_each_kubectl) -> None:
    pods = pods_of_each_kubectl
    command = ("exec", "-it", "web", "--", "env", "PS1=ready> ", "sh")
    await pods.run()
    async with on_terminal(pods.api, *command, rows=33, columns=111) as (screen, process):
        await screen.until("ready> ")
        # kubectl sends its size beside the input, and later than the shell begins.
        screen.type("until stty size | grep -v '^0 0'; do :; done; tty; echo TERM=$TERM\n")
        shown = await screen.until("ready> ")
        assert "33 111" in shown
        assert "/dev/pts/" in shown
        # The job itself prints: before it is in the foreground, Ctrl-C would go to the shell.
        screen.type("sh -c \"echo slee''ping; exec sleep 600\"\n")
        await screen.until("sleeping")
        screen.type("\x03")
        await screen.until("ready> ")
        screen.type("exit 5\n")
        assert await process.wait() == 5


async def test_exec_is_refused_until_its_container_has_begun(pods, monkeypatch) -> None:
    """A command was killed at once, with exit code 137, because the container's process was not known yet."""
    started, go_on, begin = asyncio.Event(), asyncio.Event(), ContainerRun._begun

    async def begin_late(run: ContainerRun, record: ProgramRecord) -> None:
        started.set()
        await go_on.wait()
        await begin(run, record)

    monkeypatch.setattr(ContainerRun, "_begun", begin_late)
    await pods.machine.store.create(process_pod("web", command=SLEEP))
    await started.wait()
    ran = await pods.api.kubectl("exec", "web", "--", "echo", "here")
    assert (ran.code, ran.out) == (1, "")
    assert "container app does not run: it is waiting (ContainerCreating)" in ran.err
    go_on.set()
    await pods.machine.ready("web")
    assert await pods.api.ok("exec", "web", "--", "echo", "here") == "here\n"


async def test_exec_ends_with_its_container(pods) -> None:
    await pods.run()
    async with pods.client() as client:
        socket = await client.open("command=sh&command=-c&command=echo+begun;sleep+1000&stdout=1")
        assert await socket.receive_bytes() == b"\x01begun\n"
        await pods.machine.store.delete(key())
        _, status = await output(socket)
        assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "137"}]


async def test_the_processes_of_a_client_that_goes_are_ended(pods) -> None:
    await pods.run()
    async with pods.client() as client:
        socket = await client.open("command=sh&command=-c&command=sleep+1000%26echo+$$;wait&stdout=1")
        pid = int((await socket.receive_bytes())[1:])
        await socket.close()
    await until_gone(identity_of(pid))


async def test_the_processes_of_sessions_end_with_the_server(embedded_port, tmp_path) -> None:
    async with running_pods(embedded_port, tmp_path) as pods, pods.client() as client:
        await pods.run()
        socket = await client.open("command=sh&command=-c&command=echo+$$;sleep+1000&stdout=1")
        pid = int((await socket.receive_bytes())[1:])
    await until_gone(identity_of(pid))


async def test_stdin_ends_when_the_client_closes_its_channel(pods) -> None:
    await pods.run()
    async with pods.client() as client:
        socket = await client.open("command=sh&command=-c&command=cat;echo+end&stdin=1&stdout=1")
        await socket.send_bytes(b"\x00some ")
        await socket.send_bytes(b"\x00text\n")
        await socket.send_bytes(b"\xff\x00")
        assert await output(socket) == (b"some text\nend\n", {"metadata": {}, "status": "Success"})


async def test_a_command_that_closes_its_stdin_ends_in_spite_of_a_flood(pods) -> None:
    await pods.run()
    async with pods.client() as client:
        socket = await client.open("command=sh&command=-c&command=head+-c5&stdin=1&stdout=1")
        for _ in range(100):
            await socket.send_bytes(b"\x00" + b"x" * 100_000)
        stdout, status = await output(socket)
        assert (stdout, status["status"]) == (b"xxxxx", "Success")


async def test_a_slow_client_gets_the_whole_output(pods) -> None:
    await pods.run()
    async with pods.client() as client:
        socket = await client.open("command=head&command=-c&command=20000000&command=/dev/zero&stdout=1")
        stdout, status = await output(socket)
        assert (len(stdout), status["status"]) == (20_000_000, "Success")


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("command=true&stdout=1&container=other", 400, "container other is not valid for pod web; choose one of: app"),
        ("stdout=1", 400, "command: must name a program; add it after --"),
        ("command=&stdout=1", 400, "command: must name a program; add it after --"),
        ("command=a%00b&stdout=1", 400, "command: must not contain null characters"),
        ("command=true", 400, "must set one of stdin, stdout and stderr"),
    ],
)
async def test_invalid_requests_are_refused(pods, query, code, message) -> None:
    await pods.run()
    async with pods.client() as client:
        assert await client.refused(query) == (code, message)


async def test_a_websocket_needs_the_token_a_loopback_host_and_a_known_subprotocol(pods) -> None:
    await pods.run()
    query = "command=true&stdout=1"
    async with pods.client() as client:
        assert (await client.refused(query, authorization="Bearer wrong"))[0] == 401
        assert (await client.refused(query, host="example.com"))[0] == 403
        code, message = await client.refused(query, **{"sec-websocket-protocol": "base64.channel.k8s.io"})
        assert (code, "must offer one of v5.channel.k8s.io, v4.channel.k8s.io" in message) == (400, True)
        code, message = await client.refused(query, **{"impersonate-user": "alice"})
        assert (code, "omit --as" in message) == (403, True)


@pytest.mark.parametrize(
    "message",
    [b"", b"\x01stdout", b"\x09unknown", b"\x04not JSON", b'\x04{"Width":-1,"Height":1}', b'\x04{"Width":1}', "text"],
)
async def test_a_message_against_the_protocol_ends_the_session(pods, message) -> None:
    await pods.run()
    async with pods.client() as client:
        socket = await client.open("command=cat&stdin=1&stdout=1")
        await (socket.send_str(message) if isinstance(message, str) else socket.send_bytes(message))
        assert await output(socket) == (b"", None)
        assert socket.close_code == 1002


async def test_a_message_that_is_too_large_ends_the_session(pods) -> None:
    await pods.run()
    async with pods.client() as client:
        socket = await client.open("command=cat&stdin=1&stdout=1")
        await socket.send_bytes(b"\x00" + b"x" * 300_000)
        await output(socket)
        # 1006: the kernel resets a connection that is closed before all of the message is read, and the frame can get lost.
        assert socket.close_code in {1009, 1006}


async def test_sessions_are_limited(pods) -> None:
    await pods.run()
    async with pods.client() as client:
        sockets = [await client.open("command=cat&stdin=1&stdout=1") for _ in range(MAX_SESSIONS)]
        code, message = await client.refused("command=cat&stdin=1&stdout=1")
        assert (code, "100 sessions" in message) == (429, True)
        for socket in sockets:
            await socket.send_bytes(b"\x00hello")
        for socket in sockets:
            assert await socket.receive_bytes() == b"\x01hello"
            await socket.send_bytes(b"\xff\x00")
            assert await output(socket) == (b"", {"metadata": {}, "status": "Success"})
        socket = await client.open("command=true&stdout=1")
        assert (await output(socket))[1]["status"] == "Success"


async def test_a_container_that_does_not_run_is_named(pods) -> None:
    await pods.machine.store.create(process_pod(command=["no-such-program"]))
    await pods.machine.state_of("RunContainerError")
    ran = await pods.api.kubectl("exec", "web", "--", "true")
    assert ran.code == 1
    assert "container app does not run: it is waiting (command: program 'no-such-program' not found" in ran.err


async def test_a_client_with_spdy_gets_advice(pods) -> None:
    await pods.run()
    ran = await pods.api.kubectl("exec", "web", "--", "true", KUBECTL_REMOTE_COMMAND_WEBSOCKETS="false")
    assert ran.code == 1
    assert "use kubectl 1.31 or newer" in ran.err


ECHO = ["sh", "-c", "echo begun; while read line; do echo got $line; done"]


async def test_attach_shows_the_output_and_sends_the_input(pods) -> None:
    await pods.run(command=ECHO, stdin=True)
    async with pods.client() as client:
        socket = await client.open("stdin=1&stdout=1&stderr=1", what="attach")
        for word in (b"one", b"two"):
            await socket.send_bytes(b"\x00" + word + b"\n")
            assert await socket.receive_bytes() == b"\x01got " + word + b"\n"
        await socket.close()
        socket = await client.open("stdin=1&stdout=1", what="attach")  # the process still runs
        await socket.send_bytes(b"\x00three\n")
        assert await socket.receive_bytes() == b"\x01got three\n"
        await pods.machine.store.delete(key())
        assert (await output(socket))[1] == {"metadata": {}, "status": "Success"}


async def test_kubectl_attach_ends_with_the_container(pods_of_each_kubectl) -> None:
    pods = pods_of_each_kubectl
    await pods.run(command=["sh", "-c", "read line; echo got $line"], stdin=True, spec={"restartPolicy": "Never"})
    assert "got it" in await pods.api.ok("attach", "-i", "web", stdin="it\n")


async def test_port_forward_names_the_address_to_use(pods) -> None:
    await pods.run(command=python(SERVER), ports=PORTS)
    ran = await pods.api.kubectl("port-forward", "web", "18080")
    address = (await pods.machine.get())["status"]["podIP"]
    assert ran.code == 1
    assert f"does not forward ports; connect to {address}:18080 on this machine" in ran.err
    async with pods.client() as client:
        code, message = await client.refused("", what="portforward")
        assert (code, "18080" in message) == (501, True)


async def test_logs_of_the_previous_run(pods) -> None:
    command = ["sh", "-c", "echo run $POD_NAME; read line; exit 3"]
    await pods.run(command=command, stdin=True)
    assert (await pods.api.kubectl("logs", "web", "--previous")).code == 1
    await pods.api.ok("attach", "-i", "web", stdin="end\n")
    await pods.machine.state_of("CrashLoopBackOff")
    await pods.machine.ready()
    assert await pods.api.ok("logs", "web", "--previous") == "run web\n"


async def test_attach_without_what_it_needs_says_what_to_use(pods) -> None:
    await pods.run(tty=True)
    ran = await pods.api.kubectl("attach", "-i", "web")
    assert ran.code == 1
    assert "container app has no stdin: set stdin: true, omit -i, or use kubectl exec -i" in ran.err
    async with pods.client() as client:
        code, message = await client.refused("stdin=1&stdout=1", what="attach")
        assert (code, "set stdin: true" in message) == (400, True)
        code, message = await client.refused("tty=1&stdout=1", what="attach")
        assert (code, "use kubectl exec -it" in message) == (400, True)


async def test_cp_copies_files_both_ways(pods, tmp_path) -> None:
    await pods.run()
    content = os.urandom(500_000)
    (tmp_path / "there").mkdir()
    (tmp_path / "sent").write_bytes(content)
    await pods.api.ok("cp", str(tmp_path / "sent"), f"web:{tmp_path}/there/received")
    assert (tmp_path / "there/received").read_bytes() == content
    await pods.api.ok("cp", f"web:{tmp_path}/there", str(tmp_path / "back"))
    assert (tmp_path / "back/received").read_bytes() == content


async def test_cp_without_tar_says_so(pods, tmp_path) -> None:
    await pods.run(env=[{"name": "PATH", "value": str(tmp_path)}], command=["/bin/sleep", "3600"])
    (tmp_path / "sent").write_text("text")
    ran = await pods.api.kubectl("cp", str(tmp_path / "sent"), f"web:{tmp_path}/received")
    assert ran.code == 1
    assert "program 'tar' not found on this machine" in ran.err


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
async def test_exec_has_the_mounts_and_the_user_of_the_container(pods) -> None:
    await pods.machine.store.create(config_map("settings", {"color": "green"}))
    mounts = [{"name": "settings", "mountPath": "/app-settings"}]
    volumes = [{"name": "settings", "configMap": {"name": "settings"}}]
    await pods.run(volumeMounts=mounts, securityContext={"runAsUser": 12345}, spec={"volumes": volumes})
    command = ("exec", "web", "--", "sh", "-c", "cat /app-settings/color; id -u")
    assert await pods.api.ok(*command) == "green12345\n"
    ran = await pods.api.kubectl("exec", "web", "--", "no-such-program")
    assert (ran.code, "program 'no-such-program' not found" in ran.err) == (1, True)
    async with on_terminal(pods.api, "exec", "-it", "web", "--", "env", "PS1=ready> ", "sh") as (screen, process):
        await screen.until("ready> ")
        screen.type("echo >$(tty) mine; id -u; exit 4\n")
        assert "mine" in await screen.until("12345")
        assert await process.wait() == 4
