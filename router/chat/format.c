#include "router/chat/format.h"
#include <string.h>

const struct call_format call_format_bare = {
    .name = "json", .clue = "", .bare = true, .arguments = "parameters"};

static const struct call_tags qwen_tags = {
    .name_open = "<function=",
    .name_close = ">",
    .key_open = "<parameter=",
    .key_close = ">",
    .value_close = "</parameter>",
    .value_end = "\n</parameter>",
    .end = "</function>",
};
static const struct call_tags glm_tags = {
    .key_open = "<arg_key>",
    .key_close = "</arg_key>",
    .value_open = "<arg_value>",
    .value_close = "</arg_value>",
    .value_end = "\n</arg_value>",
};
static const struct call_tags minimax_tags = {
    .name_open = "<invoke name=\"",
    .name_close = "\">",
    .key_open = "<parameter name=\"",
    .key_close = "\">",
    .value_close = "</parameter>",
    .value_end = "\n</parameter>",
    .end = "</invoke>",
};

#define M3 "]<]minimax[>["
static const struct call_tags m3_tags = {
    .name_open = M3 "<invoke name=\"",
    .name_close = "\">",
    .key_open = M3 "<",
    .key_close = ">",
    .end = M3 "</invoke>",
    .mark = M3,
};

static const struct call_tags dsml_tags = {
    .name_open = "<｜DSML｜invoke name=\"",
    .name_close = "\">",
    .key_open = "<｜DSML｜parameter name=\"",
    .key_close = "\">",
    .value_close = "</｜DSML｜parameter>",
    .end = "</｜DSML｜invoke>",
    .string_attribute = "\" string=\"",
};
static const struct call_tags minicpm_tags = {
    .name_open = "<function name=\"",
    .name_close = "\">",
    .key_open = "<param name=\"",
    .key_close = "\">",
    .value_close = "</param>",
    .end = "</function>",
    .cdata = true,
};
/* Hunyuan 3 and 4: GLM's tags, all with the checkpoint's suffix. */
#define HY_TAGS(suffix, separator)                                                                 \
    {                                                                                              \
        .name_close = separator, .key_open = "<arg_key" suffix ">",                                \
        .key_close = "</arg_key" suffix ">", .value_open = "<arg_value" suffix ">",                \
        .value_close = "</arg_value" suffix ">"                                                    \
    }
#define HY_FORMAT(called, clued, suffix, with)                                                     \
    {                                                                                              \
        .name = called, .clue = clued, .open = "<tool_call" suffix ">",                            \
        .close = "</tool_call" suffix ">",                                                         \
        .around = {"<tool_calls" suffix ">", "</tool_calls" suffix ">"}, .tags = with,             \
        .arguments = "arguments"                                                                   \
    }
static const struct call_tags hy3_tags = HY_TAGS(":opensource", "<tool_sep:opensource>");
static const struct call_tags hy3_plain_tags = HY_TAGS("", "<tool_sep>");
static const struct call_tags hy4_tags = HY_TAGS(":6124c78e", NULL);

static const struct call_tags solar2_tags = {
    .key_open = "<|tool_arg:start|>",
    .key_close = "<|tool_arg:value|>",
    .value_close = "<|tool_arg:end|>",
};

