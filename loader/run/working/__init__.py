"""A worker's part in a task: it reads what it is told, makes rows, puts them where they belong, says so."""
