"""Prometheus rules, Alertmanager routes and runbooks; ``build`` writes what is committed under ``rules/``."""
