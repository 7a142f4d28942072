"""The variables of Services, as a container of Kubernetes has them."""

from pathlib import Path

import pytest
from tests.make.objects import Object, port, service
from tests.standalone.pods.machine import process_pod, running

from headgate.resources.core.service import Service
from headgate.resources.decode import read
from headgate.standalone.pods.service_variables import service_variables


def variables(*objects: Object) -> dict[str, str]:
    return service_variables(read(written, Service) for written in objects)


def test_the_variables_of_the_example_of_kubernetes() -> None:
    assert variables(service("redis-primary", port(6379), clusterIP="10.0.0.11")) == {
        "REDIS_PRIMARY_SERVICE_HOST": "10.0.0.11",
        "REDIS_PRIMARY_SERVICE_PORT": "6379",
        "REDIS_PRIMARY_PORT": "tcp://10.0.0.11:6379",
        "REDIS_PRIMARY_PORT_6379_TCP": "tcp://10.0.0.11:6379",
        "REDIS_PRIMARY_PORT_6379_TCP_PROTO": "tcp",
        "REDIS_PRIMARY_PORT_6379_TCP_PORT": "6379",
        "REDIS_PRIMARY_PORT_6379_TCP_ADDR": "10.0.0.11",
    }


def test_each_named_port_has_a_variable_and_the_first_port_is_that_of_the_service() -> None:
    given = variables(service("web", port(8080, "http-alt"), port(9090, "metrics"), clusterIP="127.77.0.1"))
    assert given["WEB_SERVICE_PORT"] == given["WEB_SERVICE_PORT_HTTP_ALT"] == "8080"
    assert given["WEB_SERVICE_PORT_METRICS"] == "9090"
    assert given["WEB_PORT"] == "tcp://127.77.0.1:8080"
    assert given["WEB_PORT_9090_TCP"] == "tcp://127.77.0.1:9090"


def test_ports_without_a_listener_have_no_variables() -> None:
    dns = {**port(53, "dns"), "protocol": "UDP"}
    both = variables(service("web", dns, port(8080, "http"), clusterIP="127.77.0.1"))
    assert both == variables(service("web", port(8080, "http"), clusterIP="127.77.0.1"))
    assert variables(service("web", dns, clusterIP="127.77.0.1")) == {}


def test_services_without_an_address_have_no_variables() -> None:
    headless = service("db", port(5432), clusterIP="None")
    outside = service("api", port(443), type="ExternalName", externalName="example.com")
    assert variables(headless, outside, service("new", port(80))) == {}


@pytest.mark.parametrize("links", [True, False])
async def test_a_container_has_the_variables_and_its_own_take_precedence(tmp_path: Path, *, links: bool) -> None:
    script = "echo host=$WEB_SERVICE_HOST port=$WEB_SERVICE_PORT url=$URL"
    env = [{"name": "WEB_SERVICE_PORT", "value": "1"}, {"name": "URL", "value": "$(WEB_PORT)"}]
    spec = {"restartPolicy": "Never", "enableServiceLinks": links}
    async with running(tmp_path / "state") as machine:
        web = await machine.store.create(service("web", port(8080)))
        await machine.store.create(process_pod(command=["sh", "-c", script], env=env, spec=spec))
        await machine.state_of("Completed")
        printed = await machine.output()
    address = web["spec"]["clusterIP"]
    expected = f"host={address} port=1 url=tcp://{address}:8080" if links else "host= port=1 url=$(WEB_PORT)"
    assert printed.strip() == expected
