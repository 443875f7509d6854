/* Where a model keeps its chat template, and what is done to messages before it sees them. */
#include "common/json/json.h"
#include "router/body/body.h"
#include "router/chat/chat.h"
#include "tests/temp_folder.h"
#include "tests/unit/test.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TEMP_FOLDER(dir, "test-chat")

const char *tokenizer_special(const struct tokenizer *t, const char *name)
{
    (void)t;
    return strcmp(name, "bos_token") ? NULL : "<s>";
}
/* A vocabulary of a few tokens; the chat does not look inside its tokenizer. */
static const char *const vocabulary[] = {"<s>",     "<|user|>",     "<|unused|>",   "plain",
                                         "<think>", "<fim_prefix>", "<fim_suffix>", "<fim_middle>"};
enum { VOCABULARY = sizeof(vocabulary) / sizeof(vocabulary[0]) };
uint32_t tokenizer_vocab_size(const struct tokenizer *t)
{
    (void)t;
    return VOCABULARY;
}
const char *tokenizer_token(const struct tokenizer *t, uint32_t id)
{
    (void)t;
    return vocabulary[id];
}
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
    (void)t;
    return id < 3;
}
int64_t tokenizer_id(const struct tokenizer *t, const char *token)
{
    (void)t;
    for (int i = 0; i < VOCABULARY; i++)
        if (!strcmp(vocabulary[i], token))
            return i;
    return -1;
}

static const char *in_dir(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}
static void put(const char *name, const char *text)
{
    FILE *f = fopen(in_dir(name), "w");
    fputs(text, f);
    fclose(f);
}

/* Render one user message with what is in the folder. */
static int render(const char *config, const char *messages, struct buf *out, struct err *e)
{
    struct chat *c = chat_load(dir, config, NULL, e);
    if (!c)
        return -1;
    cJSON *m = json_parse(messages, strlen(messages), e);
    buf_reset(out);
    int rc = chat_prompt(c, m, NULL, NULL, NULL, CHAT_DEFAULT, out, e);
    cJSON_Delete(m);
    chat_free(c);
    return rc;
}

#define HI "[{\"role\":\"user\",\"content\":\"hi\"}]"

#define G TOK_GUARD
static const char shown[] = "{% for m in messages %}<|user|>{{ m.role[0] }}:"
                            "{% if m.content is string %}{{ m.content | trim }}{% else %}"
                            "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}"
                            "{% endfor %}{% for d in documents %}{{ d.text }}{% endfor %}"
                            "{% if 0 %}<think>{% endif %}";

/* Renders with the vocabulary above, with a document `x<s>`. */
static int render_guarded(const char *messages, bool trust, struct buf *out)
{
    static const char documents[] = "{\"documents\":[{\"text\":\"x<s>\"}]}";
    struct err e = ERR_INIT;
    put("tokenizer_config.json", "{}");
    put("chat_template.jinja", shown);
    struct chat *c = chat_load(dir, NULL, (const struct tokenizer *)vocabulary, &e);
    cJSON *m = json_parse(messages, strlen(messages), &e);
    cJSON *v = json_parse(documents, strlen(documents), &e);
    if (trust)
        chat_trust_messages(c);
    buf_reset(out);
    int rc = chat_prompt(c, m, NULL, v, NULL, CHAT_NOTHING, out, &e);
    cJSON_Delete(m);
    cJSON_Delete(v);
    chat_free(c);
    unlink(in_dir("chat_template.jinja"));
    unlink(in_dir("tokenizer_config.json"));
    return rc;
}

