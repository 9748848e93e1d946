"""Messages of protocol buffers, decoded by the numbers of their fields: what pprof and Perfetto read."""

import struct


def fields(data):
    """[(number of the field, value)] of a message: ints, and bytes for what has a length."""
    at, result = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            result.append((key >> 3, varint()))
        elif key & 7 == 1:
            result.append((key >> 3, struct.unpack_from("<Q", data, at)[0]))
            at += 8
        elif key & 7 == 2:
            size = varint()
            assert at + size <= len(data)
            result.append((key >> 3, data[at:at + size]))
            at += size
        else:
            raise AssertionError(f"wire type {key & 7}")
    return result
