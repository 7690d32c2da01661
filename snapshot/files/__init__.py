"""Files that are never changed: on a local disk or behind a URL, published whole or not at all."""
