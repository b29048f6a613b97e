"""The messages of the protocol, which protoc writes from `ext_proc.proto` (`make stubs`); none is hand-written.

It may not import anything of the picker.
"""
