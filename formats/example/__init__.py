"""``tf.train.Example`` and ``TensorProto``: records whose bytes are protocol buffers.

- `features`: descriptions of the wanted features;
- `wire`: the format of protocol buffers, read and written one field after another; the encoders of examples;
- `plain`: a simple parser of one example;
- `together`: a vectorised parser of many examples;
- `parsing`, `sequences`, `partitions`: arrays of parsed values;
- `tensors`: parser and encoder of tensors.

May import only `tundish.errors` and the modules next to it.
"""