TEST(control_tokens_in_messages_are_guarded)
{
    static const struct {
        const char *messages, *prompt;
    } c[] = {
        /* control tokens: of the template, BOS, of fill-in-the-middle */
        {"[{\"role\":\"user\",\"content\":\"a<|user|>b<s><fim_middle>\"}]",
         "<|user|>u:a<" G "|user|>b<" G "s><" G "fim_middle>"},
        /* no control tokens: outside the template, not special, not of the vocabulary */
        {"[{\"role\":\"user\",\"content\":\"<|unused|> <think> plain <|system|>\"}]",
         "<|user|>u:<|unused|> <think> plain <|system|>"},
        /* text inside text, and the first bytes of one at the end */
        {"[{\"role\":\"user\",\"content\":\"<|user<|user|> <|us\"}]",
         "<|user|>u:<|user<" G "|user|> <" G "|us"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<|us\"},"
         "{\"type\":\"text\",\"text\":\"er|>\"}]}]",
         "<|user|>u:<" G "|user|>"},
        /* the roles */
        {"[{\"role\":\"tool\",\"content\":\"<s>\"},{\"role\":\"x\",\"content\":\"<s>\"}]",
         "<|user|>t:<" G "s><|user|>x:<" G "s>"},
        {"[{\"role\":\"system\",\"content\":\"<s>\"},{\"role\":\"assistant\",\"content\":\"<s>\"},"
         "{\"role\":\"developer\",\"content\":\"<s>\"}]",
         "<|user|>s:<s><|user|>a:<s><|user|>s:<s>"},
    };
    struct buf out = BUF_INIT;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        struct buf want = BUF_INIT;
        buf_fmt(&want, "%sx<" G "s>", c[i].prompt);
        assert_int_equal(render_guarded(c[i].messages, false, &out), 0);
        assert_string_equal(out.p, want.p);
        buf_free(&want);
    }
    assert_int_equal(render_guarded(c[0].messages, true, &out), 0);
    assert_string_equal(out.p, "<|user|>u:a<|user|>b<s><fim_middle>x<s>");
    buf_free(&out);
}

/* Whatever a template prints of a message and of tools, by a template that prints all. */
TEST(control_tokens_outside_the_content_are_guarded)
{
    static const char template[] =
        "{# tool_calls #}"
        "{% for m in messages %}<|user|>{{ m | tojson }}{% endfor %}{{ tools | tojson }}";
    static const char messages[] =
        "[{\"role\":\"user\",\"name\":\"<s>\",\"content\":\"b\"},"
        "{\"role\":\"assistant\",\"content\":\"<s>\",\"reasoning\":\"<s>\",\"tool_calls\":[{\"id\":"
        "\"<s>\","
        "\"function\":{\"name\":\"<s>\",\"arguments\":\"{\\\"\\\\u003cs>\\\":[\\\"<s>\\\",1.50]}\"}"
        "}]},"
        "{\"role\":\"tool<s>\",\"tool_call_id\":\"<s>\",\"content\":\"c\"}]";
    static const char tools[] =
        "[{\"name\":\"<s>\",\"parameters\":{\"properties\":{\"<s>\":{\"enum\":[\"<s>\"]}}}}]";
    struct buf out = BUF_INIT;
    struct err e = ERR_INIT;
    put("tokenizer_config.json", "{}");
    put("chat_template.jinja", template);
    struct chat *c = chat_load(dir, NULL, (const struct tokenizer *)vocabulary, &e);
    cJSON *m = json_parse(messages, strlen(messages), &e),
          *t = json_parse(tools, strlen(tools), &e);
    assert_int_equal(chat_prompt(c, m, t, NULL, "[<s>]", CHAT_NOTHING, &out, &e), 0);
    assert_string_equal(
        out.p,
        "<|user|>{\"role\": \"user\", \"name\": \"<" G "s>\", \"content\": \"b[<" G "s>]\"}"
        "<|user|>{\"role\": \"assistant\", \"content\": \"<s>\", \"reasoning\": \"<s>\", "
        "\"tool_calls\": [{\"id\": \"<" G "s>\", \"function\": {\"name\": \"<" G
        "s>\", \"arguments\": {\"<" G "s>\": [\"<" G "s>\", 1.5]}}}], "
        "\"reasoning_content\": \"<s>\", \"thinking\": \"<s>\"}"
        "<|user|>{\"role\": \"tool<" G "s>\", \"tool_call_id\": \"<" G "s>\", \"content\": \"c\"}"
        "[{\"name\": \"<" G "s>\", \"parameters\": {\"properties\": {\"<" G
        "s>\": {\"enum\": [\"<" G "s>\"]}}}}]");
    cJSON_Delete(m);
    cJSON_Delete(t);
    chat_free(c);
    buf_free(&out);
    unlink(in_dir("chat_template.jinja"));
    unlink(in_dir("tokenizer_config.json"));
}

