"""Measured baselines of a node by the vendor's own tools: run, read, kept, exported with their time."""
