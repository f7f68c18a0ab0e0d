"""The interfaces between components: Protocols, and frozen message dataclasses, one module per component.

Every message is a frozen, slotted dataclass made of ids, str, int, float, bool, bytes, enums, other messages,
tuples of those, and `X | None`. `runtime.rpc.codec` derives the protobuf form from the fields by name.
A gateway method takes one request message and returns one response message.
"""
