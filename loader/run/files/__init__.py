"""How files of records are read: one after another, in turn, or by number where an index says where each is."""