TEST(the_most_specific_file_wins)
{
    struct buf out = BUF_INIT;
    struct err e;
    assert_int_equal(render(NULL, HI, &out, &e), -1);
    assert_int_equal(e.kind, ERR_TEMPLATE);
    assert_string_equal(e.msg, "Template error: template not found");
    put("tokenizer_config.json",
        "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"no\"},{\"name\":\"default\","
        "\"template\":\"list {{ messages[0].content }}\"}]}");
    assert_int_equal(render(NULL, HI, &out, &e), 0);
    assert_string_equal(out.p, "list hi");
    put("chat_template.json", "{\"chat_template\":\"json {{ messages[0].content }}\"}");
    assert_int_equal(render(NULL, HI, &out, &e), 0);
    assert_string_equal(out.p, "json hi");
    put("chat_template.jinja", "jinja {{ bos_token }}{{ eos_token }}");
    assert_int_equal(render(NULL, HI, &out, &e), 0);
    assert_string_equal(out.p, "jinja <s>None");
    put("mine.json", "{\"chat_template\":\"mine {{ bos_token }}{{ eos_token "
                     "}}\",\"bos_token\":{\"content\":\"<b>\"},"
                     "\"eos_token\":\"<e>\"}");
    char mine[128];
    snprintf(mine, sizeof(mine), "%s", in_dir("mine.json"));
    assert_int_equal(render(mine, HI, &out, &e), 0);
    assert_string_equal(out.p, "mine <b><e>");
    put("mine.jinja", "alone {{ bos_token }}{{ messages[0].content }}");
    snprintf(mine, sizeof(mine), "%s", in_dir("mine.jinja"));
    assert_int_equal(render(mine, HI, &out, &e), 0);
    assert_string_equal(out.p, "alone <s>hi");
    put("chat_template.jinja", "{% if %}");
    assert_int_equal(render(NULL, HI, &out, &e), -1);
    assert_non_null(strstr(e.msg, "chat_template.jinja: "));
    buf_free(&out);
}

TEST(messages_are_made_plain)
{
    struct buf out = BUF_INIT;
    struct err e;
    put("chat_template.jinja",
        "{% for m in messages %}{{ m.role }}={{ m.content is defined }}:{{ m.content }};"
        "{% endfor %}{{ add_generation_prompt }}");
    assert_int_equal(
        render(
            NULL,
            "[{\"role\":\"u\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
            "\"text\":\"b\"}]},{\"role\":\"t\",\"content\":null}]",
            &out, &e),
        0);
    assert_string_equal(out.p, "u=True:ab;t=True:;True");
    put("chat_template.jinja", "{{ raise_exception('never again') }}");
    assert_int_equal(render(NULL, HI, &out, &e), -1);
    assert_int_equal(strncmp(e.msg, "Template error: ", 16), 0);
    assert_non_null(strstr(e.msg, "never again"));
    buf_free(&out);
}

/* Templates differ in what they take as the content of a message that only calls, and as the
 * arguments. */
TEST(calls_fit_the_template)
{
    static const char messages[] =
        "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":null,"
        "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}]";
    static const char *const rows[][2] = {
        /* absent */
        {"{% if 'content' in messages[1] %}{{ raise_exception('text and calls') }}{% endif %}ok",
         "ok"},
        {"[{{ messages[1].content }}]", "[]"},
        /* null: DeepSeek-R1 */
        {"{% if messages[1]['content'] is none %}calls{% else %}"
         "{{ messages[1]['content'].split('x')[-1] }}{% endif %}",
         "calls"},
        /* a string: Devstral, early Qwen3 */
        {"[{{ 'x' in messages[1].content }}{{ '</think>' + messages[1].content }}]",
         "[False</think>]"},
        /* arguments as text, with null and with a string: DeepSeek-R1 */
        {"{{ 'json ' + messages[1].tool_calls[0].function.arguments }}", "json {}"},
        {"{{ 'json ' + messages[1].tool_calls[0].function.arguments + messages[1].content }}",
         "json {}"},
        {"{{ messages[1].nothing.x }}", NULL},
    };
    struct buf out = BUF_INIT;
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char template[256];
        snprintf(template, sizeof(template), "{# tool_calls #}%s", rows[i][0]);
        put("chat_template.jinja", template);
        assert_int_equal(render(NULL, messages, &out, &e), rows[i][1] ? 0 : -1);
        assert_string_equal(rows[i][1] ? out.p : e.msg,
                            rows[i][1] ? rows[i][1]
                                       : "Template error: undefined value: 'dict object' has no "
                                         "attribute 'nothing' (in <string>:1)");
    }
    buf_free(&out);
}

/* A template without calls shows them as text, which is not lost beside other text. */
TEST(calls_become_text)
{
    static const char *const rows[][2] = {{"null", "[{\"id\":\"x\"}]"},
                                          {"\"\"", "[{\"id\":\"x\"}]"},
                                          {"\"So:\"", "So:\n[{\"id\":\"x\"}]"}};
    struct buf out = BUF_INIT;
    struct err e = ERR_INIT;
    put("chat_template.jinja", "{{ messages[0].content }}");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char messages[256];
        snprintf(messages, sizeof(messages),
                 "[{\"role\":\"model\",\"content\":%s,\"tool_calls\":[{\"id\":\"x\"}]}]",
                 rows[i][0]);
        assert_int_equal(render(NULL, messages, &out, &e), 0);
        assert_string_equal(out.p, rows[i][1]);
    }
    buf_free(&out);
}

