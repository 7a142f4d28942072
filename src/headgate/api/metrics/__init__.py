"""The groups of the metrics API: what traffic resources got."""
