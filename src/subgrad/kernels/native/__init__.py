"""The C++ part: the same path for a call, compiled."""
