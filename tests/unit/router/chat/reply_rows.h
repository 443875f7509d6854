/* reply_rows.h - texts of models, and what they say: reasoning, content and calls, in each way of
 * writing calls. */
#ifndef TESTS_UNIT_ROUTER_CHAT_REPLY_ROWS_H
#define TESTS_UNIT_ROUTER_CHAT_REPLY_ROWS_H
#include "router/chat/reply.h"
#include "tests/unit/test.h"

static const struct call_format *hermes, *llama, *mistral, *deepseek, *granite, *qwen, *glm, *kimi,
    *minimax, *cohere, *python, *pylist, *harmony, *gemma, *function_gemma, *dsml, *dsml_v4, *seed,
    *minicpm, *apertus, *nemotron, *tool_calls, *gigachat, *lfm2, *hy3, *hy4, *m3, *solar, *solar2;
static const char *const names[] = {"f", "get_weather"};

static int find(void **state)
{
    (void)state;
    hermes = call_format_find("x <tool_call> y");
    llama = call_format_find("{{- '<|python_tag|>' }}");
    mistral = call_format_find("[TOOL_CALLS]");
    deepseek = call_format_find("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>");
    granite = call_format_find("<|tool_call|>");
    qwen = call_format_find("<tool_call>\n<function=' + tool_call.name");
    glm = call_format_find("<tool_call>{{ tc.name }} <arg_key>");
    kimi = call_format_find("<|tool_call_begin|>{{ id }}<|tool_call_argument_begin|>");
    minimax = call_format_find("<minimax:tool_call>");
    cohere = call_format_find("<|START_ACTION|>");
    python = call_format_find("<|python_start|> <|python_tag|>");
    pylist = call_format_find("[func_name1(params_name1=params_value1)]");
    harmony = call_format_find("<|channel|>");
    gemma = call_format_find("{{- '<|tool_call>call:' + function['name'] + '{' -}}");
    function_gemma = call_format_find("<start_function_call>call:");
    dsml = call_format_find("{%- set dsml_token = '｜DSML｜' -%} dsml_token + 'function_calls>");
    dsml_v4 = call_format_find("{%- set dsml_token = '｜DSML｜' -%} dsml_token + 'tool_calls>");
    seed = call_format_find("<seed:tool_call>\n<function=x>");
    minicpm = call_format_find("<function name=\"x\"><param name=\"y\">");
    apertus = call_format_find("<|tools_prefix|>");
    nemotron = call_format_find("<TOOLCALL>[");
    tool_calls = call_format_find("within <tool_call></tool_call> <tool_calls>[");
    gigachat = call_format_find("function_call=\"<|function_call|>\"");
    lfm2 = call_format_find("List of tools: [");
    m3 = call_format_find("{%- set ns = ']<]minimax[>[' %}<minimax:tool_call>");
    hy3 = call_format_find("{%- set HYTK = ':opensource' %}{{ '<tool_sep{}>'.format(HYTK) }}");
    hy4 = call_format_find("{%- set HYTK = ':6124c78e' %}{{ '<arg_key{}>'.format(HYTK) }}");
    solar = call_format_find("<|tool_calls|><|tool_call:begin|>{{ id }}<|tool_call:name|>");
    solar2 = call_format_find("<|tool_call:start|>{{ name }}\n<|tool_arg:start|>{{ key }}");
    assert_ptr_equal(call_format_find("{{ tools }}"), &call_format_bare);
    return 0;
}

enum { THINKS = 1, OPENED = 2, FORCED = 4, SINGLE = 8, CHANNELS = 16, JOINED = 32, MARKS = 8 };
struct row {
    const struct call_format *const *format; /* NULL: no tools */
    unsigned flags;
    const char *text, *want; /* "reasoning|content|name(arguments)", "..." behind a cut call */
};
static const struct call_format *const none = NULL, *bare = &call_format_bare;
#define M3     "]<]minimax[>["
#define ASSIST "<|start|>assistant"
#define IN(x)  "<|channel|>" x "<|message|>"
#define SEP    "<｜tool▁sep｜>"
#define DS(x)  "<｜tool▁call▁begin｜>" x "<｜tool▁call▁end｜>"

