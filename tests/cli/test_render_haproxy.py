"""`headgate render haproxy`: the configuration from files, and `--watch` with a running HAProxy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import ServedMesh
from tests.cli.rendered_proxies import Watched, assert_watch_loses_no_request, split_website, written
from tests.render.haproxy.haproxy_process import needs_haproxy, running

from headgate.proxy_programs.haproxy import MAIN


def test_render_prints_exact_weights(run: Callable[..., Any], tmp_path: Path) -> None:
    shown = run("render", "haproxy", "-f", written(tmp_path, *split_website()), "--service", "website")
    assert shown.code == 0
    assert "server default.website-v1:8080:0 127.0.0.1:1 weight 9" in shown.out
    assert "server default.website-v2:8080:0 127.0.0.1:2 weight 1" in shown.out


@needs_haproxy
async def test_watch_loses_no_request_while_weights_change(served: ServedMesh, tmp_path: Path) -> None:
    await assert_watch_loses_no_request(
        served, Watched("haproxy", "`haproxy -W -p", MAIN, running), tmp_path / "haproxy"
    )
