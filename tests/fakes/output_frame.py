"""A frame of output as a whole; the guest sends its head and its bytes apart."""

from sandboxd.guest.frames import Stream, encode_output_head


def encode_output(channel: int, stream: Stream, offset: int, data: bytes) -> bytes:
    return encode_output_head(channel, stream, offset, len(data)) + data
