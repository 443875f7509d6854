/* What a model's text says, in each way of writing calls, however the text is split. */
#include "common/json/json.h"
#include "tests/check/random.h"
#include "tests/unit/router/chat/reply_rows.h"
#include <string.h>

static unsigned types(const void *of, const char *function, const char *parameter)
{
    (void)of;
    assert_true(*function);
    return !strcmp(parameter, "city")    ? REPLY_STRING
           : !strcmp(parameter, "maybe") ? REPLY_STRING | REPLY_NULL
           : !strcmp(parameter, "list")  ? REPLY_OTHER
                                         : 0;
}

static const char opened[] = "assistant<|channel|>analysis<|message|>I was ";

static void init(struct reply *r, const struct row *row)
{
    *r = (struct reply){0};
    /* a function's parameters: city is text, maybe text or null, the others are not known */
    reply_init(r, &(struct reply_config){.format = *row->format,
                                         .forced = row->flags & FORCED,
                                         .thoughts = (enum thought_marks)(row->flags >> MARKS),
                                         .may_think = row->flags & THINKS,
                                         .thinking = row->flags & OPENED,
                                         .single = row->flags & SINGLE,
                                         .channels = row->flags & (CHANNELS | JOINED),
                                         .joined = row->flags & JOINED,
                                         .opened = row->flags & OPENED ? opened : NULL,
                                         .names = names,
                                         .n_names = 2,
                                         .types = types});
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
        if (r->config.format->prefix)
            assert_memory_equal(r->calls[i].id, "functions.", 10);
        else
            assert_int_equal(strlen(r->calls[i].id), 9);
        buf_fmt(out, "%s(", r->calls[i].name);
        add(out, &r->calls[i].arguments);
        buf_str(out, r->calls[i].whole ? ")" : "...)");
    }
}

/* All that is new, each piece in brackets: "[R reasoning][C content][f arguments]". */
static void tell(struct reply *r, struct reply_cursor *at, bool ended, struct buf *out)
{
    struct reply_event event;
    while (reply_next(r, at, ended, &event))
        if (event.what == REPLY_OPENED)
            buf_fmt(out, "[%s ", event.call ? event.call->name : event.kind ? "C" : "R");
        else if (event.what == REPLY_GREW)
            buf_add(out, event.text, event.n);
        else
            buf_ch(out, ']');
}

/* A stream of pieces adds up to what a whole answer is read as. */
static void check_pieces(struct reply *r, const struct buf *told)
{
    struct buf whole = BUF_INIT;
    struct reply_cursor at = {0};
    struct reply_event event;
    size_t content = 0, reasoning = 0, calls = 0;
    tell(r, &at, true, &whole);
    assert_true(whole.len == told->len && (!told->len || !memcmp(whole.p, told->p, told->len)));
    at = (struct reply_cursor){0};
    while (reply_next(r, &at, true, &event))
        if (event.what == REPLY_CLOSED) {
            calls += event.kind == REPLY_CALL;
            content += event.kind == REPLY_CONTENT ? event.n : 0;
            reasoning += event.kind == REPLY_REASONING ? event.n : 0;
        }
    assert_true(calls == r->n_calls && content == r->content.len && reasoning == r->reasoning.len);
    buf_free(&whole);
}

/* cut[0..n): where one piece ends and the next begins. What was said is never taken back. */
static void play(const struct row *row, const size_t *cut, int n, struct buf *out)
{
    struct reply r;
    size_t len = strlen(row->text), from = 0, content = 0, reasoning = 0, arguments = 0;
    uint32_t calls = 0;
    struct reply_cursor at = {0};
    struct buf told = BUF_INIT;
    init(&r, row);
    for (int i = 0; i <= n; i++) {
        size_t to = i < n ? cut[i] : len;
        char *piece = malloc(to - from + 1); /* its own block, so that nothing is read beyond it */
        memcpy(piece, row->text + from, to - from);
        reply_push(&r, piece, to - from);
        free(piece);
        tell(&r, &at, false, &told);
        assert_true(r.content.len >= content && r.reasoning.len >= reasoning && r.n_calls >= calls);
        assert_true(r.n_calls > calls || !calls || r.calls[calls - 1].arguments.len >= arguments);
        content = r.content.len, reasoning = r.reasoning.len, calls = r.n_calls;
        arguments = calls ? r.calls[calls - 1].arguments.len : 0;
        from = to;
    }
    reply_end(&r);
    assert_false(r.oom);
    tell(&r, &at, true, &told);
    check_pieces(&r, &told);
    buf_free(&told);
    summary(&r, out);
    reply_free(&r);
}

