"""Reading of files of records: one after another, in turn, or by number where an index says where each is."""