static const struct call_format formats[] = {
    /* gpt-oss: messages in channels (reply_channels.c) */
    {.name = "channels", .clue = "<|channel|>", .arguments = "arguments"},
    HY_FORMAT("hunyuan 3", ":opensource", ":opensource", &hy3_tags),
    HY_FORMAT("hunyuan 3, no suffix", "<tool_sep>", "", &hy3_plain_tags),
    HY_FORMAT("hunyuan 4", ":6124c78e", ":6124c78e", &hy4_tags),
    /* DeepSeek V3, R1: "function", separator, name, arguments fenced; V3.1: name, separator,
     * arguments */
    {.name = "deepseek",
     .clue = "<｜tool▁call▁begin｜>",
     .open = "<｜tool▁call▁begin｜>",
     .close = "<｜tool▁call▁end｜>",
     .around = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
     .named = true,
     .separator = "<｜tool▁sep｜>",
     .arguments = "arguments"},
    /* Kimi K2: functions.name:0, separator, arguments */
    {.name = "kimi",
     .clue = "<|tool_call_argument_begin|>",
     .open = "<|tool_call_begin|>",
     .close = "<|tool_call_end|>",
     .around = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
     .named = true,
     .separator = "<|tool_call_argument_begin|>",
     .prefix = "functions.",
     .arguments = "arguments"},
    /* Solar Open: id, separator, name, separator, arguments; in a message of their own */
    {.name = "solar",
     .clue = "<|tool_call:begin|>",
     .open = "<|tool_call:begin|>",
     .close = "<|tool_call:end|>",
     .around = {"<|tool_calls|>", "<|end|><|begin|>assistant<|tool_calls|>"},
     .named = true,
     .separator = "<|tool_call:name|>",
     .name_close = "<|tool_call:args|>",
     .arguments = "arguments"},
    {.name = "solar 2",
     .clue = "<|tool_arg:start|>",
     .open = "<|tool_call:start|>",
     .close = "<|tool_call:end|>",
     .tags = &solar2_tags,
     .arguments = "arguments"},
    /* Mistral: a list of objects; later versions name[ARGS]{...}, each after a marker */
    {.name = "mistral",
     .clue = "[TOOL_CALLS]",
     .open = "[TOOL_CALLS]",
     .named = true,
     .arguments = "arguments"},
    /* Cohere: a list of objects with "tool_name" */
    {.name = "cohere",
     .clue = "<|START_ACTION|>",
     .open = "<|START_ACTION|>",
     .close = "<|END_ACTION|>",
     .arguments = "parameters"},
    /* Granite, Phi-4: a list of objects */
    {.name = "list",
     .clue = "<|tool_call|>",
     .open = "<|tool_call|>",
     .close = "<|/tool_call|>",
     .arguments = "arguments"},
    /* Gemma 4; FunctionGemma */
    {.name = "gemma",
     .clue = "<|tool_call>",
     .open = "<|tool_call>",
     .close = "<tool_call|>",
     .quote = "<|\"|>",
     .lead = "call:",
     .arguments = "arguments"},
    {.name = "functiongemma",
     .clue = "<start_function_call>",
     .open = "<start_function_call>",
     .close = "<end_function_call>",
     .quote = "<escape>",
     .lead = "call:",
     .arguments = "arguments"},
    {.name = "minimax m3",
     .clue = M3,
     .open = M3 "<tool_call>",
     .close = M3 "</tool_call>",
     .tags = &m3_tags,
     .arguments = "arguments"},
    {.name = "minimax",
     .clue = "<minimax:tool_call>",
     .open = "<minimax:tool_call>",
     .close = "</minimax:tool_call>",
     .tags = &minimax_tags,
     .arguments = "arguments"},
    /* DeepSeek V4; V3.2 */
    {.name = "dsml-v4",
     .clue = "dsml_token + 'tool_calls>",
     .open = "<｜DSML｜tool_calls>",
     .close = "</｜DSML｜tool_calls>",
     .tags = &dsml_tags,
     .arguments = "arguments"},
    {.name = "dsml",
     .clue = "｜DSML｜",
     .open = "<｜DSML｜function_calls>",
     .close = "</｜DSML｜function_calls>",
     .tags = &dsml_tags,
     .arguments = "arguments"},
    {.name = "seed",
     .clue = "<seed:tool_call>",
     .open = "<seed:tool_call>",
     .close = "</seed:tool_call>",
     .tags = &qwen_tags,
     .arguments = "arguments"},
    {.name = "minicpm",
     .clue = "<function name=\"",
     .tags = &minicpm_tags,
     .arguments = "arguments"},
    /* Qwen3-Coder; functionary, with an object between the tags */
    {.name = "qwen-xml",
     .clue = "<function=",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .tags = &qwen_tags,
     .arguments = "arguments"},
    /* GLM 4.5 and later */
    {.name = "glm",
     .clue = "<arg_key>",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .tags = &glm_tags,
     .arguments = "arguments"},
    /* Apertus: a list of objects {name: arguments} */
    {.name = "apertus",
     .clue = "<|tools_prefix|>",
     .open = "<|tools_prefix|>",
     .close = "<|tools_suffix|>",
     .keyed = true,
     .arguments = "arguments"},
    /* Nemotron Nano 2: a list of objects */
    {.name = "nemotron",
     .clue = "<TOOLCALL>",
     .open = "<TOOLCALL>",
     .close = "</TOOLCALL>",
     .arguments = "arguments"},
    /* Hunyuan, Apriel: a list of objects; MiniMax-M1: objects on lines of their own */
    {.name = "tool_calls",
     .clue = "<tool_calls>",
     .open = "<tool_calls>",
     .close = "</tool_calls>",
     .arguments = "arguments"},
    /* GigaChat 3.1: one object */
    {.name = "gigachat",
     .clue = "<|function_call|>",
     .open = "<|function_call|>",
     .arguments = "arguments"},
    /* LFM2: [f(a=1), g()]; some of its templates do not show a call */
    {.name = "lfm2",
     .clue = "List of tools: ",
     .open = "<|tool_call_start|>",
     .close = "<|tool_call_end|>",
     .python = true,
     .arguments = "arguments"},
    /* Hermes, Qwen 2.5, Qwen 3, Granite 3.3: one object each */
    {.name = "hermes",
     .clue = "<tool_call>",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .arguments = "arguments"},
    /* Llama 4, and Llama 3.2 as documented: [f(a=1), g()], or an object */
    {.name = "pythonic",
     .clue = "<|python_start|>",
     .open = "<|python_start|>",
     .close = "<|python_end|>",
     .bare = true,
     .python = true,
     .arguments = "parameters"},
    {.name = "pythonic list",
     .clue = "[func_name1(",
     .bare = true,
     .python = true,
     .arguments = "parameters"},
    /* Llama 3.1: the answer is an object, sometimes after a marker */
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

void call_format_markers(const struct call_format *f, const char *out[CALL_MARKERS + 1])
{
    const struct call_tags none = {0}, *t = f->tags ? f->tags : &none;
    const char *all[] = {f->open,       f->close,
                         f->around[0],  f->around[1],
                         f->separator,  f->name_close,
                         t->name_open,  t->key_open,
                         t->key_close,  t->end,
                         t->value_open, t->value_close,
                         f->quote,      t->name_open ? NULL : t->name_close};
    _Static_assert(sizeof(all) / sizeof(all[0]) <= CALL_MARKERS, "CALL_MARKERS");
    int n = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i])
            out[n++] = all[i];
    out[n] = NULL;
}
