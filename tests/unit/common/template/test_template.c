/* Rules of the template language that the golden data does not reach: limits, sandbox, error texts.
 */
#include "common/json/exact.h"
#include "common/template/chat.h"
#include "tests/unit/test.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char vars_text[] =
    "{\"s\":\"h\u00e9llo\",\"l\":[3,1,2],\"d\":{\"b\":1,\"a\":2.0,\"items\":5},"
    "\"big\":12345678901234567890,\"x\":null,\"two\":2.0,\"e\":1e-07}";

/* The text, or the message behind a `!`. */
static char *render(const char *src, const struct template_limits *limits)
{
    struct err e = ERR_INIT;
    struct buf out = BUF_INIT;
    cJSON *vars = json_parse(vars_text, sizeof(vars_text) - 1, &e);
    template_keep_numbers(vars, vars_text, sizeof(vars_text) - 1);
    struct template *t = template_compile(src, strlen(src), &e);
    if (!t || template_render(t, vars, limits, &out, &e) != 0) {
        assert_int_equal(e.kind, ERR_TEMPLATE);
        assert_int_equal(out.len, 0);
        buf_fmt(&out, "!%s", e.msg);
    }
    template_free(t);
    cJSON_Delete(vars);
    return buf_take(&out);
}

static void expect(const char *src, const char *want)
{
    char *got = render(src, NULL);
    if (strcmp(got, want) != 0)
        fail_msg("%s\n  want %s\n  got  %s", src, want, got);
    free(got);
}

static void expect_part(const char *src, const struct template_limits *limits, const char *part)
{
    char *got = render(src, limits);
    if (got[0] != '!' || !strstr(got, part))
        fail_msg("%.200s\n  want %s\n  got  %.300s", src, part, got);
    free(got);
}

TEST(values_print_as_in_python)
{
    expect("{{ big }} {{ two }} {{ e }} {{ d }}",
           "12345678901234567890 2.0 1e-07 {'b': 1, 'a': 2.0, 'items': 5}");
    expect("{{ s[1] }}{{ s[::-1] }}{{ s|length }}", "\u00e9oll\u00e9h5");
    expect("{{ 7 // -2 }} {{ -7 % 3 }} {{ 2 ** -1 }} {{ 1e16 }} {{ 0.1 + 0.2 }}",
           "-4 2 0.5 1e+16 0.30000000000000004");
    expect("{{ d.items() }}{{ d['items'] }}", "dict_items([('b', 1), ('a', 2.0), ('items', 5)])5");
    expect("{{ [none, true, 'it\\'s'] }}", "[None, True, \"it's\"]");
    expect("{{ {'a': [1, 'x']}|tojson }}{{ [1]|tojson(indent=1) }}", "{\"a\": [1, \"x\"]}[\n 1\n]");
}

/* common/json/exact.h: NUL is C0 80, which is no UTF-8. */
TEST(a_nul_of_a_body_is_escaped_and_else_kept)
{
    static const char json[] = "{\"v\":{\"a\\u0000\":\"x\\u0000\\u00e9\"}}";
    static const struct {
        const char *src, *want;
    } rows[] = {
        {"{{ v|tojson }}", "{\"a\\u0000\": \"x\\u0000\u00e9\"}"},
        {"{{ v|tojson(ensure_ascii=True) }}", "{\"a\\u0000\": \"x\\u0000\\u00e9\"}"},
        {"{% for k in v %}{{ v[k] }}{{ v[k]|trim }}{% endfor %}", "x\xc0\x80\u00e9x\xc0\x80\u00e9"},
        {"{% for k in v %}{{ v[k].split('x')|join('-') }}{% endfor %}", "-\xc0\x80\u00e9"},
        {"{% for k in v %}{{ v[k][0] }}{{ v[k][-1] }}{% endfor %}", "x\u00e9"},
    };
    struct err e = ERR_INIT;
    cJSON *vars = json_parse_exact(json, sizeof(json) - 1, &e);
    assert_non_null(vars);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf out = BUF_INIT;
        struct template *t = template_compile(rows[i].src, strlen(rows[i].src), &e);
        assert_non_null(t);
        if (template_render(t, vars, NULL, &out, &e) != 0)
            fail_msg("%s: %s", rows[i].src, e.msg);
        assert_string_equal(out.p, rows[i].want);
        buf_free(&out);
        template_free(t);
    }
    cJSON_Delete(vars);
}

