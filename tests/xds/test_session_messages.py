"""Compare headgate's encoding and decoding of discovery messages with the Protobuf classes."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.envoy import pb
from headgate.envoy.config import CLUSTER
from headgate.envoy.encode import encode_resource
from headgate.xds.messages import DeltaRequest, read_request, write_response
from headgate.xds.subscription import Response

NAMES = st.lists(st.text(min_size=1, max_size=300), max_size=5, unique=True)


@given(names=NAMES, removed=NAMES, nonce=st.integers(0, 2**40))
def test_an_encoded_response_decodes_to_the_same_values(names, removed, nonce):
    resources = tuple((name, encode_resource(name, pb.Cluster(name=name))) for name in names)
    message = pb.DeltaDiscoveryResponse.FromString(
        write_response(Response(CLUSTER, str(nonce), resources, tuple(removed)))
    )
    assert message.type_url == CLUSTER
    assert message.nonce == str(nonce)
    assert list(message.removed_resources) == removed
    assert [item.name for item in message.resources] == names
    assert [item.version for item in message.resources] == [item.digest for _, item in resources]
    assert [pb.Cluster.FromString(item.resource.value).name for item in message.resources] == names
    assert all(item.resource.type_url == CLUSTER for item in message.resources)


def test_a_first_request_decodes_to_the_node_id_and_the_reported_versions():
    message = pb.DeltaDiscoveryRequest(
        node=pb.Node(id="gateway"),
        type_url=CLUSTER,
        resource_names_subscribe=["*", "a"],
        resource_names_unsubscribe=["b"],
        initial_resource_versions={"a": "1"},
    )
    assert read_request(message.SerializeToString()) == (
        "gateway",
        DeltaRequest(CLUSTER, ("*", "a"), ("b",), {"a": "1"}),
    )


def test_an_ack_has_no_error_and_a_nack_has_envoys_message():
    ack = pb.DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce="7")
    assert read_request(ack.SerializeToString())[1] == DeltaRequest(CLUSTER, nonce="7")
    nack = pb.DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce="7", error_detail=pb.Status(message="no"))
    assert read_request(nack.SerializeToString())[1] == DeltaRequest(CLUSTER, nonce="7", error="no")
    silent = pb.DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce="7", error_detail=pb.Status(code=13))
    assert read_request(silent.SerializeToString())[1].error == ""
