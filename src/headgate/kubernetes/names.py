"""The names of the control plane's own objects on a cluster, and its ports."""

from headgate.resources.meta import SYSTEM_NAMESPACE

NAME = "headgate"
"""The name of the Deployment, the ServiceAccount, the roles and the webhook configurations, and of the Service that
selects the active replica."""
WEBHOOKS = "headgate-webhooks"
"""The name of the Service that selects all ready replicas."""
CONVERSION = "headgate-conversion"
"""The name of the Service that selects all replicas, also those that are not ready yet: conversion needs no state, and
a replica becomes ready after it has listed objects that the API server may have to convert."""
NODE_AGENT = "headgate-node-agent"
"""The name of the DaemonSet, the ServiceAccount and the ClusterRole of the node agent, and the name label of its pods."""
NODE_AGENT_READY = "/run/headgate/ready"
"""The file that a ready node agent has."""
NAMESPACE = SYSTEM_NAMESPACE
DEPLOYMENT_PATH = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}"
"""The path of the control plane's Deployment."""
EVENTS_NAMESPACE = "default"  # that of Events about objects without a namespace, by a rule of Kubernetes
LEASE = "headgate-control-plane"
ACTIVE = "headgate.dev/active"
"""The label that the pod of the active replica has."""
CONVERTS = "headgate.dev/converts"
"""The label of the pods that `CONVERSION` selects: a replica removes it from its pod when it ends."""
XDS_PORT, WEBHOOK_PORT, API_PORT = 15010, 15017, 15019
REVISION_PREFIX = f"{NAME}-rev-"
"""How the names of a revision's objects begin; the revision follows."""
SERVER_NAMES = tuple(f"{name}.{NAMESPACE}.svc" for name in (NAME, WEBHOOKS, CONVERSION))
"""The DNS names in the certificate of the control plane's servers."""
XDS_ADDRESS = f"{SERVER_NAMES[0]}:{XDS_PORT}"
"""The address of the xDS server for proxies."""


def revision_server(name: str) -> str:
    """Return the DNS name of the Service with the replicas of a revision."""
    return f"{REVISION_PREFIX}{name}.{NAMESPACE}.svc"
