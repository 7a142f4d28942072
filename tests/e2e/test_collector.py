"""A user's OpenTelemetry collector: every proxy reports to the collector and to headgate."""

from pathlib import Path

import pytest
from tests.e2e.collector import collector
from tests.e2e.running_mesh import mesh_in_a_new_directory
from tests.e2e.shop import PLAN, PLANNED, shop_in
from tests.ports import free_port
from tests.waiting import until


def test_headgate_counts_requests_without_the_collector_which_gets_the_same_counts_when_it_starts(
    tmp_path: Path,
) -> None:
    """R97: each proxy reports cumulative values."""
    port = free_port()
    with shop_in(tmp_path, "--otlp-collector", f"127.0.0.1:{port}", servers=PLANNED) as shop:
        shop.send(PLAN)
        shop.wait_for_agreement()
        with collector(port) as (_, found):
            until(lambda: sum(found.requests().values()) == shop.truth.total(), f"{shop.truth.total()}")
            sent = {node.split("/")[-1].partition("-")[0]: count for node, count in found.requests().items() if count}
            assert sent == {client: sum(paths.values()) for client, paths in PLAN.items()}
            assert found.services == {"headgate-proxy"}


@pytest.mark.parametrize("address", ["x", "http://127.0.0.1:4317", "127.0.0.1:0", ":4317"])
def test_up_rejects_an_invalid_collector_address(address: str) -> None:
    with (
        pytest.raises(AssertionError, match="write HOST:PORT without http://, for example"),
        mesh_in_a_new_directory("--otlp-collector", address),
    ):
        pass
