"""Profiling windows: from files to results, and what is kept of them."""
