"""What outlives the daemon: windows, totals, phases. One SQLite file, one process that owns it."""
