"""What proxies report, read as growth of flows and as records of requests. Pure."""
