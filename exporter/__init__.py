"""amdgpu-exporter: why an AMD GPU is slow, as Prometheus metrics."""

__version__ = "0.1.0"
