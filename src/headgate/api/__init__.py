"""HTTP that any host serves: the metrics groups, the inspect group, and what their servers share."""
