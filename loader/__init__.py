"""The pipeline: what is to be computed (`plan`) and how it is computed (`run`)."""