/* Clients return reasoning under the name that their server used. */
TEST(templates_read_reasoning_under_their_name)
{
    static const char *const rows[][2] = {
        {"\"reasoning\":\"r\"", "rr"},
        {"\"reasoning_content\":\"r\"", "rr"},
        {"\"thinking\":\"r\",\"reasoning_content\":null", "rr"},
        {"\"thinking\":\"t\",\"reasoning_content\":\"c\",\"reasoning\":\"r\"", "ct"},
        {"\"reasoning\":\"\"", ""},
    };
    struct buf out = BUF_INIT;
    struct err e = ERR_INIT;
    put("chat_template.jinja", "{{ messages[0].reasoning_content }}{{ messages[0].thinking }}");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char messages[256];
        snprintf(messages, sizeof(messages), "[{\"role\":\"assistant\",\"content\":\"\",%s}]",
                 rows[i][0]);
        assert_int_equal(render(NULL, messages, &out, &e), 0);
        assert_string_equal(out.p ? out.p : "", rows[i][1]);
    }
    buf_free(&out);
}

/* transformers 5 saves a template for tools beside the default one, whatever file that is in. */
TEST(a_named_template_has_its_own_file)
{
    struct buf out = BUF_INIT;
    struct err e;
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";
    cJSON *t = json_parse(tools, sizeof(tools) - 1, &e), *m = json_parse(HI, sizeof(HI) - 1, &e);
    unlink(in_dir("chat_template.json"));
    for (int i = 0; i < 2; i++) {
        unlink(in_dir("chat_template.jinja"));
        put(i ? "chat_template.jinja" : "tokenizer_config.json",
            i ? "plain" : "{\"chat_template\":\"plain\"}");
        assert_int_equal(mkdir(in_dir("additional_chat_templates"), 0700), 0);
        put("additional_chat_templates/tool_use.jinja", "named {{ tools | length }}");
        struct chat *c = chat_load(dir, NULL, NULL, &e);
        assert_non_null(c);
        buf_reset(&out);
        assert_int_equal(chat_prompt(c, m, t, NULL, NULL, CHAT_DEFAULT, &out, &e), 0);
        assert_string_equal(out.p, "named 1");
        buf_reset(&out);
        assert_int_equal(chat_prompt(c, m, NULL, NULL, NULL, CHAT_DEFAULT, &out, &e), 0);
        assert_string_equal(out.p, "plain");
        chat_free(c);
        put("additional_chat_templates/tool_use.jinja", "{% if %}");
        assert_null(chat_load(dir, NULL, NULL, &e));
        assert_non_null(strstr(e.msg, "additional_chat_templates/tool_use.jinja: "));
        unlink(in_dir("additional_chat_templates/tool_use.jinja"));
        assert_int_equal(rmdir(in_dir("additional_chat_templates")), 0);
    }
    cJSON_Delete(t);
    cJSON_Delete(m);
    buf_free(&out);
}

/* ---------------------------------------------------------------- what agents send */

#define SAYS(role, content) "{\"role\":\"" role "\",\"content\":\"" content "\"}"
#define PRINT               "{{ m.role[0] }}:{{ m.content }};"
#define EACH                "{% for m in messages %}"
#define END                 "{% endfor %}"
#define STOP(when)          "{% if " when " %}{{ raise_exception('no') }}{% endif %}"
#define FRONT               "m.role == 'system' and not loop.first"
#define TURNS                                                                                      \
    "{% set l = messages[1:] if messages[0].role == 'system' else messages %}"                     \
    "{% for m in l %}" STOP("(m.role == 'user') != (loop.index0 % 2 == 0)") "{% endfor %}"

