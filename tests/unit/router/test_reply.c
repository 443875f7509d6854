/* What a model's text says, in each way of writing calls, however the text is split. */
#include "router/chat/reply.h"
#include "tests/check/random.h"
#include "tests/unit/test.h"
#include <string.h>

static const struct call_format *hermes, *llama, *mistral, *deepseek, *granite;
static const char *const names[] = {"f", "get_weather"};

static int find(void **state)
{
    (void)state;
    hermes = call_format_find("x <tool_call> y");
    llama = call_format_find("{{- '<|python_tag|>' }}");
    mistral = call_format_find("[TOOL_CALLS]");
    deepseek = call_format_find("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>");
    granite = call_format_find("<|tool_call|>");
    assert_ptr_equal(call_format_find("{{ tools }}"), &call_format_bare);
    return 0;
}

enum { THINKS = 1, OPENED = 2, FORCED = 4 };
struct row {
    const struct call_format *const *format; /* NULL: no tools */
    unsigned flags;
    const char *text, *want; /* "reasoning|content|name(arguments)", "..." behind a cut call */
};
static const struct call_format *const none = NULL, *bare = &call_format_bare;
#define SEP   "<｜tool▁sep｜>"
#define DS(x) "<｜tool▁call▁begin｜>" x "<｜tool▁call▁end｜>"

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
    {&hermes, 0, "x <tool_call>not json</tool_call>", "|x<tool_call>not json</tool_call>|"},
    {&hermes, 0, "<tool_call>{\"nom\":7}</tool_call>", "|<tool_call>{\"nom\":7}</tool_call>|"},
    {&hermes, 0, "<tool_call>{\"name\":}", "|<tool_call>{\"name\":}|"},
    {&hermes, 0, "<tool_call>{\"name\":7}", "|<tool_call>{\"name\":7}|"},
    {&hermes, 0, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "||f({\"a\":...)"},
    {&hermes, 0, "<tool_call>{\"na", "|<tool_call>{\"na|"},
    {&hermes, 0, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\" <b></tool_call>z",
     "|b></tool_call>z|f({\"a\" ...)"},
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
    /* forced */
    {&hermes, FORCED, " {\"name\": \"f\", \"arguments\": {\"a\": \"<tool_call>\"}}",
     "||f({\"a\": \"<tool_call>\"})"},
    {&llama, FORCED,
     "[{\"name\": \"f\", \"parameters\": {}}, {\"name\": \"f\", \"parameters\": {\"a\"",
     "||f({})f({\"a\"...)"},
    {&hermes, FORCED, "abc", "|abc|"},
};

static void init(struct reply *r, const struct row *row)
{
    *r = (struct reply){0};
    reply_init(r, &(struct reply_config){.format = *row->format,
                                         .forced = row->flags & FORCED,
                                         .may_think = row->flags & THINKS,
                                         .thinking = row->flags & OPENED,
                                         .names = names,
                                         .n_names = 2});
}

static void add(struct buf *out, const struct buf *b) { buf_add(out, b->p ? b->p : "", b->len); }

static void summary(struct reply *r, struct buf *out)
{
    buf_reset(out);
    add(out, &r->reasoning);
    buf_ch(out, '|');
    add(out, &r->content);
    buf_ch(out, '|');
    for (uint32_t i = 0; i < r->n_calls; i++) {
        assert_int_equal(strlen(r->calls[i].id), 9);
        buf_fmt(out, "%s(", r->calls[i].name);
        add(out, &r->calls[i].arguments);
        buf_str(out, r->calls[i].whole ? ")" : "...)");
    }
}

