"""torch's data loader on numpy alone: its samplers, its orders, its collate rules."""
