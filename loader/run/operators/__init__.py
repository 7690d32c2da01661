"""What each family of operators does with a stream: its machines and its evaluators."""
