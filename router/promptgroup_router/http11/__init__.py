"""HTTP/1.1 as bytes (RFC 9112): parses heads and finds the ends of bodies. Does no I/O and reads no clock."""
