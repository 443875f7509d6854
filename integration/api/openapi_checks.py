"""What schemathesis checks beside its own: a body that the document allows is served, or refused for a reason that no schema can state.

Loaded by SCHEMATHESIS_HOOKS, in place of positive_data_acceptance."""

import gc
import re
import struct

import schemathesis
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

gc.set_threshold(100_000, 50, 50)  # the many small objects of schemas are not garbage

# Each is what a member means together with the model, the server's options or another member.
BEYOND_A_SCHEMA = [
    r"NUL characters are not supported",  # in a name at any depth
    r"outside the vocabulary|not below the vocabulary size",
    r"`(dimensions|output_dimension)` must be from 1 to|this model has no prompt `",
    r"expected u64 at line 1 column 0",  # a seed beyond 2^53 in an instance of /vertex
    r"grammar is not valid",
    r"batch size \d+ > maximum allowed batch size",
    r"texts cannot be cut to \d+ tokens",
    r"one text, or as many as in `text_2`, are expected",
    r"is too long|maximum context length is|must have less than \d+ tokens|must be <= \d+\. Given: \d+ `inputs` tokens",  # the context
    r"`truncate(_prompt_tokens)?` must be strictly positive and less than",
    r"Tool with name .* not found",
    r"invalid key .*, expected a token id",
    r"`continue_final_message`: the last message has no text|`continue_final_message` and `add_generation_prompt` exclude",
    r"there is no adapter `",
    r"`tool_choice`",
    r"`top_logprobs` needs `logprobs`",
    r"`functions` and `tools` exclude each other",
    r"you must use sampling when `best_of` is > 1|`seed` must not be set when `best_of` > 1",
    r"`dry_sequence_breakers` must have 1 to 256 bytes each",
    r"`best_of` must be|`best_of` greater than `n` is not supported when streaming",
    r"`prompt` cannot be empty",  # no token stands before it, or none is wanted
    r"Suffix is not supported|`echo` cannot be used with `suffix`|`suffix` needs a `prompt` that is text",
    r"`min_tokens` must be <= `max_tokens`",
    r"content of type `input_image` is not supported|image inputs are not supported by this model",
    r"`(min_p|typical_p|top_p)` must be >=? 0.0 and < 1.0",  # just below 1, where fp32 has 1
    r"`(temperature|repetition_penalty)` must be strictly positive",  # above 0, where fp32 has 0
]


@schemathesis.check
def served_or_refused_for_a_reason(ctx, response, case):
    text = response.content.decode(errors="replace")
    if any(re.search(p, text) for p in BEYOND_A_SCHEMA):
        return None
    return positive_data_acceptance(ctx, response, case)


def numbers(v):
    if isinstance(v, float):
        yield v
    for x in v.values() if isinstance(v, dict) else v if isinstance(v, list) else ():
        yield from numbers(x)


def is_whole(x):
    """2.0 where an integer is asked for, and a number that fp32 rounds to a bound."""
    return abs(x) < 1e38 and struct.unpack("f", struct.pack("f", x))[0].is_integer()


@schemathesis.check
def refused_at_once_or_as_event(ctx, response, case):
    """TGI's streams have begun with 200 when the parameters are judged; TEI says 413 where others say 422."""
    if response.content.startswith(b'data: {"error":') or response.status_code == 413:
        return None
    if any(map(is_whole, numbers(case.body))):
        return None
    return negative_data_rejection(ctx, response, case)
