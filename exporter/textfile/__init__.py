"""What site-specific collectors leave in a folder, taken into the page."""