TEST(errors_name_kind_and_line)
{
    expect("\n{{ raise_exception('no') }}", "!syntax error: no (in <string>:2)");
    expect_part("{{ ['a']|map('upper\\x00')|list }}", NULL, "No filter named"); /* any character */
    expect("\n\n{{ nope.x }}", "!undefined value: 'nope' is undefined (in <string>:3)");
    expect(
        "{{ 1 + 'a' }}",
        "!invalid operation: unsupported operand type(s) for +: 'int' and 'str' (in <string>:1)");
    expect("a\n{% if %}", "!syntax error: Expected an expression, got 'end of statement block' (in "
                          "<string>:2)");
    expect("{% if 1 %}",
           "!syntax error: Unexpected end of template. Jinja was looking for the following tags: "
           "'elif' or 'else' or 'endif'. The innermost block that needs to be closed is 'if'. (in "
           "<string>:1)");
    expect("{{ x|nope }}", "!syntax error: No filter named 'nope'. (in <string>:1)");
    struct template_limits bare = {.bare_errors = true};
    char *got = render("{{ x.y.z }}", &bare);
    assert_string_equal(got, "!'None' has no attribute 'y'");
    free(got);
}

TEST(the_sandbox_holds)
{
    expect_part("{{ l.append(1) }}", NULL,
                "access to attribute 'append' of 'list' object is unsafe.");
    expect_part("{{ d.update({}) }}", NULL,
                "access to attribute 'update' of 'dict' object is unsafe.");
    expect_part("{{ ''.__class__.__mro__ }}", NULL,
                "access to attribute '__class__' of 'str' object");
    expect_part("{{ range(100001) }}", NULL, "Range too big");
    expect("{{ ''.__class__ }}{{ l }}", "[3, 1, 2]");
}

static char *repeated(const char *head, const char *part, size_t n, const char *tail)
{
    struct buf b = BUF_INIT;
    buf_str(&b, head);
    while (n--)
        buf_str(&b, part);
    buf_str(&b, tail);
    return buf_take(&b);
}

TEST(hostile_templates_end)
{
    static const char *const bombs[] = {
        "{{ 'a' * 1000000000 }}",
        "{{ 'a' * 9223372036854775807 }}",
        "{{ [0] * 100000000 }}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x "
        "%}"
        "{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% "
        "endfor %}"
        "{{ ns.x }}",
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ 'x'.center(10000000000) }}",
        "{{ 10 ** 5000 }}",
        "{% set ns = namespace(x=3) %}{% for i in range(100000) %}{% set ns.x = ns.x * ns.x %}"
        "{% endfor %}",
        "{% for i in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        "{% for i in range(100000) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' * 1000 }}"
        "{% endfor %}",
        "{% set a = 'ab' * 2000 %}{% for i in range(100000) %}{{ a.count('b') }}{% endfor %}",
        "{{ 1|tojson(indent=2000000000) }}",
    };
    for (size_t i = 0; i < sizeof(bombs) / sizeof(*bombs); i++) {
        struct timespec a, b;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        if (strstr(bombs[i], "tojson"))
            free(render(bombs[i], NULL));
        else
            expect_part(bombs[i], NULL, "limit exceeded");
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        if (b.tv_sec - a.tv_sec > 10)
            fail_msg("%s: %ld s", bombs[i], (long)(b.tv_sec - a.tv_sec));
    }
}

TEST(deep_sources_end)
{
    static const struct {
        const char *head, *part, *tail;
    } rows[] = {
        {"{{ ", "(", ""},          {"{{ ", "[", ""},
        {"{{ ", "not ", "1 }}"},   {"{{ ", "-", "1 }}"},
        {"", "{% if 1 %}", ""},    {"{{ ", "{'a':", ""},
        {"{{ 1", "+1", " }}"},     {"{{ 1", "|string", " }}"},
        {"{{ l", "[0]", " }}"},    {"{{ ", "1 if 1 else ", "1 }}"},
        {"{{ 1", " and 1", " }}"}, {"{{ 1", " == 1", " }}"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char *src = repeated(rows[i].head, rows[i].part, 50000, rows[i].tail);
        free(render(src, NULL));
        free(src);
    }
}

/* The deepest recursion that the limits allow, on the stack that the header promises to be enough.
 */
static void *recurse(void *arg)
{
    free(render("{% macro m() %}{% if 1 %}{{ (((m()))) ~ '' }}{% endif %}{% endmacro %}{{ m() }}",
                NULL));
    free(render("{% for i in [[1]] recursive %}{{ [loop([[1]])]|map('upper')|list }}{% endfor %}",
                NULL));
    free(render("{% macro m() %}{{ '{}'.format([m()]|map('string')|join) }}{% endmacro %}{{ m() }}",
                NULL));
    free(render("{% set ns = namespace(x=[]) %}{% for i in range(9000) %}{% set ns.x = [ns.x] %}"
                "{% endfor %}{{ ns.x|tojson }}",
                NULL));
    char *src = repeated("{{ ", "not (", 120, "1");
    free(render(src, NULL));
    free(src);
    src = repeated("", "{% if [[[(1)]]] %}", 600, "");
    free(render(src, NULL));
    free(src);
    return arg;
}

TEST(a_small_stack_is_enough)
{
    pthread_attr_t attr;
    pthread_t th;
    void *done = &attr;
#ifdef __SANITIZE_ADDRESS__
    size_t stack = 8 << 20;
#else
    size_t stack = 1 << 20;
#endif
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, stack);
    assert_int_equal(pthread_create(&th, &attr, recurse, state), 0);
    pthread_join(th, &done);
    pthread_attr_destroy(&attr);
    assert_ptr_equal(done, state);
}

