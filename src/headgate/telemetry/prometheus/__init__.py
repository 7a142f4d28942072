"""Traffic metrics for Prometheus: labeled totals, their text format, and traffic computed from Prometheus samples."""
