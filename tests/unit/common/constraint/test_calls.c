/* Texts that may hold calls: free outside the markers, an instance of the schema inside. */
#include "common/constraint/constraint.h"
#include "tests/unit/test.h"
#include <stdio.h>
#include <string.h>

static const char spec[] =
    "{\"open\":\"<tool_call>\",\"close\":\"</tool_call>\",\"schema\":{\"anyOf\":["
    "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"f\"},\"arguments\":{\"type\":"
    "\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}},\"required\":[\"n\"],"
    "\"additionalProperties\":false}},\"required\":[\"name\",\"arguments\"],"
    "\"additionalProperties\":false},"
    "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"any\"},\"arguments\":{\"type\":"
    "\"object\",\"additionalProperties\":true}},\"required\":[\"name\",\"arguments\"],"
    "\"additionalProperties\":false}]}}";

/* 1: may end here, 0: may go on, -1: wrong. */
static int read_text(enum constraint_reasoning reasoning, const char *text)
{
    struct err e = ERR_INIT;
    struct constraint *c =
        constraint_new_behind((struct constraint_front){reasoning, THOUGHT_THINK}, CONSTRAINT_CALLS,
                              spec, strlen(spec), &e);
    if (!c)
        fail_msg("%s", e.msg);
    const constraint_state at = constraint_next(c, CONSTRAINT_START, text, strlen(text));
    const int rc = at == CONSTRAINT_DEAD ? -1 : constraint_may_end(c, at);
    constraint_unref(c);
    return rc;
}

static int plain(const char *text) { return read_text(CONSTRAINT_NO_REASONING, text); }

#define F1  "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>"
#define ANY "<tool_call>{\"name\":\"any\",\"arguments\":{\"x\":[1,{\"y\":null}]}}</tool_call>"

TEST(text_is_free)
{
    assert_int_equal(plain(""), 1);
    assert_int_equal(plain("Hello {\"name\": 1} </tool_call> <tool <tool_call <<tool_cal"), 1);
    assert_int_equal(plain("gr\xc3\xbc\xc3\x9f\x65\n\n"), 1);
}

TEST(calls_are_of_the_schema)
{
    assert_int_equal(plain(F1), 1);
    assert_int_equal(plain("I look. <" F1 " and " ANY "\n" F1 ". Done <tool"), 1);
    assert_int_equal(plain("I look. <tool_call>"), 0);
    assert_int_equal(plain("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n"), 0);
    assert_int_equal(plain("<tool_call>no"), -1);
    assert_int_equal(plain("<tool_call>{\"name\": \"g\""), -1);
    assert_int_equal(plain("<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": \"1"), -1);
    assert_int_equal(plain("<tool_call>{\"name\": \"f\", \"arguments\": {}"), -1);
    assert_int_equal(plain("<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 1}}<"), 0);
    assert_int_equal(plain("<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 1}} x"), -1);
    assert_int_equal(plain(F1 "<tool_call>x"), -1);
}

TEST(reasoning_comes_first)
{
    assert_int_equal(read_text(CONSTRAINT_REASONS, "<tool_call>or not</think>" F1), 1);
    assert_int_equal(read_text(CONSTRAINT_REASONS, "Hm.</think><tool_call>or not"), -1);
    assert_int_equal(read_text(CONSTRAINT_MAY_REASON, "<think>Hm.</think>Well. " F1), 1);
    assert_int_equal(read_text(CONSTRAINT_MAY_REASON, "<tool_call>or not"), -1);
}

/* An object {"n": 1 or 2}, or calls. */
#define ANSWER                                                                                     \
    "{\"answer\":{\"kind\":\"compact "                                                             \
    "json\",\"text\":\"{\\\"type\\\":\\\"object\\\",\\\"properties\\\":{\\\"n\\\":{"               \
    "\\\"enum\\\":[1,2]}},\\\"required\\\":[\\\"n\\\"],\\\"additionalProperties\\\":false}\"},"
#define CALL_OF_F                                                                                  \
    "\"schema\":{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"f\"},"      \
    "\"arguments\":{"                                                                              \
    "\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"boolean\"}},\"required\":[\"x\"],"      \
    "\"additionalProperties\":false}},\"required\":[\"name\",\"arguments\"],"                      \
    "\"additionalProperties\":false}]}"

static int read_or(enum constraint_reasoning reasoning, const char *ways, const char *text)
{
    struct err e = ERR_INIT;
    char all[2000];
    snprintf(all, sizeof(all), ANSWER "%s}", ways);
    struct constraint *c =
        constraint_new_behind((struct constraint_front){reasoning, THOUGHT_THINK},
                              CONSTRAINT_CALLS_OR, all, strlen(all), &e);
    if (!c)
        fail_msg("%s", e.msg);
    const constraint_state at = constraint_next(c, CONSTRAINT_START, text, strlen(text));
    const int rc = at == CONSTRAINT_DEAD ? -1 : constraint_may_end(c, at);
    constraint_unref(c);
    return rc;
}

