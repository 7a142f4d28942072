"""The counters of each flow, and their sums over time. No function reads the clock: times are arguments."""
