"""Small pipelines over every operator, one file a family; joined in `tundish.testing.registry`."""
