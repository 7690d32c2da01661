"""TFRecord: records of bytes, each with its length, and checksums of both.

::

    uint64 length | uint32 masked crc32c of the length | the bytes | uint32 masked crc32c of the bytes

all little-endian, with nothing between, before or after the records.

May import `formats.bytes` and `formats.format`.
"""
