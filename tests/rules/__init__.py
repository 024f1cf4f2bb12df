"""Rules against series of known truth, by Prometheus' own promtool."""
