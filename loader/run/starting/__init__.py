"""How worker processes begin, and what they are handed: the zygote, payloads, surroundings."""
