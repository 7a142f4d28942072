"""Where resources get what they refer to: always the one stream that they came by."""

from headgate.envoy import pb

XDS_CLUSTER = "xds"
"""The cluster of the bootstrap that leads to headgate."""


def ads() -> pb.ConfigSource:
    """Return the source for everything that is delivered over the aggregated stream."""
    return pb.ConfigSource(ads=pb.AggregatedConfigSource(), resource_api_version=pb.ApiVersion.V3)
