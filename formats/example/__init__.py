"""``tf.train.Example`` and ``TensorProto``: records whose bytes are protocol buffers.

- `features`: what is wanted of an example;
- `wire`: the format of protocol buffers, read and written one field after another;
- `plain`: one example, read in the obvious way;
- `together`: many examples at once, in steps of all of them;
- `lists`: what was found of a feature in each example;
- `parsing`, `sequences`, `partitions`: arrays of what was found;
- `encoding`, `tensors`: the other way; tensors both ways.
"""
