"""Reading of elements by index, as views of the files if possible."""
