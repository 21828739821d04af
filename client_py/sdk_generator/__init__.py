"""Makes what is derived from the async classes of the SDK: its sync face and its reference."""
