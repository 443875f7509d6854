#include "router/chat/format.h"
#include <stddef.h>
#include <string.h>

const struct call_format call_format_bare = {
    .name = "json", .clue = "", .bare = true, .arguments = "parameters"};

static const struct call_format formats[] = {
    /* DeepSeek V3, R1: "function", separator, name, arguments fenced; V3.1: name, separator,
     * arguments */
    {.name = "deepseek",
     .clue = "<｜tool▁call▁begin｜>",
     .open = "<｜tool▁call▁begin｜>",
     .close = "<｜tool▁call▁end｜>",
     .around = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
     .named = true,
     .arguments = "arguments"},
    /* Mistral: a list of objects; later name[ARGS]{...} each behind a marker of its own */
    {.name = "mistral",
     .clue = "[TOOL_CALLS]",
     .open = "[TOOL_CALLS]",
     .named = true,
     .arguments = "arguments"},
    /* Granite, Phi-4: a list of objects */
    {.name = "list",
     .clue = "<|tool_call|>",
     .open = "<|tool_call|>",
     .close = "<|/tool_call|>",
     .arguments = "arguments"},
    /* Hermes, Qwen 2.5, Qwen 3: an object each */
    {.name = "hermes",
     .clue = "<tool_call>",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .arguments = "arguments"},
    /* Llama 3.1: the answer is an object, sometimes behind a marker */
    {.name = "llama",
     .clue = "<|python_tag|>",
     .open = "<|python_tag|>",
     .bare = true,
     .arguments = "parameters"},
};

const struct call_format *call_format_find(const char *template_source)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strstr(template_source, formats[i].clue))
            return &formats[i];
    return &call_format_bare;
}
