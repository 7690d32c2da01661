"""Reading elements by index: as views of the files where that is possible."""
