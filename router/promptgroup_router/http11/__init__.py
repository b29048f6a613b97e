"""HTTP/1.1 as bytes (RFC 9112): parsing heads, framing bodies. Does no I/O and reads no clock."""
