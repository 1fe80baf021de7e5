"""Private names of torch: the compiler itself. Takes a second to import, so only where something is compiled."""

from __future__ import annotations

from subgrad.torch_internals.lookup import private

# fmt: off
# ruff: noqa: E501
InstructionTranslator = private("torch._dynamo.symbolic_convert:InstructionTranslator", "the function that Dynamo is reading, and its graph")
GlobalStateSource = private("torch._dynamo.source:GlobalStateSource", "guards that depend on no argument")
input_codes = private("torch._dynamo.convert_frame:input_codes", "the functions that Dynamo has compiled")
callback_handler = private("torch._dynamo.callback:callback_handler", "says when compiling has ended")
# fmt: on
