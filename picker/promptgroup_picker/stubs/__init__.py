"""The messages of the protocol, which protoc writes from `ext_proc.proto` (`make stubs`); none is hand-written."""
