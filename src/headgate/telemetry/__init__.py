"""Traffic metrics: receives the proxies' reports, sums them over time windows, and answers queries about resources."""