/* cut[0..n): where one piece ends and the next begins. What was said is never taken back. */
static void play(const struct row *row, const size_t *cut, int n, struct buf *out)
{
    struct reply r;
    size_t len = strlen(row->text), from = 0, content = 0, reasoning = 0, arguments = 0;
    uint32_t calls = 0;
    init(&r, row);
    for (int i = 0; i <= n; i++) {
        size_t to = i < n ? cut[i] : len;
        char *piece = malloc(to - from + 1); /* its own block, so that nothing is read beyond it */
        memcpy(piece, row->text + from, to - from);
        reply_push(&r, piece, to - from);
        free(piece);
        assert_true(r.content.len >= content && r.reasoning.len >= reasoning && r.n_calls >= calls);
        assert_true(r.n_calls > calls || !calls || r.calls[calls - 1].arguments.len >= arguments);
        content = r.content.len, reasoning = r.reasoning.len, calls = r.n_calls;
        arguments = calls ? r.calls[calls - 1].arguments.len : 0;
        from = to;
    }
    reply_end(&r);
    assert_false(r.oom);
    summary(&r, out);
    reply_free(&r);
}

static int ascending(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static void every_split_says_the_same(void **state)
{
    (void)state;
    struct buf out = BUF_INIT;
    struct rng rng = {1, 1};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t len = strlen(rows[i].text), cut[16];
        play(&rows[i], NULL, 0, &out);
        if (strcmp(out.p, rows[i].want) != 0)
            fail_msg("%s\nwanted %s\ngot    %s", rows[i].text, rows[i].want, out.p);
        for (size_t k = 0; k <= len; k++) {
            play(&rows[i], &k, 1, &out);
            assert_string_equal(out.p, rows[i].want);
        }
        for (int round = 0; round < 1000; round++) {
            int n = 1 + (int)(rng_u32(&rng) % 16);
            for (int k = 0; k < n; k++)
                cut[k] = rng_u32(&rng) % (len + 1);
            qsort(cut, (size_t)n, sizeof(cut[0]), ascending);
            play(&rows[i], cut, n, &out);
            assert_string_equal(out.p, rows[i].want);
        }
    }
    buf_free(&out);
}

/* Any text at all, made of the pieces that mean something: every split is still the same. */
static void mixed_up_text_is_read_the_same_way_too(void **state)
{
    static const char *const pieces[] = {"<tool_call>",
                                         "</tool_call>",
                                         "[TOOL_CALLS]",
                                         "[ARGS]",
                                         "<think>",
                                         "</think>",
                                         "{",
                                         "}",
                                         "[",
                                         "]",
                                         "\"name\":",
                                         "\"f\"",
                                         "\"arguments\":",
                                         ",",
                                         " ",
                                         "\n",
                                         "x",
                                         "\\",
                                         "\"",
                                         "{\"a\":1}",
                                         "<｜tool▁call▁begin｜>",
                                         SEP,
                                         "<｜tool▁call▁end｜>",
                                         "<|python_tag|>",
                                         ";",
                                         "7"};
    const struct call_format *const *of[] = {&none,     &hermes,  &llama, &mistral,
                                             &deepseek, &granite, &bare};
    (void)state;
    struct buf text = BUF_INIT, whole = BUF_INIT, out = BUF_INIT;
    struct rng rng = {2, 2};
    for (int round = 0; round < 20000; round++) {
        buf_reset(&text);
        for (uint32_t n = rng_u32(&rng) % 14 + 1; n; n--)
            buf_str(&text, pieces[rng_u32(&rng) % (sizeof(pieces) / sizeof(pieces[0]))]);
        struct row row = {of[rng_u32(&rng) % 7], rng_u32(&rng) % 8, text.p, ""};
        play(&row, NULL, 0, &whole);
        size_t cut[8];
        for (int k = 0; k < 8; k++)
            cut[k] = rng_u32(&rng) % (text.len + 1);
        qsort(cut, 8, sizeof(cut[0]), ascending);
        play(&row, cut, 8, &out);
        assert_string_equal(out.p, whole.p);
    }
    buf_free(&text);
    buf_free(&whole);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_says_the_same),
        cmocka_unit_test(mixed_up_text_is_read_the_same_way_too),
    };
    return cmocka_run_group_tests(tests, find, NULL);
}
