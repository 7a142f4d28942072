"""The config source of all resources: the proxy's ADS stream."""

from headgate.envoy import pb

XDS_CLUSTER = "xds"
"""The name of headgate's cluster in the bootstrap."""


def ads() -> pb.ConfigSource:
    """Return the source of resources that arrive on the ADS stream."""
    return pb.ConfigSource(ads=pb.AggregatedConfigSource(), resource_api_version=pb.ApiVersion.V3)
