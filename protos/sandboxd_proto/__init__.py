"""Generated stubs of the sandboxd API; `sandboxd_proto.v1` is protobuf package `sandboxd.v1`."""