TEST(limits_can_be_set)
{
    struct template_limits few = {.max_steps = 100}, little = {.max_memory = 20000},
                           narrow = {.max_output = 10};
    expect_part("{% for i in range(1000) %}{% endfor %}", &few, "too many steps");
    expect_part("{{ range(5000)|list }}", &little, "too much memory");
    expect_part("12345678901", &narrow, "too much text");
}

/* A long page is within the limits: the expressions for links are compiled once. */
TEST(many_links_are_cheap)
{
    expect("{{ ('http://a.bc/d x@y.de ' * 10000)|urlize|length }}", "920000");
    expect_part("{{ ('http://a.bc/d ' * 10000)|urlize|length + none }}", NULL,
                "unsupported operand");
}

TEST(time_is_given)
{
    struct template_limits l = {.now = 1736944496};
    setenv("TZ", "UTC", 1);
    tzset();
    char *got = render("{{ strftime_now('%d %b %Y %H:%M:%S.%f %%') }}", &l);
    assert_string_equal(got, "15 Jan 2025 12:34:56.000000 %");
    free(got);
}

TEST(names_are_known)
{
    struct err e = ERR_INIT;
    const char *src = "{% if tools %}documents{% endif %}";
    struct template *t = template_compile(src, strlen(src), &e);
    assert_true(template_mentions(t, "tools"));
    assert_false(template_mentions(t, "documents"));
    template_free(t);
    assert_null(template_compile("\xff", 1, &e));
}

/* ---------------------------------------------------------------- chat */
static int chat(const char *src, const char *messages, const char *field, bool generate,
                char **text)
{
    struct err e = ERR_INIT;
    struct buf out = BUF_INIT;
    cJSON *m = json_parse(messages, strlen(messages), &e);
    struct template *t = template_compile(src, strlen(src), &e);
    struct chat_input in = {
        .messages = m, .continue_field = field, .add_generation_prompt = generate};
    int rc = chat_render(t, &in, &(struct template_limits){.bare_errors = true}, &out, &e);
    if (rc)
        buf_str(&out, e.msg);
    *text = buf_take(&out);
    template_free(t);
    cJSON_Delete(m);
    return rc;
}

TEST(the_last_message_stays_open)
{
    static const char plain[] = "{% for m in messages %}<{{ m.content }}>{% endfor %}";
    static const char trimmed[] = "{% for m in messages %}<{{ m.content|trim }}>{% endfor %}";
    static const char two[] = "[{\"content\":\"a\"},{\"content\":\" b \"}]";
    char *text;
    assert_int_equal(chat(plain, two, "content", false, &text), 0);
    assert_string_equal(text, "<a>< b ");
    free(text);
    assert_int_equal(chat(trimmed, two, "content", false, &text), 0);
    assert_string_equal(text, "<a><b");
    free(text);
    static const char parts[] = "[{\"content\":[{\"text\":\"x\"},{\"text\":\"y\"},{\"image\":1}]}]";
    static const char walk[] = "{% for p in messages[0].content %}{{ p.text }},{% endfor %}";
    assert_int_equal(chat(walk, parts, "content", false, &text), 0);
    assert_string_equal(text, "x,y");
    free(text);
    assert_int_equal(chat("nothing", two, "content", false, &text), -1);
    assert_non_null(strstr(text, "does not appear in the chat"));
    free(text);
    assert_int_equal(chat(plain, "[{\"content\":null}]", "content", false, &text), -1);
    free(text);
    assert_int_equal(chat(plain, "[]", "content", false, &text), -1);
    free(text);
    assert_int_equal(chat(plain, two, "content", true, &text), -1);
    assert_non_null(strstr(text, "are not compatible"));
    free(text);
}

/* ---------------------------------------------------------------- threads */
static void *render_often(void *arg)
{
    const struct template *t = arg;
    struct err e = ERR_INIT;
    for (int i = 0; i < 200; i++) {
        struct buf out = BUF_INIT;
        cJSON *vars = cJSON_CreateObject();
        if (template_render(t, vars, NULL, &out, &e) != 0 || strcmp(out.p, "0,1,2,AB") != 0)
            return arg;
        buf_free(&out);
        cJSON_Delete(vars);
    }
    return NULL;
}

TEST(many_threads_render_one_template)
{
    struct err e = ERR_INIT;
    const char *src = "{% macro m(x) %}{{ x|upper }}{% endmacro %}{% for i in range(3) %}{{ i }},"
                      "{% endfor %}{{ m('ab') }}";
    struct template *t = template_compile(src, strlen(src), &e);
    pthread_t th[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&th[i], NULL, render_often, t);
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(th[i], &bad);
        assert_null(bad);
    }
    template_free(t);
}

int main(void) { return tests_run(NULL, NULL); }
