"""Shared by the tests of tools in all protocols: a tool, a template that prints its input, and clients."""

import pytest
from serving import DEMO, Scripted, Service

WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'
# Shows all that a conversation may hold, and says which calls and which reasoning were found.
TEMPLATE = (
    "{%- for m in messages %}{{ '\\n' ~ m.role ~ ': ' ~ m.content ~ ' ' ~ m.reasoning_content ~ ' ' ~ m.tool_call_id }}"
    "{{ (m.tool_calls | tojson) if m.tool_calls }}{% endfor %}{{ '\\n' ~ (tools | tojson) if tools }}"
    "{%- if enable_thinking is defined %}{{ ' thinks:' ~ enable_thinking }}{% endif %}"
    "{%- if add_generation_prompt %}{{ '\\nassistant:' }}{% endif %}{# <tool_call></tool_call> <think></think> #}"
)


def fixtures(client_of):
    """`demo`: a client, made by client_of(service), of the demo model; `s`: a service whose model says what it is told."""

    @pytest.fixture(scope="module")
    def demo():
        with Service(DEMO) as service:
            yield client_of(service)

    @pytest.fixture(scope="module")
    def s():
        with Scripted(TEMPLATE, args=["--trust-request-chat-template"]) as service:
            yield service

    return demo, s
