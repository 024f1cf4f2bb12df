"""One module per source; each fetches raw groups and knows no metric name."""
