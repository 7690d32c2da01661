"""``tf.train.Example`` and ``TensorProto``: records whose bytes are protocol buffers.

- `features`: descriptions of the wanted features;
- `wire`: the format of protocol buffers, read and written one field after another;
- `plain`: a simple parser of one example;
- `together`: a vectorised parser of many examples;
- `lists`: the values of a feature in each example;
- `parsing`, `sequences`, `partitions`: arrays of parsed values;
- `encoding`, `tensors`: encoders; parser and encoder of tensors.

May import nothing but the modules beside `tundish.errors`.
"""
