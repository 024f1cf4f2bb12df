"""The verbs that look and report: one small module each."""
