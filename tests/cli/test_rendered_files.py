"""The files that `headgate render --watch` keeps current: a failure is retried, and printed once (R32)."""

import asyncio
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.cli.printed import Printed
from tests.render.nginx.nginx_process import NGINX, needs_nginx

from headgate.backoff import Backoff
from headgate.cli import rendered_files
from headgate.cli.rendered_files import ReloadCommand, keep_current
from headgate.compiler.snapshot import Snapshot
from headgate.latest import Latest
from headgate.proxy_programs.nginx import Nginx
from headgate.render.output import Rendered


@needs_nginx
async def test_a_failed_check_is_retried_without_a_change_of_objects_and_printed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendered_files, "PAUSE_S", 0.0)
    monkeypatch.setattr(rendered_files, "Backoff", partial(Backoff, first_s=0.0))
    monkeypatch.setattr(sys, "stderr", printed := Printed())
    missing, attempts = tmp_path / "limits.conf", asyncio.Queue[Snapshot]()
    files = {"nginx.conf": f"include {missing};\nevents {{}}\n"}

    def render(snapshot: Snapshot) -> Rendered:
        attempts.put_nowait(snapshot)
        return Rendered(main="nginx.conf", files=files)

    program = ReloadCommand(Nginx(NGINX), ["true"])
    keeping = asyncio.ensure_future(keep_current(Latest(Snapshot()), render, tmp_path / "nginx", program))
    async with asyncio.timeout(60):
        assert "the new configuration is not valid" in await printed.messages.get()
        for _ in range(4):
            await attempts.get()
        assert printed.messages.empty()
        missing.touch()
        assert "the proxy loads it" in await printed.messages.get()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert (tmp_path / "nginx" / "nginx.conf").read_text() == files["nginx.conf"]
