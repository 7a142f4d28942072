"""Tests of process ports behind explicit sidecars."""

import socket
from functools import partial
from typing import Any

import pytest
from tests.make.objects import container, pod
from tests.ports import free_port

from headgate.errors import DecodeError
from headgate.resources import decode
from headgate.resources.core.pod_metadata import APPLICATION_PORTS, EXCLUDED_PORTS
from headgate.resources.core.pod_spec import Container, GrpcCheck, Pod
from headgate.resources.core.service import Service
from headgate.standalone.address_pool import NoAddress
from headgate.standalone.pods.application_ports import (
    ApplicationPorts,
    candidates,
    ephemeral_range,
    from_annotation,
    is_free,
    listen_advice,
    port_variables,
    service_ports,
    sidecar_ports,
    to_annotation,
    undeclared,
    with_process_ports,
)


def app_pod(*ports: dict[str, Any], annotations: Any = None, **fields: Any) -> Pod:
    app = container(ports=list(ports), **fields)
    return decode.read(pod("web", containers=[app], annotations=annotations), Pod)


def app(*ports: dict[str, Any], **fields: Any) -> Container:
    return app_pod(*ports, **fields).spec.containers[0]


HTTP, ADMIN = {"containerPort": 8080, "name": "http"}, {"containerPort": 9090}
NUMBERS = {8080: 20417, 9090: 20418}
advice_for = partial(listen_advice, own_network="headgate up --network pod")


def test_process_ports_stay_assigned_until_their_release():
    ports = ApplicationPorts(range(100, 104), free=lambda _: True)
    one, two = ports.assign("one", [8080, 9090]), ports.assign("two", [8080, 9090])
    assert len({*one.values(), *two.values()}) == 4
    assert ports.assign("one", [8080, 9090]) == one
    with pytest.raises(NoAddress, match="all 4 ports"):
        ports.assign("three", [8080])
    ports.release("two")
    assert set(ports.assign("three", [8080]).values()) < set(two.values())


def test_a_restored_process_port_stays_assigned_while_it_is_in_use():
    ports = ApplicationPorts(range(100, 200), free=lambda _: False)
    ports.restore("one", {8080: 150})
    assert ports.assign("one", [8080]) == {8080: 150}


def test_a_process_port_is_free_and_differs_from_the_ports_of_the_pod():
    ports = ApplicationPorts(range(100, 103), free=lambda number: number != 101)
    assert ports.assign("one", [100]) == {100: 102}


def test_process_ports_are_outside_the_ephemeral_range():
    assert not set(candidates(ephemeral_range())) & set(ephemeral_range())
    assert set(candidates(range(20_000, 40_000))) & set(range(10_000, 20_000))
    assert candidates(range(1024, 65_536))


def test_a_port_with_a_listener_is_not_free():
    number = free_port("127.0.0.9")
    with socket.create_server(("127.0.0.9", number)):
        assert not is_free(number)
    assert is_free(number)


def test_the_sidecar_listens_on_declared_tcp_ports_that_are_not_excluded():
    dns = {"containerPort": 53, "protocol": "UDP"}
    assert sidecar_ports(app_pod(HTTP, ADMIN, dns)) == [8080, 9090]
    assert sidecar_ports(app_pod(HTTP, ADMIN, annotations={EXCLUDED_PORTS: "9090, 9102"})) == [8080]
    with pytest.raises(DecodeError, match="must be port numbers"):
        sidecar_ports(app_pod(HTTP, annotations={EXCLUDED_PORTS: "99999"}))


def test_the_port_map_is_encoded_in_and_decoded_from_an_annotation():
    assert to_annotation({9090: 20418, 8080: 20417}) == "8080=20417,9090=20418"
    assert from_annotation(app_pod(annotations={APPLICATION_PORTS: "8080=20417,9090=20418"}).metadata) == NUMBERS
    assert from_annotation(app_pod().metadata) == {}
    with pytest.raises(DecodeError, match="must be pairs of ports, for example 8080=20417"):
        from_annotation(app_pod(annotations={APPLICATION_PORTS: "8080:20417"}).metadata)


