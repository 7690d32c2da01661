"""TFRecord: records of bytes, each with its length, and a checksum of both.

::

    uint64 length | uint32 masked crc32c of the length | the bytes | uint32 masked crc32c of the bytes

all little-endian, one record behind the other, and nothing before or after.
"""