static int ascending(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

TEST(every_split_says_the_same)
{
    struct buf out = BUF_INIT;
    struct rng rng = {1, 1};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t len = strlen(rows[i].text), cut[16];
        play(&rows[i], NULL, 0, &out);
        if (strcmp(out.p, rows[i].want) != 0)
            print_error("%s\nwanted %s\ngot    %s\n", rows[i].text, rows[i].want, out.p);
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

TEST(pieces_keep_their_order)
{
    static const char text[] = "<think>x</think>a <tool_call>{\"name\":\"f\"}</tool_call>\n"
                               "<tool_call>{\"name\":\"g\",\"arguments\":[]}</tool_call>b";
    struct reply r;
    struct reply_cursor at = {0};
    struct buf out = BUF_INIT;
    init(&r, &(struct row){&hermes, THINKS, "", ""});
    reply_push(&r, text, strlen(text));
    reply_end(&r);
    tell(&r, &at, true, &out);
    assert_string_equal(out.p, "[R x][C a][f {}][g []][C b]");
    reply_free(&r);
    buf_free(&out);
}

/* Arguments in quotes of the format are JSON whatever the quotes contain; nesting has a bound. */
TEST(quoted_arguments_are_json)
{
    struct buf text = BUF_INIT;
    struct err e;
    for (int depth = 1; depth < 70; depth++) {
        struct reply r;
        buf_reset(&text);
        buf_str(&text, "<|tool_call>call:f{a:");
        for (int i = 0; i < depth; i++)
            buf_str(&text, "[");
        buf_str(&text, "<|\"|>");
        for (int c = 1; c < 128; c++)
            buf_ch(&text, (char)c);
        buf_str(&text, "<|\"|>");
        for (int i = 0; i < depth; i++)
            buf_str(&text, "]");
        buf_str(&text, "}<tool_call|>");
        init(&r, &(struct row){&gemma, 0, "", ""});
        reply_push(&r, text.p, text.len);
        reply_end(&r);
        assert_int_equal(r.calls[0].whole, depth < 64);
        if (depth < 64) {
            cJSON *j = json_parse(r.calls[0].arguments.p, r.calls[0].arguments.len, &e);
            const cJSON *v = json_get(j, "a");
            while (cJSON_IsArray(v))
                v = json_first(v);
            for (int c = 1; c < 128; c++)
                assert_int_equal(cJSON_GetStringValue(v)[c - 1], c);
            cJSON_Delete(j);
        }
        reply_free(&r);
    }
    buf_free(&text);
}

TEST(markers_of_a_format_are_shown)
{
    static const char *const shown[] = {"<|tool_call>", "<tool_call|>", "<|\"|>"};
    struct reply r;
    init(&r, &(struct row){&gemma, 0, "", ""});
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
        assert_true(reply_is_marker(&r, shown[i], strlen(shown[i])));
    assert_false(reply_is_marker(&r, "<|tool_response>", 16));
    reply_free(&r);
    init(&r, &(struct row){&dsml, 0, "", ""});
    assert_true(reply_is_marker(&r, "｜DSML｜", strlen("｜DSML｜")));
    assert_false(reply_is_marker(&r, "<｜end▁of▁sentence｜>", strlen("<｜end▁of▁sentence｜>")));
    reply_free(&r);
}

/* Any text at all, made of the pieces that mean something: every split is still the same. */
TEST(mixed_up_text_is_read_the_same_way_too)
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
                                         "7",
                                         "<function=",
                                         ">",
                                         "<parameter=",
                                         "</parameter>",
                                         "</function>",
                                         "<arg_key>",
                                         "</arg_key>",
                                         "<arg_value>",
                                         "</arg_value>",
                                         "city",
                                         "f(",
                                         "a=",
                                         ")",
                                         "'",
                                         "functions.f:0",
                                         "<|tool_call_argument_begin|>",
                                         "<|start|>",
                                         "assistant",
                                         "<|channel|>",
                                         "analysis",
                                         "commentary",
                                         "final",
                                         " to=functions.",
                                         "<|message|>",
                                         "<|message|>",
                                         "<|end|>",
                                         "<|call|>",
                                         "<|return|>",
                                         "<|tool_call>",
                                         "call:f{",
                                         "a:",
                                         "<|\"|>",
                                         "<|\"|>",
                                         "<tool_call|>",
                                         "<function name=\"",
                                         "\"><param name=\"",
                                         "<![CDATA[",
                                         "]]>",
                                         "</param>",
                                         "</function>",
                                         "<｜DSML｜function_calls>",
                                         "<｜DSML｜invoke name=\"",
                                         "<｜DSML｜parameter name=\"",
                                         "\" string=\"true\">",
                                         "</｜DSML｜parameter>",
                                         "<|tools_prefix|>[{\"f\": {",
                                         "<tool_calls>{\"name\": \"f\"}{"};
    const struct call_format *const *of[] = {&none,    &hermes, &llama,   &mistral, &deepseek,
                                             &granite, &bare,   &qwen,    &glm,     &minimax,
                                             &kimi,    &cohere, &python,  &pylist,  &harmony,
                                             &gemma,   &dsml,   &minicpm, &apertus, &tool_calls};
    struct buf text = BUF_INIT, whole = BUF_INIT, out = BUF_INIT;
    struct rng rng = {2, 2};
    for (int round = 0; round < 40000; round++) {
        buf_reset(&text);
        for (uint32_t n = rng_u32(&rng) % 14 + 1; n; n--)
            buf_str(&text, pieces[rng_u32(&rng) % (sizeof(pieces) / sizeof(pieces[0]))]);
        struct row row = {of[rng_u32(&rng) % 20], rng_u32(&rng) % 64, text.p, ""};
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

int main(void) { return tests_run(find, NULL); }
