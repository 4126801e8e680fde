"""Studies between organisations: start-up kits, processes and their connections over NVIDIA FLARE's messaging layer."""
