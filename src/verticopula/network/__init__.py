"""Between organisations: start-up kits, processes and the line between them, on NVIDIA FLARE's messaging layer."""
