"""Traffic metrics for Prometheus: labeled totals, the text format, and samples that are read back. Pure."""
