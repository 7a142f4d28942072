"""The mesh's certificate authority: who a proxy is, what it proves that with, and rotation (issuers, credentials)."""
