"""One module a loader, each of at most 30 lines: how its documentation says that it is used."""
