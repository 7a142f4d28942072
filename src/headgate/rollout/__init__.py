"""Rollouts: Canaries without analysis as fixed splits, and with analysis step by step, decided by evidence (R108, R109, D19)."""
