"""What a worker does with a task: reads what it is told, makes rows, puts them where they belong, says so."""