static const struct row rows[] = {
    {&none, 0, "  plain <tool_call> text \n", "|  plain <tool_call> text \n|"},
    {&none, 0, "<think>no</think>", "|<think>no</think>|"},
    /* reasoning */
    {&none, THINKS, "<think>\nso\n</think>\n\nyes", "so|yes|"},
    {&none, THINKS, "\n<think>a < b </thin </think>c", "a < b </thin|c|"},
    {&none, THINKS, "no <think>x</think>", "|no <think>x</think>|"},
    {&none, THINKS, "  <thin", "|  <thin|"},
    {&none, THINKS, "<think>cut", "cut||"},
    {&none, OPENED, "\nso\n\n</think>\n\nyes </think> ", "so|yes </think> |"},
    {&none, OPENED, "cut </th", "cut </th||"},
    {&hermes, THINKS, "<think>x</think>\n<tool_call>{\"name\":\"f\"}</tool_call>", "x||f({})"},
    {&bare, THINKS, "<think>x</think>{\"name\":\"f\",\"parameters\":{}}", "x||f({})"},
    {&none, THINKS | THOUGHT_BRACKET << MARKS, "[THINK]a </think>[/THINK] b", "a </think>|b|"},
    {&none, THINKS | THOUGHT_BRACKET << MARKS, "<think>a</think>", "|<think>a</think>|"},
    {&none, THINKS | THOUGHT_CHANNEL << MARKS, "<|channel>thought\nso\n<channel|>yes", "so|yes|"},
    {&cohere, THINKS | THOUGHT_COMMAND << MARKS,
     "<|START_THINKING|>so<|END_THINKING|><|START_ACTION|>[{\"tool_name\":\"f\"}]<|END_ACTION|>",
     "so||f({})"},
    {&none, OPENED | THOUGHT_SEED << MARKS, "so</seed:think>yes", "so|yes|"},
    {&none, THINKS | THOUGHT_KIMI << MARKS, "◁think▷so◁/think▷yes", "so|yes|"},
    /* channels */
    {&none, CHANNELS, IN("analysis") "so\n<|end|>" ASSIST IN("final") " yes <|return|>",
     "so\n| yes |"},
    {&none, CHANNELS, IN("final") "a < b <|en <|endure|> <|end", "|a < b <|en <|endure|> <|end|"},
    {&none, CHANNELS, IN("analysis") "so <|e", "so <|e||"},
    {&none, CHANNELS,
     IN("analysis") "a<|end|>" ASSIST IN("analysis") "b<|end|>" ASSIST IN(
         "commentary") "c<|end|>" ASSIST IN("final") "d",
     "a\nb|c\nd|"},
    {&none, JOINED, IN("analysis") "so<|end|>" ASSIST IN("final") "yes<|return|>", "|so\nyes|"},
    {&none, CHANNELS | OPENED, "right.<|end|>" ASSIST IN("final") "yes", "right.|yes|"},
    {&none, CHANNELS, "no channels <|end|>", "|no channels |"},
    {&none, CHANNELS, " to", "| to|"},
    {&none, CHANNELS, "<|message|>none<|end|>  " ASSIST "<|message|>either", "|none\neither|"},
    {&none, CHANNELS, "<|channel|>fin", "||"},
    {&none, CHANNELS, IN("analysis") "x<|end|><|start|>assis", "x||"},
    {&none, CHANNELS, IN("analysis") "x" ASSIST IN("final") "y", "x|y|"},
    {&none, CHANNELS, IN("analysis") "x<|end|>" IN("final") "y", "x|y|"},
    {&none, CHANNELS, IN("analysis") "x<|end|> y <|end|>z", "x| y z|"},
    {&none, CHANNELS, "<|channel|>final <|constrain|>json<|message|>{}<|return|>", "|{}|"},
    {&none, CHANNELS, "<|channel|>final<|end|>" IN("final") "x", "|x|"},
    {&none, CHANNELS, IN("commentary to=functions.f") "{}<|call|>", "|{}|"},
    {&harmony, CHANNELS,
     IN("analysis") "so<|end|>" ASSIST IN(
         "commentary to=functions.f <|constrain|>json") "{\"a\": \"<|\"}<|call|>",
     "so||f({\"a\": \"<|\"})"},
    {&harmony, CHANNELS, " to=functions.f" IN("commentary json") "{\"a\":1}<|call|>",
     "||f({\"a\":1})"},
    {&harmony, CHANNELS, IN("analysis to=f ") "{\"a\":1}<|end|>" ASSIST IN("final") "x",
     "|x|f({\"a\":1})"},
    {&harmony, CHANNELS, IN("commentary to=functions.other") "{}", "||other({})"},
    {&harmony, CHANNELS, IN("commentary to=functions.f") "<|call|>", "||f({})"},
    {&harmony, CHANNELS, IN("commentary to=functions.f") "{\"a\":1} ", "||f({\"a\":1} )"},
    {&harmony, CHANNELS, IN("commentary to=functions.f") "{\"a\":<|", "||f({\"a\":<|...)"},
    {&harmony, CHANNELS, IN("commentary to=functions.") "x", "|x|"},
    {&harmony, CHANNELS, IN("analysis to=browser.search") "{}<|call|>", "{}||"},
    {&harmony, CHANNELS,
     IN("commentary") "I look.<|end|>" ASSIST IN("commentary to=functions.f") "{}<|call|>" ASSIST
         IN("commentary to=functions.g") "{}<|call|>",
     "|I look.|f({})g({})"},
    {&harmony, CHANNELS | SINGLE,
     IN("commentary to=functions.f") "{}<|call|>" ASSIST IN(
         "commentary to=functions.g") "{}<|call|>",
     "||f({})"},
    /* Hermes, Qwen */
    {&hermes, 0,
     "Let me see.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
     "\"R}o\\\"me\", "
     "\"n\": [1, {}]}}\n</tool_call>\n",
     "|Let me see.|get_weather({\"city\": \"R}o\\\"me\", \"n\": [1, {}]})"},
    {&hermes, 0,
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</"
     "tool_call>\n<tool_call>\n{\"arguments\": "
     "{\"b\":2}, \"name\": \"g\"}\n</tool_call> done",
     "|done|f({\"a\":1})g({\"b\":2})"},
    {&hermes, 0,
     "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": \\\"\\u00e9\\\"}\"}</tool_call>",
     "||f({\"a\": \"\xc3\xa9\"})"},
    {&hermes, 0, "<tool_call>{\"name\":\"f\",\"arguments\":null}</tool_call>", "||f({})"},
    {&hermes, 0, "<tool_call>{\"name\":\"f\"}<tool_call>{\"name\":\"g\"}</tool_call>",
     "||f({})g({})"},
    {&hermes, 0, "a < b <tool <tool_call", "|a < b <tool <tool_call|"},
    {&hermes, 0, "x <tool_call>not json</tool_call>", "|x <tool_call>not json</tool_call>|"},
    {&hermes, 0, "<tool_call>{\"nom\":7}</tool_call>", "|<tool_call>{\"nom\":7}</tool_call>|"},
    {&hermes, 0, "<tool_call>{\"name\":}", "|<tool_call>{\"name\":}|"},
    {&hermes, 0, "<tool_call>{\"name\":7}", "|<tool_call>{\"name\":7}|"},
    {&hermes, 0, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "||f({\"a\":...)"},
    {&hermes, 0, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\n</tool_call>b",
     "|b|f({\"a\":\n...)"},
    {&hermes, 0, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":$}}", "|$}}|f({\"a\":...)"},
    {&hermes, 0, "<tool_call>{\"na", "|<tool_call>{\"na|"},
    {&hermes, 0, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\" <b></tool_call>z",
     "|<b></tool_call>z|f({\"a\" ...)"},
    {&hermes, 0, "<tool_call>[{\"name\":\"f\"},{\"name\":\"g\"}]</tool_call>", "||f({})g({})"},
    {&hermes, 0,
     "<tool_call>{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}</"
     "tool_call>",
     "||f({})"},
    /* Llama 3 */
    {&llama, 0, "{\"name\": \"f\", \"parameters\": {\"x\": 1.5e3}}", "||f({\"x\": 1.5e3})"},
    {&llama, 0,
     "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"get_weather\", "
     "\"parameters\": {\"c\": true}}",
     "||f({})get_weather({\"c\": true})"},
    {&llama, 0, "{\"name\": \"Ann\", \"age\": 3}", "|{\"name\": \"Ann\", \"age\": 3}|"},
    {&llama, 0, "{\"age\": 3, \"name\": \"Ann\"} is JSON",
     "|{\"age\": 3, \"name\": \"Ann\"} is JSON|"},
    {&llama, 0, "Sure: {\"name\":\"f\"}", "|Sure: {\"name\":\"f\"}|"},
    {&bare, 0, "[{\"name\":\"f\",\"arguments\":{}},{\"name\":\"f\"}]", "||f({})f({})"},
    {&bare, 0, "[1, 2]", "|[1, 2]|"},
    /* Mistral */
    {&mistral, 0,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": [\"]\"]}}, {\"name\": \"g\", "
     "\"arguments\": {}, \"id\": \"123456789\"}]",
     "||f({\"a\": [\"]\"]})g({})"},
    {&mistral, 0, "Hm.[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g{\"b\": {}}",
     "|Hm.|f({\"a\": 1})g({\"b\": {}})"},
    {&mistral, 0, "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}", "||f({})"},
    {&mistral, 0, "[TOOL_CALLS]f[AR", "|[TOOL_CALLS]f[AR|"},
    /* DeepSeek */
    {&deepseek, 0,
     "Ok<｜tool▁calls▁begin｜>" DS("function" SEP "f\n```json\n{\"a\": 1}\n```") "\n" DS(
         "function" SEP "get_weather\n```json\n{}\n```") "<｜tool▁calls▁end｜>",
     "|Ok|f({\"a\": 1})get_weather({})"},
    {&deepseek, 0, "<｜tool▁calls▁begin｜>" DS("f" SEP "{\"a\": 1}") "<｜tool▁calls▁end｜>",
     "||f({\"a\": 1})"},
    /* Granite, Phi-4 */
    {&granite, 0, "<|tool_call|>[{\"name\":\"f\",\"arguments\":{}}]<|/tool_call|>", "||f({})"},
    /* Qwen3-Coder */
    {&qwen, 0,
     "I "
     "look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRo\"m\\e\n\n</par\n</"
     "parameter>\n"
     "<parameter=days>\n 2 "
     "\n</parameter>\n<parameter=maybe>\nnull\n</parameter>\n</function>\n</tool_call>\nok",
     "|I look.ok|get_weather({\"city\": \"Ro\\\"m\\\\e\\n\\n</par\", \"days\": 2, \"maybe\": "
     "null})"},
    {&qwen, 0,
     "<tool_call><function=f></function></tool_call>\n<tool_call>\n<function=f>\n<parameter=x>True"
     "</parameter></function></tool_call>",
     "||f({})f({\"x\": true})"},
    {&qwen, 0,
     "<tool_call><function=f><parameter=y>{\"a\": [1]}</parameter><parameter=z>a b"
     "</parameter></function>",
     "||f({\"y\": {\"a\": [1]}, \"z\": \"a b\"})"},
    {&qwen, 0,
     "<tool_call><function=f><parameter=city>12</parameter><parameter=maybe>7</parameter>"
     "</tool_call>x",
     "|x|f({\"city\": \"12\", \"maybe\": \"7\"})"},
    {&qwen, 0, "<tool_call>\n<function=f>\n<parameter=city>\nab\n</pa",
     "||f({\"city\": \"ab\\n</pa...)"},
    {&qwen, 0, "<tool_call>\n<function=f>\n<parameter=days>\n1", "||f({\"days\": ...)"},
    {&hermes, 0, "a \n <tool_call> no", "|a \n <tool_call> no|"},
    {&qwen, 0, "<tool_call>no</tool_call>", "|<tool_call>no</tool_call>|"},
    {&qwen, 0, "<tool_call>\n<function=f", "|<tool_call>\n<function=f|"},
    /* without the opening marker: declared functions only */
    {&qwen, 0,
     "Ok.\n<function=f>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>\n"
     "<function=get_weather></function>",
     "|Ok.|f({\"city\": \"Rome\"})get_weather({})"},
    {&qwen, 0, "write <function=g>\n<parameter=a>1</parameter></function> <function",
     "|write <function=g>\n<parameter=a>1</parameter></function> <function|"},
    {&qwen, 0, "<tool_call><function=f></function><function=g></function></tool_call>",
     "||f({})g({})"},
    {&minimax, 0, "<invoke name=\"f\">\n</invoke>\n</minimax:tool_call>", "||f({})"},
    {&qwen, 0, "<tool_call>\n<function=>x", "|<tool_call>\n<function=>x|"},
    {&qwen, FORCED, "{\"name\": \"f\", \"arguments\": {\"city\": \"<\"}}",
     "||f({\"city\": \"<\"})"},
    {&qwen, SINGLE, "<tool_call><function=f></function></tool_call><tool_call><function=f>",
     "||f({})"},
    /* GLM */
    {&glm, 0,
     "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days"
     "</arg_key><arg_value>2</arg_value>\n</tool_call>\n<tool_call>f</tool_call> ok",
     "|ok|get_weather({\"city\": \"Rome\", \"days\": 2})f({})"},
    {&glm, 0, "<tool_call>f<arg_key>a</arg_key><arg_value>b\"\nc</arg_value></tool_call>",
     "||f({\"a\": \"b\\\"\\nc\"})"},
    {&glm, 0, "<tool_call></tool_call>", "|<tool_call></tool_call>|"},
    {&glm, 0, "<tool_call>f\n<arg_key>a</arg_key>no<arg_value>", "|o<arg_value>|f(...)"},
    /* Hunyuan 3 and 4 */
    {&hy3, THINKS | THOUGHT_HY3 << MARKS,
     "<think:opensource>so</think:opensource>On it.\n<tool_calls:opensource>\n"
     "<tool_call:opensource>get_weather<tool_sep:opensource>\n"
     "<arg_key:opensource>city</arg_key:opensource>\n"
     "<arg_value:opensource>Rome\n</arg_value:opensource>\n"
     "<arg_key:opensource>days</arg_key:opensource>\n"
     "<arg_value:opensource>2</arg_value:opensource>\n</tool_call:opensource>\n"
     "<tool_call:opensource>f<tool_sep:opensource>\n</tool_call:opensource>\n"
     "</tool_calls:opensource>",
     "so|On it.|get_weather({\"city\": \"Rome\\n\", \"days\": 2})f({})"},
    {&hy3, 0, "<tool_call:opensource>f</tool_call:opensource>", "||f({})"},
    {&hy3, 0, "a <tool_sep:opensource> b", "|a <tool_sep:opensource> b|"},
    {&hy4, OPENED | THOUGHT_HY4 << MARKS,
     "so</think:6124c78e><tool_calls:6124c78e>\n<tool_call:6124c78e>f\n"
     "<arg_key:6124c78e>a</arg_key:6124c78e>\n"
     "<arg_value:6124c78e>x < y</arg_value:6124c78e>\n</tool_call:6124c78e>\n"
     "</tool_calls:6124c78e>",
     "so||f({\"a\": \"x < y\"})"},
    /* MiniMax M3 */
    {&m3, OPENED | THOUGHT_MINIMAX << MARKS,
     "so</mm:think>On it." M3 "<tool_call>\n" M3 "<invoke name=\"get_weather\">" M3 "<city>Rome" M3
     "</city>" M3 "<days>3" M3 "</days>" M3 "<tags>" M3 "<item>a < b" M3 "</item>" M3 "<item>2" M3
     "</item>" M3 "</tags>" M3 "<opts>" M3 "<item>x" M3 "</item>" M3 "<unit>" M3 "<unit>C" M3
     "</unit>" M3 "</unit>" M3 "</opts>" M3 "</invoke>\n" M3 "<invoke name=\"f\">" M3
     "</invoke>\n" M3 "</tool_call> x",
     "so|On it.x|get_weather({\"city\": \"Rome\", \"days\": 3, \"tags\": [\"a < b\", 2], "
     "\"opts\": \"" M3 "<item>x" M3 "</item>" M3 "<unit>" M3 "<unit>C" M3 "</unit>" M3 "</unit>"
     "\"})f({})"},
    {&m3, 0,
     M3 "<tool_call>" M3 "<invoke name=\"f\">" M3 "<a>x</a>" M3 "<b>\n" M3 "<c>" M3 "<item>" M3
        "<d>true" M3 "</d>" M3 "</item>" M3 "</c>\n" M3 "<e>" M3 "</e>" M3 "</b>" M3 "</tool_call>",
     "||f({\"a\": \"x\", \"b\": {\"c\": [{\"d\": true}], \"e\": \"\"}})"},
    {&m3, 0, M3 "<invoke name=\"f\">" M3 "<a><b>i</b></a" M3, "||f({\"a\": ...)"},
    {&m3, 0, "a " M3 "b <invoke name=\"f\">", "|a " M3 "b <invoke name=\"f\">|"},
    /* MiniMax */
    {&none, THINKS | THOUGHT_MINIMAX << MARKS, "<mm:think>so</mm:think>yes", "so|yes|"},
    {&minimax, 0,
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"city\">a</parameter>\n</invoke>\n"
     "<invoke name=\"get_weather\">\n</invoke>\n</minimax:tool_call>",
     "||f({\"city\": \"a\"})get_weather({})"},
    /* Kimi */
    {&kimi, 0,
     "Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_"
     "begin|>{\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.f:1"
     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "|Ok|get_weather({\"a\": 1})f({})"},
    /* Solar Open, whose reasoning is a message of its own; Solar Open 2 */
    {&none, THINKS | THOUGHT_SOLAR << MARKS,
     "<|think|>so<|end|><|begin|>assistant<|content|>yes <|end|> <|content|>",
     "so|yes <|end|> <|content|>|"},
    {&none, THINKS | THOUGHT_SOLAR << MARKS, "<|content|>yes", "|yes|"},
    {&none, THINKS | THOUGHT_SOLAR << MARKS, "<|think|>cut <|end", "cut <|end||"},
    {&solar, THINKS | THOUGHT_SOLAR << MARKS,
     "<|think|>so<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5"
     "<|tool_call:name|>get_weather<|tool_call:args|>{\"a\": \"<|\"}<|tool_call:end|>"
     "<|tool_call:begin|>b<|tool_call:name|>f<|tool_call:args|>{}<|tool_call:end|>",
     "so||get_weather({\"a\": \"<|\"})f({})"},
    {&solar, THINKS | THOUGHT_SOLAR << MARKS,
     "<|content|>On it.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>0"
     "<|tool_call:name|>f<|tool_call:args|>{\"a\"",
     "|On it.|f({\"a\"...)"},
    {&solar, FORCED | OPENED | THOUGHT_SOLAR << MARKS,
     "so<|end|><|begin|>assistant<|content|>[{\"name\": \"f\", \"arguments\": {}}]", "so||f({})"},
    {&solar2, OPENED | THOUGHT_SOLAR2 << MARKS,
     "so<|think:end|>On it.<|tool_call:start|>get_weather\n"
     "<|tool_arg:start|>city<|tool_arg:value|>Rome\n<|tool_arg:end|>\n"
     "<|tool_arg:start|>days<|tool_arg:value|>2<|tool_arg:end|>\n<|tool_call:end|>\n"
     "<|tool_call:start|>f\n<|tool_call:end|>",
     "so|On it.|get_weather({\"city\": \"Rome\\n\", \"days\": 2})f({})"},
    /* Cohere */
    {&cohere, 0,
     "<|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
     "{\"a\": 1}}\n]<|END_ACTION|>",
     "||f({\"a\": 1})"},
    /* Python */
    {&python, 0,
     "<|python_start|>[get_weather(city='Ro\"me', n=-1.5e3, ok=True, l=[1, (2,3), {'a': None}]), "
     "f()]<|python_end|>",
     "||get_weather({\"city\": \"Ro\\\"me\", \"n\": -1.5e3, \"ok\": true, \"l\": [1, [2,3], "
     "{\"a\": null}]})f({})"},
    {&python, 0, "[f(a='x\\'\\n\\x41\\q')]", "||f({\"a\": \"x'\\n\\u0041\\\\q\"})"},
    {&lfm2, 0,
     "Sure. <|tool_call_start|>[f(a='x', b={\"c\": false, 'd': null}), g()]<|tool_call_end|>",
     "|Sure.|f({\"a\": \"x\", \"b\": {\"c\": false, \"d\": null}})g({})"},
    /* an object of one member: name and arguments */
    {&apertus, 0, "<|tools_prefix|>[{\"f\": {\"name\": 1}}, {\"g\": {}}]<|tools_suffix|> x",
     "|x|f({\"name\": 1})g({})"},
    {&apertus, 0, "<|tools_prefix|>[{\"f\": 1}]<|tools_suffix|>",
     "|<|tools_prefix|>[{\"f\": 1}]<|tools_suffix|>|"},
    {&apertus, FORCED, "{\"name\": \"f\", \"arguments\": {\"a\": {}}}", "||f({\"a\": {}})"},
    {&nemotron, 0, "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}]</TOOLCALL>", "||f({})"},
    {&tool_calls, 0,
     "a\n<tool_calls>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\"}]</tool_calls>",
     "|a|f({})g({})"},
    {&tool_calls, 0,
     "<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n{\"name\": \"g\", \"arguments\": "
     "{}}\n</tool_calls>x",
     "|x|f({\"a\": 1})g({})"},
    {&gigachat, 0, "<|function_call|>{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
     "||f({\"a\": 1})"},
    /* tags that say whether a value is a string */
    {&dsml, 0,
     "Hm.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
     "string=\"true\">\n1\n</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" "
     "string=\"false\">[1, "
     "{\"c\": null}]</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n"
     "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "|Hm.|f({\"a\": \"\\n1\\n\", \"b\": [1, {\"c\": null}]})g({})"},
    {&dsml_v4, 0,
     "<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"city\" "
     "string=\"false\">null</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>",
     "||f({\"city\": null})"},
    {&minicpm, 0,
     "ok <function name=\"f\"><param name=\"a\">1</param><param "
     "name=\"city\"><![CDATA[<b>]]></param>"
     "</function>\n<function name=\"get_weather\"></function>",
     "|ok|f({\"a\": 1, \"city\": \"<b>\"})get_weather({})"},
    {&minicpm, 0, "<function name=\"f\"><param name=\"city\">Rome", "||f({\"city\": ...)"},
    {&minicpm, 0, "a <function name=\"other\"></function>",
     "|a <function name=\"other\"></function>|"},
    {&seed, 0,
     "<seed:tool_call>\n<function=f>\n<parameter=list>['a', {'b': True}]</parameter>\n"
     "<parameter=any>['a']</parameter>\n</function>\n</seed:tool_call> x",
     "|x|f({\"list\": [\"a\", {\"b\": true}], \"any\": \"['a']\"})"},
    /* functionary, Llama 3.1: an object between tags */
    {&qwen, 0, "<function=f>{\"a\": \"</function>\"}</function><function=get_weather>{}</function>",
     "||f({\"a\": \"</function>\"})get_weather({})"},
    {&pylist, 0, " [f(a=\"it's\"), get_weather( city = 'x', )]",
     "||f({\"a\": \"it's\"})get_weather({\"city\": \"x\"})"},
    {&pylist, 0, "[g(a=1)] is no call", "|[g(a=1)] is no call|"},
    {&pylist, 0, "[1, 2]", "|[1, 2]|"},
    {&pylist, 0, "[see the note](x)", "|[see the note](x)|"},
    {&pylist, 0, "[{\"name\": \"f\", \"parameters\": {}}]", "||f({})"},
    {&pylist, 0, "[f(a='x", "||f({\"a\": \"x...)"},
    {&pylist, 0, "[f(a=x, b=[y, 1])]", "||f({\"a\": \"x\", \"b\": [\"y\", 1]})"},
    {&pylist, 0, "[f(a=$)]", "|)]|f({\"a\": ...)"},
    {&pylist, SINGLE, "[f(), f()]", "||f({})"},
    /* Gemma 4: quotes of its own */
    {&gemma, 0,
     "Hm.\n<|tool_call>call:get_weather{city:<|\"|>Ro\"m\\e, <|\n\t{1}:]<|\"|>,n:-1.5e3,ok:true,"
     "l:[<|\"|>a<|\"|>,[2,[]],{k:1,<|\"|>x:y<|\"|>:None}],o:{}}<tool_call|>"
     "<|tool_call>call:f{}<tool_call|>",
     "|Hm.|get_weather({\"city\": \"Ro\\\"m\\\\e, <|\\n\\u0009{1}:]\", \"n\": -1.5e3, \"ok\": "
     "true, "
     "\"l\": [\"a\", [2, []], {\"k\": 1, \"x:y\": null}], \"o\": {}})f({})"},
    {&gemma, 0,
     "<|tool_call> call:ns:g-2.h { a : <|\"|><|\"|> , b : null , c:[ 1 , ], }\n<tool_call|> ok",
     "|ok|ns:g-2.h({\"a\": \"\", \"b\": null, \"c\": [1]})"},
    /* neither quoted nor a value: text; in JSON's quotes */
    {&gemma, 0,
     "<|tool_call>call:f{d:2024-01-02,t:12:30 h ,z:01,s:\"a, \\\"}\\n\",\"k\":\"\",e:\"\\q\"}",
     "||f({\"d\": \"2024-01-02\", \"t\": \"12:30 h\", \"z\": \"01\", \"s\": \"a, \\\"}\\n\", "
     "\"k\": \"\", "
     "\"e\": \"\\\"\\\\q\\\"\"})"},
    {&gemma, 0, "<|tool_call>call:f{a:<|\"|>x<|\"", "||f({\"a\": \"x<|\\\"...)"},
    {&gemma, 0, "<|tool_call>call:f{a:1,b:tr", "||f({\"a\": 1, \"b\": ...)"},
    {&gemma, 0, "<|tool_call>call:f{a:}b", "|b|f({\"a\": ...)"},
    {&gemma, 0, "<|tool_call>call:f{a:[1}x", "|x|f({\"a\": [1...)"},
    {&gemma, 0, "<|tool_call>call:f{a:<|xy", "|y|f({\"a\": ...)"},
    {&gemma, 0, "<|tool_call>call:f{,}x", "|}x|f({...)"},
    {&gemma, 0, "<|tool_call>{\"name\":\"f\"}", "|<|tool_call>{\"name\":\"f\"}|"},
    {&gemma, 0, "a <|tool_call>hello<tool_call|>", "|a <|tool_call>hello<tool_call|>|"},
    {&gemma, 0, "<|tool_call>call:{}<tool_call|>", "|<|tool_call>call:{}<tool_call|>|"},
    {&gemma, 0, "<|tool_call>call:f<tool_call|>", "|<|tool_call>call:f<tool_call|>|"},
    {&gemma, 0, "a <|tool_call>call:f", "|a <|tool_call>call:f|"},
    {&gemma, FORCED, "{\"name\": \"f\", \"arguments\": {\"a\": \"<|tool_call>\"}}",
     "||f({\"a\": \"<|tool_call>\"})"},
    {&gemma, SINGLE, "<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:f{}<tool_call|>",
     "||f({\"a\": 1})"},
    {&function_gemma, 0,
     "<start_function_call>call:f{a:<escape>b < c<escape>,n:2}<end_function_call>",
     "||f({\"a\": \"b < c\", \"n\": 2})"},
    /* forced */
    {&hermes, FORCED, " {\"name\": \"f\", \"arguments\": {\"a\": \"<tool_call>\"}}",
     "||f({\"a\": \"<tool_call>\"})"},
    {&llama, FORCED,
     "[{\"name\": \"f\", \"parameters\": {}}, {\"name\": \"f\", \"parameters\": {\"a\"",
     "||f({})f({\"a\"...)"},
    {&hermes, FORCED, "abc", "|abc|"},
    /* one call and no more */
    {&hermes, SINGLE,
     "a <tool_call>{\"name\":\"f\"}</tool_call> b <tool_call>{\"name\":\"g\"}</tool_call>",
     "|a|f({})"},
    {&hermes, SINGLE, "<tool_call>x</tool_call><tool_call>{\"name\":\"g\"}</tool_call>",
     "|<tool_call>x</tool_call>|g({})"},
    {&hermes, SINGLE, "<tool_call>{\"name\":\"f\",\"arguments\":{<}<tool_call>{\"name\":\"g\"}",
     "|<}<tool_call>{\"name\":\"g\"}|f({...)"},
    {&llama, SINGLE, "[{\"name\": \"f\"}, {\"name\": \"f\"}]", "||f({})"},
    {&mistral, SINGLE, "[TOOL_CALLS]f{}[TOOL_CALLS]f{}", "||f({})"},
};
#endif
