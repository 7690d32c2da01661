"""How elements stand in Arrow: each leaf by a carrier of the same bits."""
