/* Custom tools: the input that is read while a call arrives, and calls in messages. */
#include "common/json/json.h"
#include "router/chat/custom.h"
#include "tests/unit/test.h"
#include <string.h>

static cJSON *parsed(const char *text)
{
    struct err e = ERR_INIT;
    cJSON *j = json_parse(text, strlen(text), &e);
    assert_non_null(j);
    return j;
}

static const struct {
    const char *arguments, *early; /* early: what is read before the end of the call */
    const char *input;
} rows[] = {
    {"{\"input\":\"a b\"}", "a b", "a b"},
    {" {\n\t\"input\" : \"x\\n\\\"y\\\\ \\/\\t\"\n}", "x\n\"y\\ /\t", "x\n\"y\\ /\t"},
    {"{\"input\":\"\\u00e9\\ud83d\\ude00\\u20ac\"}", "\xc3\xa9\xf0\x9f\x98\x80\xe2\x82\xac",
     "\xc3\xa9\xf0\x9f\x98\x80\xe2\x82\xac"},
    {"{\"input\":\"\\ud83dx\\ude00\"}", "\xef\xbf\xbdx\xef\xbf\xbd", "\xef\xbf\xbdx\xef\xbf\xbd"},
    {"{\"input\":\"\"}", "", ""},
    {"{\"input\":\"cut of", "cut of", "cut of"},
    {"{\"input\":\"cut\\u00", "cut", "cut"},
    {"{\"other\":1,\"input\":\"late\"}", "", "late"},
    {"{\"in put\":\"x\"}", "", "{\"in put\":\"x\"}"},
    {"{\"input\":5}", "", "{\"input\":5}"},
    {"*** Begin Patch", "", "*** Begin Patch"},
    {"", "", ""},
};

/* The pieces in which the arguments arrive do not matter. */
TEST(inputs_are_read_as_they_arrive)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const size_t n = strlen(rows[i].arguments);
        for (size_t step = 1; step <= n + 1; step++) {
            struct custom_reader r = {0};
            struct buf out = BUF_INIT;
            buf_reserve(&out, 0);
            for (size_t at = 0; at < n + step; at += step)
                custom_read(&r, rows[i].arguments, at < n ? at : n, &out);
            assert_string_equal(out.p, rows[i].early);
            custom_read_end(&r, rows[i].arguments, n, &out);
            custom_read_end(&r, rows[i].arguments, n, &out);
            assert_string_equal(out.p, rows[i].input);
            buf_free(&out);
        }
    }
}

TEST(calls_become_calls_of_functions)
{
    cJSON *m =
        parsed("{\"role\":\"assistant\",\"tool_calls\":["
               "{\"id\":\"1\",\"type\":\"custom\",\"custom\":{\"name\":\"f\",\"input\":\"a\"}},"
               "{\"id\":\"2\",\"type\":\"function\",\"function\":{\"name\":\"g\"}}]}");
    assert_int_equal(custom_settle_calls(m), 0);
    char *text = cJSON_PrintUnformatted(json_get(m, "tool_calls"));
    assert_string_equal(text,
                        "[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                        "\"arguments\":{\"input\":\"a\"}}},"
                        "{\"id\":\"2\",\"type\":\"function\",\"function\":{\"name\":\"g\"}}]");
    cJSON_free(text);
    cJSON_Delete(m);
}

/* The input is asked for in the last message if that is the user's, whatever its content is. */
TEST(the_input_is_asked_for)
{
    static const char ask[] = "Answer with the input of the tool `f` and nothing else. D";
    static const struct {
        const char *messages, *role, *content;
    } talks[] = {
        {"[{\"role\":\"user\",\"content\":\"x\"}]", "user", "\"x\\n\\n%s\""},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", "user",
         "[{\"type\":\"image_url\"},{\"type\":\"text\",\"text\":\"%s\"}]"},
        {"[{\"role\":\"tool\",\"content\":\"x\"}]", "user", "\"%s\""},
        {"[]", "user", "\"%s\""},
    };
    cJSON *tool = parsed("{\"type\":\"custom\",\"custom\":{\"name\":\"f\",\"description\":\"D\"}}");
    for (size_t i = 0; i < sizeof(talks) / sizeof(talks[0]); i++) {
        cJSON *m = parsed(talks[i].messages);
        char want[256];
        assert_int_equal(custom_ask(m, tool), 0);
        char *text = cJSON_PrintUnformatted(json_get(m->child->prev, "content"));
        const char *mark = strstr(talks[i].content, "%s");
        (void)snprintf(want, sizeof(want), "%.*s%s%s", (int)(mark - talks[i].content),
                       talks[i].content, ask, mark + 2);
        assert_string_equal(text, want);
        assert_string_equal(json_str(m->child->prev, "role", ""), talks[i].role);
        cJSON_free(text);
        cJSON_Delete(m);
    }
    cJSON_Delete(tool);
}

TEST(formats_are_checked)
{
    static const struct {
        const char *tool, *fault;
    } tools[] = {
        {"{\"custom\":{\"name\":\"f\"}}", NULL},
        {"{\"custom\":{\"format\":{\"type\":\"text\"}}}", NULL},
        {"{\"format\":{\"type\":\"grammar\",\"syntax\":\"regex\",\"definition\":\"a\"}}", NULL},
        {"{\"custom\":{\"format\":{\"type\":\"grammar\",\"grammar\":{\"syntax\":\"lark\","
         "\"definition\":\"a\"}}}}",
         NULL},
        {"{\"custom\":{\"format\":{\"type\":\"xml\"}}}", "format"},
        {"{\"custom\":{\"format\":\"text\"}}", "format"},
        {"{\"format\":{\"type\":\"grammar\",\"syntax\":\"ebnf\",\"definition\":\"a\"}}", "syntax"},
        {"{\"format\":{\"type\":\"grammar\",\"syntax\":\"lark\"}}", "definition"},
    };
    for (size_t i = 0; i < sizeof(tools) / sizeof(tools[0]); i++) {
        cJSON *t = parsed(tools[i].tool);
        const char *fault = custom_check(t);
        assert_true(tools[i].fault ? fault && strstr(fault, tools[i].fault) : !fault);
        cJSON_Delete(t);
    }
}

int main(void) { return tests_run(NULL, NULL); }
