"""The names of the control plane's own objects on a cluster, and its ports."""

from headgate.model.identities import SYSTEM_NAMESPACE

NAME = "headgate"
"""The name of the Deployment, of its ServiceAccount and roles, of the webhook configurations, and of the Service that
leads to the active replica."""
WEBHOOKS = "headgate-webhooks"
"""The Service that leads to all replicas."""
NAMESPACE = SYSTEM_NAMESPACE
LEASE = "headgate-control-plane"
ACTIVE = "headgate.dev/active"
"""The label of the active replica's pod."""
XDS_PORT, WEBHOOK_PORT, API_PORT = 15010, 15017, 15019
SERVER_NAMES = tuple(f"{name}.{NAMESPACE}.svc" for name in (NAME, WEBHOOKS))
"""The DNS names of the control plane's servers."""
