"""What a pipeline is, as JSON that is the same in every process: values, functions, input files; what differs."""
