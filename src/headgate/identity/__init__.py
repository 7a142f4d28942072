"""The certificate authority of the mesh: issuers, the certificates of all proxies, and rotation of the root."""
