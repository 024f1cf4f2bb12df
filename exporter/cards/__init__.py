"""A benchmark of a command for a model card: cold and warm runs, the machine, memory, energy, kernels."""
