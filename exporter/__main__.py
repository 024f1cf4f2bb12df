"""``python -m exporter`` is ``amdgpu-exporter``."""

from exporter.cli import main

main()