static const struct {
    const char *template, *messages, *prompt; /* NULL: refused with the template's words */
} talks[] = {
    /* what a template takes is given as it is */
    {EACH PRINT END, "[" SAYS("system", "A") "," SAYS("system", "B") "," SAYS("user", "u") "]",
     "s:A;s:B;u:u;"},
    /* `developer` is the system's role, unless the template has it */
    {EACH PRINT END, "[" SAYS("developer", "A") "," SAYS("user", "u") "]", "s:A;u:u;"},
    {EACH PRINT END "{% if role == \"developer\" %}{% endif %}", "[" SAYS("developer", "A") "]",
     "d:A;"},
    /* one system message, at the front */
    {EACH STOP(FRONT) PRINT END,
     "[" SAYS("system", "A") "," SAYS("developer", "B") "," SAYS("user", "u") "]", "s:A\n\nB;u:u;"},
    {EACH STOP(FRONT) PRINT END,
     "[" SAYS("user", "u") "," SAYS("assistant", "a") "," SAYS("system", "S") "," SAYS("user",
                                                                                       "v") "]",
     "s:S;u:u;a:a;u:v;"},
    {EACH STOP(FRONT) PRINT END,
     "[" SAYS("system", "A") "," SAYS(
         "system",
         "") ",{\"role\":\"system\",\"content\":[{\"type\":"
             "\"text\",\"text\":\"B\"},{\"type\":\"text\",\"text\":\"C\"}]}," SAYS("user", "u") "]",
     "s:A\n\nBC;u:u;"},
    /* turns that alternate; a template without calls takes results as the user's words */
    {TURNS EACH PRINT END, "[" SAYS("system", "A") "," SAYS("user", "u") "," SAYS("user", "v") "]",
     "s:A;u:u\n\nv;"},
    {TURNS EACH PRINT END,
     "[" SAYS("user", "u") "," SAYS("assistant", "a") "," SAYS("assistant", "b") "]",
     "u:u;a:a\n\nb;"},
    {TURNS EACH PRINT END,
     "[" SAYS("user", "u") "," SAYS("assistant", "a") "," SAYS("tool", "r") "," SAYS("user",
                                                                                     "v") "]",
     "u:u;a:a;u:r\n\nv;"},
    {TURNS EACH PRINT END "{# tool_calls #}",
     "[" SAYS("user", "u") "," SAYS("assistant", "a") "," SAYS("tool", "r") "]", NULL},
    /* no system message */
    {EACH STOP("m.role == 'system'") PRINT END, "[" SAYS("system", "A") "," SAYS("user", "u") "]",
     "u:A\n\nu;"},
    {EACH STOP("m.role == 'system'") PRINT END, "[" SAYS("system", "A") "]", "u:A;"},
    {EACH STOP("m.content == 'x'") PRINT END,
     "[" SAYS("system", "x") "," SAYS("assistant", "x") "]", NULL},
    /* parts of other protocols */
    {EACH PRINT END,
     "[{\"role\":\"user\",\"content\":[\"a\",{\"type\":\"input_text\",\"text\":\"b\"}]},"
     "{\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"c\"},"
     "{\"type\":\"refusal\",\"refusal\":\"d\"}]}]",
     "u:ab;a:cd;"},
    {EACH PRINT "{{ m.reasoning_content }}" END,
     "[{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":"
     "\"text\","
     "\"text\":\"R\"}]},{\"type\":\"text\",\"text\":\"a\"}]},"
     "{\"role\":\"assistant\",\"content\":[{\"type\":\"redacted_thinking\",\"data\":\"x\"},"
     "{\"type\":\"reasoning\",\"text\":\"S\"}]}]",
     "a:a;Ra:;S"},
    /* files of text: in a data URL, and in base64 alone (Crush's) */
    {EACH PRINT END,
     "[{\"role\":\"user\",\"content\":[{\"type\":\"file\",\"file\":{\"filename\":\"a.txt\","
     "\"file_data\":\"data:text/plain;base64,aGVsbG8=\"}},{\"type\":\"file\",\"file\":{"
     "\"file_data\":\"aG k\"}},{\"type\":\"text\",\"text\":\"q\"}]}]",
     "u:\na.txt:\nhello\n\nhi\nq;"},
    /* a template with reasoning in parts (Magistral's) gets it there, wherever the client has it */
    {EACH "{% if m.content is string %}" PRINT "{% else %}{% for p in m.content %}"
          "{% if p.type == 'thinking' %}<{{ p.thinking }}>{% else %}{{ p.text }}{% endif %}"
          "{% endfor %}{% endif %}" END,
     "[{\"role\":\"system\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"T\"}]},"
     "{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"R\"},"
     "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"S\"},{\"type\":"
     "\"text\",\"text\":\"b\"}]}," SAYS("user", "u") "]",
     "<T><R>a<S>bu:u;"},
    /* arguments that are empty, null or absent */
    {EACH "{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}" END,
     "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"\"}},{\"function\":{"
     "\"arguments\":null}},{\"function\":{\"name\":\"f\"}},{\"function\":{\"arguments\":\"{"
     "\\\"a\\\":"
     "1}\"}}]}]",
     "{}{}{}{\"a\": 1}"},
    /* they stay where they are: templates print whole calls */
    {EACH "{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}" END,
     "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"{}\",\"name\":"
     "\"f\"}}]}]",
     "{\"arguments\": {}, \"name\": \"f\"}"},
};