TEST(an_answer_of_a_format_or_calls)
{
    static const char marked[] =
        "\"ways\":[{\"open\":\"<c>\",\"close\":\"</c>\",\"around\":[\"<all>\","
        "\"</all>\"]," CALL_OF_F "}]";
    static const char open[] = "\"ways\":[{\"open\":\"<all>\"},{\"open\":\"<c>\"}]";
    static const char bare[] = "\"ways\":[{" CALL_OF_F "}]";
    static const char f[] = "<c>{\"name\": \"f\", \"arguments\": {\"x\": true}}</c>";
    char text[400];
    const char *const ways[] = {marked, open, bare};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(read_or(CONSTRAINT_NO_REASONING, ways[i], "{\"n\":1}"), 1);
        assert_int_equal(read_or(CONSTRAINT_NO_REASONING, ways[i], "{\"n\":3"), -1);
        assert_int_equal(read_or(CONSTRAINT_NO_REASONING, ways[i], "{\"n\":1}<"), -1);
        assert_int_equal(read_or(CONSTRAINT_NO_REASONING, ways[i], "Well"), -1);
    }
    assert_int_equal(read_or(CONSTRAINT_NO_REASONING, marked, f), 1);
    snprintf(text, sizeof(text), " <all>%s\n%s</all>", f, f);
    assert_int_equal(read_or(CONSTRAINT_NO_REASONING, marked, text), 1);
    assert_int_equal(read_or(CONSTRAINT_NO_REASONING, marked, "<all>"), 0);
    assert_int_equal(read_or(CONSTRAINT_NO_REASONING, marked, "<c>{\"name\": \"g"), -1);
    snprintf(text, sizeof(text), "%s{\"n\":1}", f);
    assert_int_equal(read_or(CONSTRAINT_NO_REASONING, marked, text), -1);
    assert_int_equal(read_or(CONSTRAINT_NO_REASONING, open, "\n<c>f<sep>{}"), 1);
    assert_int_equal(
        read_or(CONSTRAINT_NO_REASONING, bare, "{\"name\":\"f\",\"arguments\":{\"x\":false}}"), 1);
    assert_int_equal(read_or(CONSTRAINT_MAY_REASON, marked, "<think>Hm {</think>{\"n\":2}"), 1);
    assert_int_equal(read_or(CONSTRAINT_REASONS, open, "Hm</think>\n<c>"), 1);
}

TEST(an_answer_or_calls_in_channels)
{
    static const char spec_of[] = CALL_OF_F;
    static const char thought[] = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant";
    static const struct {
        const char *text;
        int ends;
    } cases[] = {
        {"<|channel|>final<|message|>{\"n\":1}", 1},
        {"<|channel|>final <|constrain|>json<|message|>{\"n\":2}", 1},
        {"<|channel|>final<|message|>{\"x\"", -1},
        {"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": true}", 1},
        {"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"n\"", -1},
        {"<|channel|>commentary to=functions.g", -1},
        {"<|channel|>commentary<|message|>", -1},
    };
    char text[300];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(read_or(CONSTRAINT_CHANNEL_CALLS, spec_of, cases[i].text), cases[i].ends);
        snprintf(text, sizeof(text), "%s%s", thought, cases[i].text);
        assert_int_equal(read_or(CONSTRAINT_CHANNEL_CALLS, spec_of, text), cases[i].ends);
    }
}

TEST(what_is_no_such_thing_is_refused)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"open\":\"<\",\"close\":\">\"}",
        "{\"open\":1,\"close\":\">\",\"schema\":{}}",
        "{\"open\":\"\",\"close\":\">\",\"schema\":{}}",
        "{\"open\":\"<\",\"close\":\">\",\"schema\":{\"type\":\"none\"}}"};
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_null(constraint_new(CONSTRAINT_CALLS, bad[i], strlen(bad[i]), &e));
        assert_true(e.msg[0]);
    }
    static const char *const or_bad[] = {
        "{}",
        "{\"answer\":{\"kind\":\"calls\",\"text\":\"{}\"},\"ways\":[]}",
        "{\"answer\":{\"kind\":\"json\"},\"ways\":[]}",
        "{\"answer\":{\"kind\":\"json\",\"text\":\"{\"},\"ways\":[]}",
        "{\"answer\":{\"kind\":\"json\",\"text\":\"{}\"},\"ways\":[{}]}",
        "{\"answer\":{\"kind\":\"json\",\"text\":\"{}\"},\"ways\":[{\"open\":\"<\",\"schema\":{}}]"
        "}"};
    for (size_t i = 0; i < sizeof(or_bad) / sizeof(or_bad[0]); i++) {
        e = (struct err)ERR_INIT;
        assert_null(constraint_new(CONSTRAINT_CALLS_OR, or_bad[i], strlen(or_bad[i]), &e));
        assert_true(e.msg[0]);
    }
}

int main(void) { return tests_run(NULL, NULL); }
