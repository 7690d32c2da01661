"""Files that are never changed: on a local disk or at a URL, published whole or not at all."""
