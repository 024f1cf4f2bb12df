"""The site beside ``/metrics``: the page for people, and the API it reads."""
