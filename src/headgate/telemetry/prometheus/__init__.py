"""Traffic in Prometheus' words: totals with labels, the text that it scrapes, and samples read back. Pure."""
