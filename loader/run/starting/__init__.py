"""The start of worker processes, and all that they are handed: the zygote, payloads, surroundings."""