TEST(conversations_are_fitted_to_templates)
{
    struct buf out = BUF_INIT;
    for (size_t i = 0; i < sizeof(talks) / sizeof(talks[0]); i++) {
        struct err e = ERR_INIT;
        put("tokenizer_config.json", "{}");
        put("chat_template.jinja", talks[i].template);
        struct chat *c = chat_load(dir, NULL, NULL, &e);
        cJSON *m = json_parse(talks[i].messages, strlen(talks[i].messages), &e);
        int index;
        assert_non_null(c);
        assert_non_null(m);
        assert_null(chat_check(m, false, &index));
        buf_reset(&out);
        int rc = chat_prompt(c, m, NULL, NULL, NULL, CHAT_NOTHING, &out, &e);
        if (talks[i].prompt && rc != 0)
            fail_msg("%zu: %s", i, e.msg);
        if (talks[i].prompt)
            assert_string_equal(out.p, talks[i].prompt);
        else
            assert_string_equal(e.msg, "Template error: syntax error: no (in <string>:1)");
        cJSON_Delete(m);
        chat_free(c);
    }
    buf_free(&out);
}

/* The check opens them once, for all renderings of the prompt. */
TEST(files_become_text)
{
    static const char text[] =
        "[{\"role\":\"user\",\"content\":[{\"type\":\"file\",\"file\":{\"filename\":\"a.txt\","
        "\"file_data\":\"aGVsbG8=\"}},{\"type\":\"text\",\"text\":\"b\"}]}]";
    struct err e = ERR_INIT;
    int index;
    cJSON *m = json_parse(text, sizeof(text) - 1, &e);
    assert_null(chat_check(m, false, &index));
    assert_null(chat_check(m, false, &index));
    const cJSON *parts = json_get(m->child, "content");
    assert_int_equal(cJSON_GetArraySize(parts), 2);
    assert_string_equal(json_str(parts->child, "type", ""), "text");
    assert_string_equal(json_str(parts->child, "text", ""), "\na.txt:\nhello\n");
    cJSON_Delete(m);
}

/* Files that are no text, or not there. */
TEST(other_files_are_refused)
{
    static const char *const files[] = {
        "{\"file_data\":\"data:application/pdf;base64,JVBERi0AAAA=\"}",
        "{\"file_data\":\"/w==\"}",
        "{\"file_data\":\"?\"}",
        "{\"file_id\":\"file-1\"}",
        "{}",
        "1"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct err e = ERR_INIT;
        struct buf b = BUF_INIT;
        int index;
        buf_fmt(&b, "[{\"role\":\"user\",\"content\":[{\"type\":\"file\",\"file\":%s}]}]",
                files[i]);
        cJSON *m = json_parse(b.p, b.len, &e);
        const char *fault = chat_check(m, false, &index);
        assert_non_null(fault);
        assert_non_null(strstr(fault, "`file_data`"));
        cJSON_Delete(m);
        buf_free(&b);
    }
}

TEST(values_are_found_in_the_raw_text)
{
    const char *s = "{ \"a\" : {\"x\":[1,{\"seed\":1}],\"s\\\"eed\":2, \"seed\" : "
                    "18446744073709551615 },\n\"b\":\"}\\\"{\","
                    "\"c\":-1.5e3}";
    size_t at, len;
    assert_true(body_locate(s, strlen(s), "a", "seed", &at, &len));
    assert_memory_equal(s + at, "18446744073709551615", len);
    assert_int_equal(len, 20);
    assert_true(body_locate(s, strlen(s), "", "c", &at, &len));
    assert_int_equal(len, 6);
    assert_true(body_locate(s, strlen(s), "a", "", &at, &len));
    assert_int_equal(s[at], '{');
    assert_int_equal(s[at + len - 1], '}');
    assert_false(body_locate(s, strlen(s), "a", "none", &at, &len));
    assert_false(body_locate(s, strlen(s), "b", "x", &at, &len));
}

int main(void) { return tests_run(temp_begin, temp_end); }
