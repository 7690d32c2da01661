"""Elements in Arrow: each leaf by a carrier of the same bits."""