def test_probes_use_the_process_port():
    found = with_process_ports(
        app(
            HTTP,
            ADMIN,
            readinessProbe={"httpGet": {"port": "http"}},
            livenessProbe={"httpGet": {"port": 9090}},
            startupProbe={"tcpSocket": {"port": "8080"}},
        ),
        NUMBERS,
    )
    by_grpc = with_process_ports(app(HTTP, readinessProbe={"grpc": {"port": 8080, "service": "a"}}), NUMBERS)
    assert found.ports
    assert [port.container_port for port in found.ports] == [20417, 20418]
    assert found.readiness_probe.http_get.port == "http"
    assert found.liveness_probe.http_get.port == 20418
    assert found.startup_probe.tcp_socket.port == 20417
    assert by_grpc.readiness_probe
    assert by_grpc.readiness_probe.grpc == GrpcCheck(port=20417, service="a")


def test_a_probe_of_another_host_or_an_excluded_port_is_unchanged():
    found = with_process_ports(
        app(
            HTTP,
            ADMIN,
            readinessProbe={"httpGet": {"port": 8080, "host": "127.0.0.1"}},
            livenessProbe={"tcpSocket": {"port": 9090}},
        ),
        {8080: 20417},
    )
    assert found.readiness_probe.http_get.port == 8080
    assert found.liveness_probe.tcp_socket.port == 9090
    assert with_process_ports(app(HTTP), {}) == app(HTTP)


def test_the_advice_names_the_port_variable_and_the_annotation_that_disables_injection():
    advice = advice_for(
        app_pod(HTTP, ADMIN), with_process_ports(app(HTTP, {"containerPort": 9090, "name": "web-ui"}), NUMBERS), NUMBERS
    )
    assert "must listen on $HOST or 0.0.0.0 and $PORT (20417), because its sidecar listens on 8080" in advice
    assert "$PORT_WEB_UI (20418), because its sidecar listens on 9090" in advice
    assert '(headgate up --network pod), or a pod without a sidecar (label headgate.dev/inject: "false")' in advice
    assert "$PORT_9090 (20418)" in advice_for(
        app_pod(HTTP, ADMIN), with_process_ports(app(HTTP, ADMIN), NUMBERS), NUMBERS
    )
    assert advice_for(app_pod(HTTP), app(HTTP), {}) == ""


def services(*specs: dict[str, Any]) -> list[Service]:
    return [decode.read({"metadata": {}, "spec": spec}, Service) for spec in specs]


def labelled(*containers: dict[str, Any]) -> Pod:
    metadata = {"labels": {"app": "web", "tier": "front"}}
    return decode.read({"metadata": metadata, "spec": {"containers": list(containers)}}, Pod)


def test_a_target_port_of_a_service_counts_as_a_declared_port_of_its_pods():
    """D26. Only numeric TCP targetPorts of Services that select the pod count, except the sidecar's own port."""
    found = services(
        {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 3001}, {"port": 8080}]},
        {"selector": {"app": "web"}, "ports": [{"port": 53, "protocol": "UDP"}, {"port": 81, "targetPort": "http"}]},
        {"selector": {"app": "web"}, "ports": [{"port": 82, "targetPort": 15001}, {"port": 83, "targetPort": 83}]},
        {"selector": {"app": "other"}, "ports": [{"port": 9}]},
        {"ports": [{"port": 10}]},
        {"selector": {"app": "web"}, "type": "ExternalName", "ports": [{"port": 11}]},
    )
    silent = labelled({"name": "app"})
    assert service_ports(silent, found) == [83, 3001, 8080]
    assert service_ports(silent, found, lowest=1024) == [3001, 8080]
    assert sidecar_ports(silent, [3001, 8080]) == [3001, 8080]
    assert sidecar_ports(app_pod(HTTP, annotations={EXCLUDED_PORTS: "3001"}), [3001, 8080, 9090]) == [8080, 9090]


def test_the_port_variable_of_the_only_container_without_ports_is_the_first_undeclared_port():
    numbers = {8080: 20417, 9090: 20418}
    silent, talking = {"name": "app"}, {"name": "talking", "ports": [HTTP]}
    alone = labelled(silent)
    assert port_variables(alone, alone.spec.containers[0], numbers) == {
        "PORT": "20417",
        "PORT_8080": "20417",
        "PORT_9090": "20418",
    }
    assert "$PORT (20417), because Services send to port 8080" in advice_for(alone, alone.spec.containers[0], numbers)
    both = labelled(talking, silent)
    assert undeclared(both, numbers) == {9090: 20418}
    assert port_variables(both, both.spec.containers[1], numbers)["PORT"] == "20418"
    assert "PORT" not in port_variables(both, both.spec.containers[0], numbers)
    two = labelled(silent, {"name": "other"})
    assert "PORT" not in port_variables(two, two.spec.containers[0], numbers)
    assert "$PORT_8080 (20417), because Services send" in advice_for(two, two.spec.containers[0], numbers)
