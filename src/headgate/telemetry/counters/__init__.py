"""The counters of each flow, and their sums over time. Pure: times are arguments."""
