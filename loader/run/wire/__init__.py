"""Say what travels between the processes of an iterator, and serve it in a worker."""
