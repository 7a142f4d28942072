"""Files of rendered configurations are checked by the real proxy before it gets them (R32, D23)."""

from pathlib import Path

from tests.render.haproxy.haproxy_process import needs_haproxy
from tests.render.nginx.nginx_process import needs_nginx

from headgate.cli.rendered_files import ReloadCommand
from headgate.proxy_programs.files import activate
from headgate.proxy_programs.haproxy import MAIN, Haproxy
from headgate.proxy_programs.nginx import Nginx
from headgate.proxy_programs.programs import find_program
from headgate.render.output import Rendered


@needs_nginx
def test_a_configuration_that_nginx_rejects_is_never_activated(tmp_path: Path) -> None:
    good, bad = (Rendered(main="nginx.conf", files={"nginx.conf": text}) for text in ("events {}\n", "events {\n"))
    command = ReloadCommand(Nginx(find_program("nginx")), ["touch", str(tmp_path / "reloaded")])
    assert activate(good, tmp_path, command) == ""
    (tmp_path / "reloaded").unlink()
    assert "the new configuration is not valid" in activate(bad, tmp_path, command)
    assert (tmp_path / "nginx.conf").read_text() == "events {}\n"
    assert not (tmp_path / "reloaded").exists()


def test_a_failing_reload_command_is_reported(tmp_path: Path) -> None:
    rendered = Rendered(main="nginx.conf", files={"nginx.conf": "events {}\n"})
    assert "the proxy has not loaded it: exit code 1" in activate(
        rendered, tmp_path, ReloadCommand(Nginx(""), ["false"])
    )


@needs_haproxy
def test_a_configuration_that_haproxy_rejects_is_never_activated(tmp_path: Path) -> None:
    good, bad = (Rendered(main=MAIN, files={MAIN: text}) for text in ("listen a\n    bind :1\n", "listen\n"))
    program = Haproxy(find_program("haproxy"))
    assert f"start it with `haproxy -W -p {tmp_path}/haproxy.pid" in activate(good, tmp_path, program)
    assert "the new configuration is not valid" in (message := activate(bad, tmp_path, program))
    assert "[ALERT]" in message
    assert (tmp_path / MAIN).read_text() == good.files[MAIN]
