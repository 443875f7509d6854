/* OpenAI's routes on a socket: exact bodies, chunks, refusals. */
#include "router/chat/chat.h"
#include "tests/unit/router/edge_rig.h"
#include <sys/stat.h>

static char dir[] = "/tmp/test_openai_XXXXXX";

static const char TEMPLATE[] =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}"
    "{{ m.tool_calls[0].function.arguments.city }}{% endif %}{% endfor %}"
    "{% if tools %}<{{ (tools[0].function or tools[0]).name }}>{% endif %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
    "{% if messages[-1].content and 'OPEN' in messages[-1].content %}<think>{% endif %}"
    "{# calls are written <tool_call>..</tool_call> #}"
    "{% if messages[0].role == 'bad' %}{{ raise_exception('no such role') }}{% endif %}";

static int start(void **state)
{
    struct err e;
    char path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/chat_template.jinja", dir);
    FILE *f = fopen(path, "w");
    fputs(TEMPLATE, f);
    fclose(f);
    struct chat *chat = chat_load(dir, NULL, NULL, &e);
    assert_non_null(chat);
    unlink(path);
    rmdir(dir);
    rig.edge.chat = chat;
    return edge_up(state);
}
static int stop(void **state)
{
    edge_down(state);
    chat_free((struct chat *)rig.edge.chat);
    return 0;
}

/* `id` and `created` differ from run to run: compare with both cut out. */
static char *settled(char *s)
{
    static const char *const keys[] = {"\"id\":\"", "\"created\":"};
    for (int k = 0; k < 2; k++)
        for (char *p = s; (p = strstr(p, keys[k]));) {
            p += strlen(keys[k]);
            size_t n = strcspn(p, "\",");
            assert_true(n >= 10); /* never empty */
            memmove(p, p + n, strlen(p + n) + 1);
        }
    return s;
}

#define CHAT(rest) "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" rest "}"

static void chat_answers(void **state)
{
    (void)state;
    char *p = post(&rig, "/v1/chat/completions", CHAT(",\"max_tokens\":3"), &b);
    must_have(p, "x-prompt-tokens: 22\r\n"); /* <s>[user]hi[assistant] */
    must_have(p, "x-compute-time: ");
    assert_string_equal(
        body_of(settled(p)),
        "{\"object\":\"chat.completion\",\"id\":\"\",\"created\":,\"model\":\"test/model\","
        "\"system_fingerprint\":\"0.0-native\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
        "\"assistant\",\"content\":\"abc\"},\"logprobs\":null,\"finish_reason\":\"length\"}],"
        "\"usage\":{\"prompt_tokens\":22,\"completion_tokens\":3,\"total_tokens\":25,\"prompt_"
        "tokens_details\":{\"cached_tokens\":0}}}");
}

static void chat_streams(void **state)
{
    (void)state;
    char *p =
        post(&rig, "/v1/chat/completions",
             "{\"model\":\"mine\",\"stream\":true,\"stream_options\":{\"include_usage\":true},"
             "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"E\"},"
             "{\"type\":\"text\",\"text\":\"OS\"}]}]}",
             &b);
#define CHUNK(delta, finish)                                                                       \
    "data: {\"object\":\"chat.completion.chunk\",\"id\":\"\",\"created\":,\"model\":\"mine\","     \
    "\"system_fingerprint\":\"0.0-native\",\"choices\":[{\"index\":0,\"delta\":{\"role\":"         \
    "\"assistant\",\"content\":\"" delta "\"},\"logprobs\":null,\"finish_reason\":" finish         \
    "}],\"usage\":null}\n\n"
    assert_string_equal(
        settled(unchunk(p)),
        CHUNK("a", "null") CHUNK("b", "null")
            CHUNK("", "\"stop\"") "data: "
                                  "{\"object\":\"chat.completion.chunk\",\"id\":\"\",\"created\":,"
                                  "\"model\":\"mine\","
                                  "\"system_fingerprint\":\"0.0-native\",\"choices\":[],\"usage\":{"
                                  "\"prompt_tokens\":23,"
                                  "\"completion_tokens\":3,\"total_tokens\":26,\"prompt_tokens_"
                                  "details\":{\"cached_tokens\":0}}}\n\ndata: [DONE]\n\n");
}

static void chat_logprobs_and_n(void **state)
{
    (void)state;
    char *p =
        post(&rig, "/v1/chat/completions",
             CHAT(",\"max_completion_tokens\":1,\"logprobs\":true,\"top_logprobs\":1,\"n\":2"), &b);
    must_have(p, "\"logprobs\":{\"content\":[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],"
                 "\"top_logprobs\":[{\"token\":\"A\",\"logprob\":-0.1,\"bytes\":[65]}]}]}");
    must_have(p, "{\"index\":1,\"message\":{\"role\":\"assistant\",\"content\":\"a\"}");
    must_have(p, "\"usage\":{\"prompt_tokens\":22,\"completion_tokens\":2,\"total_tokens\":24,"
                 "\"prompt_tokens_details\":{\"cached_tokens\":0}}");
}

static void the_template_sees_tools_calls_and_a_last_answer(void **state)
{
    (void)state;
    char *p = post(
        &rig, "/chat_tokenize",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"w?\"},{\"role\":\"assistant\","
        "\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":"
        "{\"name\":\"f\",\"arguments\":\"{\\\"city\\\":\\\"Rome\\\"}\"}}]},{\"role\":\"tool\","
        "\"content\":\"5\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}",
        &b);
    must_have(p, "\"templated_text\":\"<s>[user]w?[assistant]Rome[tool]5<f>[assistant]\"}");
    must_have(p, "{\"tokenize_response\":[{\"id\":60,\"text\":\"<\",\"start\":0,\"stop\":1},");
    p = post(&rig, "/chat_tokenize",
             "{\"messages\":[{\"role\":\"user\",\"content\":\"w?\"},{\"role\":\"assistant\","
             "\"content\":\"It is\"}]}",
             &b);
    must_have(p, "\"templated_text\":\"<s>[user]w?[assistant]It is\"}");
}

static void numbers_reach_the_template_as_they_were_written(void **state)
{
    static const char *const arguments[] = {"{\"city\":2.0}", "\"{\\\"city\\\":2.0}\"",
                                            "{\"city\":12345678901234567890}"};
    static const char *const want[] = {"[assistant]2.0", "[assistant]2.0",
                                       "[assistant]12345678901234567890"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char *body = text("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{"
                          "\"name\":\"f\",\"arguments\":%s}}]}]}",
                          arguments[i]);
        must_have(post(&rig, "/chat_tokenize", body, &b), want[i]);
        free(body);
    }
}

#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"     \
    "\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}}}]"
#define SAYS(text, rest)                                                                           \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"SAY " text "|\"}]," TOOLS rest "}"
#define F1 "{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}"

/* Ids are drawn at random. */
static char *without_call_ids(char *s)
{
    for (char *p = s; (p = strstr(p, "\"id\":\""));)
        for (p += 6; *p != '"';)
            memmove(p, p + 1, strlen(p));
    return s;
}

static void calls_are_told_from_text(void **state)
{
    (void)state;
    char *p =
        post(&rig, "/v1/chat/completions",
             SAYS("Hm.\\n<tool_call>" F1 "</tool_call>\\n<tool_call>" F1 "</tool_call>", ""), &b);
    must_have(
        without_call_ids(p),
        "\"message\":{\"role\":\"assistant\",\"content\":\"Hm.\",\"tool_calls\":[{\"id\":\"\","
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}},"
        "{\"id\":\"\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a"
        "\\\": 1}\"}}]},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}");
    p = post(&rig, "/v1/chat/completions",
             SAYS("<tool_call>" F1 "</tool_call>", ",\"max_tokens\":42"), &b);
    must_have(p, "\"content\":null,\"tool_calls\":[");
    must_have(p,
              "\"arguments\":\"{\\\"a\\\"\"}}]},\"logprobs\":null,\"finish_reason\":\"length\"}");
    p = post(&rig, "/v1/chat/completions", SAYS(F1, ",\"tool_choice\":\"required\""), &b);
    must_have(
        p,
        "\"arguments\":\"{\\\"a\\\": 1}\"}}]},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}");
    p = post(&rig, "/v1/chat/completions",
             SAYS("<tool_call>" F1 "</tool_call>", ",\"tool_choice\":\"none\""), &b);
    must_have(p, "\"content\":\"<tool_call>{");
    must_have(p, "\"finish_reason\":\"stop\"");
}

static void calls_are_streamed(void **state)
{
    (void)state;
    char *p = unchunk(post(&rig, "/v1/chat/completions",
                           SAYS("Hm <tool_call>" F1 "</tool_call>", ",\"stream\":true"), &b));
    must_have(p, "\"delta\":{\"role\":\"assistant\",\"content\":\"m\"}");
    must_have(without_call_ids(p),
              "\"delta\":{\"role\":\"assistant\",\"tool_calls\":[{\"index\":0,\"id\":\"\",\"type\":"
              "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]},\"logprobs\":null,"
              "\"finish_reason\":null}");
    must_have(p, "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\"}}]}");
    must_have(p, "\"finish_reason\":\"tool_calls\"}],\"usage\":null}\n\ndata: [DONE]");
    struct buf all = BUF_INIT;
    for (const char *at = p; (at = strstr(at, "\"arguments\":\""));) {
        at += strlen("\"arguments\":\"");
        buf_add(&all, at, strcspn(at, "}]")); /* the inside of one delta, still escaped */
    }
    assert_non_null(strstr(all.p, "\\\"")); /* more than a brace came */
    buf_free(&all);
    assert_null(strstr(p, "tool_call>"));
}

static void reasoning_is_told_from_the_answer(void **state)
{
    (void)state;
#define THOUGHT "{\"messages\":[{\"role\":\"user\",\"content\":\"SAY <think>so</think>yes|\"}]"
    char *p = post(&rig, "/v1/chat/completions", THOUGHT "}", &b);
    must_have(p, "\"content\":\"yes\",\"reasoning_content\":\"so\",\"reasoning\":\"so\"}");
    p = post(&rig, "/v1/chat/completions", THOUGHT ",\"separate_reasoning\":false}", &b);
    must_have(p, "\"content\":\"<think>so</think>yes\"}");
    p = post(&rig, "/v1/chat/completions", THOUGHT ",\"include_reasoning\":false}", &b);
    must_have(p, "\"content\":\"yes\"}");
    p = unchunk(post(&rig, "/v1/chat/completions", THOUGHT ",\"stream\":true}", &b));
    must_have(p,
              "\"delta\":{\"role\":\"assistant\",\"reasoning_content\":\"s\",\"reasoning\":\"s\"}");
    must_have(p, "\"delta\":{\"role\":\"assistant\",\"content\":\"y\"}");
    /* a template that opens the reasoning itself; closed where the answer is constrained */
#define OPENS "{\"messages\":[{\"role\":\"user\",\"content\":\"SAY a</think>b|OPEN\"}]"
    p = post(&rig, "/v1/chat/completions", OPENS "}", &b);
    must_have(p, "\"content\":\"b\",\"reasoning_content\":\"a\"");
    p = post(&rig, "/chat_tokenize", OPENS ",\"response_format\":{\"type\":\"json_object\"}}", &b);
    must_have(p, "[assistant]<think>\\n</think>\\n\\n\"}");
}

static void completions_answer(void **state)
{
    (void)state;
    char *p =
        post(&rig, "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":2,\"echo\":true}", &b);
    assert_string_equal(
        body_of(settled(p)),
        "{\"object\":\"text_completion\",\"id\":\"\",\"created\":,\"model\":\"test/model\","
        "\"system_fingerprint\":\"0.0-native\",\"choices\":[{\"index\":0,\"text\":\"xab\","
        "\"logprobs\":null,"
        "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":2,"
        "\"total_tokens\":4,\"prompt_tokens_details\":{\"cached_tokens\":0}}}");
    p = post(&rig, "/v1/completions", "{\"prompt\":[\"x\",\"EOS\"],\"n\":2,\"max_tokens\":4}", &b);
    must_have(p, "{\"index\":0,\"text\":\"abcd\",\"logprobs\":null,\"finish_reason\":\"length\"},"
                 "{\"index\":1,\"text\":\"abcd\",\"logprobs\":null,\"finish_reason\":\"length\"},"
                 "{\"index\":2,\"text\":\"ab\",\"logprobs\":null,\"finish_reason\":\"stop\"},"
                 "{\"index\":3,\"text\":\"ab\",\"logprobs\":null,\"finish_reason\":\"stop\"}]");
    must_have(p, "\"usage\":{\"prompt_tokens\":6,\"completion_tokens\":14,\"total_tokens\":20,"
                 "\"prompt_tokens_details\":{\"cached_tokens\":0}}");
    /* of four answers the two best: they differ in nothing here but in who computed them */
    p = post(&rig, "/v1/completions",
             "{\"prompt\":[\"x\",\"EOS\"],\"n\":1,\"best_of\":3,\"max_tokens\":4}", &b);
    must_have(p, "{\"index\":0,\"text\":\"abcd\",\"logprobs\":null,\"finish_reason\":\"length\"},"
                 "{\"index\":1,\"text\":\"ab\",\"logprobs\":null,\"finish_reason\":\"stop\"}]");
    must_have(p, "\"usage\":{\"prompt_tokens\":6,\"completion_tokens\":21,\"total_tokens\":27,"
                 "\"prompt_tokens_details\":{\"cached_tokens\":0}}");
    p = post(&rig, "/v1/completions", "{\"prompt\":[104,105],\"max_tokens\":1,\"echo\":true}", &b);
    must_have(p, "\"text\":\"hia\"");
    must_have(p, "x-prompt-tokens: 2\r\n");
    p = post(&rig, "/v1/completions", "{\"prompt\":[[104],[105]],\"max_tokens\":1}", &b);
    must_have(p, "{\"index\":1,\"text\":\"a\"");
}

static void completions_logprobs_with_echo(void **state)
{
    (void)state;
    char *p = post(&rig, "/v1/completions",
                   "{\"prompt\":\"h\xc3\xa9\",\"max_tokens\":1,\"echo\":true,\"logprobs\":1}", &b);
    must_have(
        p,
        "\"logprobs\":{\"tokens\":[\"p\",\"p\",\"p\",\"p\",\"a\"],\"token_logprobs\":[null,-0.25,"
        "-0.25,-0.25,-0.5],\"top_logprobs\":[null,{\"p\":-0.25},{\"p\":-0.25},{\"p\":-0.25},"
        "{\"A\":-0.1,\"a\":-0.5}],\"text_offset\":[0,0,1,2,3]}");
}

static void completions_stream(void **state)
{
    (void)state;
    char *p = post(&rig, "/v1/completions",
                   "{\"prompt\":\"x\",\"max_tokens\":2,\"stream\":true,\"echo\":true}", &b);
    assert_string_equal(
        settled(unchunk(p)),
        "data: "
        "{\"object\":\"text_completion\",\"id\":\"\",\"created\":,\"choices\":[{\"index\":0,"
        "\"text\":"
        "\"xa\",\"logprobs\":null,\"finish_reason\":null}],\"model\":\"test/"
        "model\",\"system_fingerprint\":"
        "\"0.0-native\"}\n\n"
        "data: {\"object\":\"text_completion\",\"id\":\"\",\"created\":,\"model\":\"test/model\","
        "\"system_fingerprint\":\"0.0-native\",\"choices\":[{\"index\":0,\"text\":\"b\","
        "\"logprobs\":null,"
        "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":2,"
        "\"total_tokens\":4,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\ndata: [DONE]\n\n");
}

static const struct {
    const char *path, *body;
    int status;
    const char *part;
} cases[] = {
    /* what clients send by habit */
    {"/v1/chat/completions",
     CHAT(",\"max_tokens\":1,\"temperature\":0,\"top_p\":1.0,\"n\":1,\"stop\":null"), 200,
     "\"content\":\"a\""},
    {"/v1/chat/completions",
     CHAT(",\"max_tokens\":1,\"top_p\":1,\"presence_penalty\":0,\"logit_bias\":{}"), 200, ""},
    {"/v1/chat/completions",
     CHAT(",\"max_tokens\":1,\"stop\":\"z\",\"user\":\"u\",\"seed\":18446744073709551615"), 200,
     ""},
    {"/v1/chat/completions", CHAT(",\"max_tokens\":1,\"response_format\":{\"type\":\"text\"}"), 200,
     ""},
    {"/v1/chat/completions", CHAT(",\"max_tokens\":1,\"tools\":[{\"name\":\"bare\"}]"), 200, ""},
    {"/v1/chat/completions", CHAT(",\"max_tokens\":1,\"tools\":[],\"tool_choice\":\"auto\""), 200,
     ""},
    {"/v1/chat/completions", CHAT(",\"max_tokens\":null,\"max_completion_tokens\":1"), 200, ""},
    /* what is refused */
    {"/v1/chat/completions", "{}", 400, "missing field `messages`"},
    {"/v1/chat/completions", "{\"messages\":{}}", 400,
     "`messages`: expected a list, got an object"},
    {"/v1/chat/completions", "{\"messages\":[{\"content\":\"a\"}]}", 400,
     "messages[0]: missing field `role`"},
    {"/v1/chat/completions", "{\"messages\":[{\"role\":\"bad\"}]}", 400, "no such role"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]}",
     400, "image inputs are not supported"},
    {"/v1/chat/completions", "{\"messages\":[{\"role\":\"bad\",\"content\":\"a\"}]}", 400,
     "\"error_type\":\"template_error\"}"},
    {"/v1/chat/completions",
     "{\"stream\":true,\"messages\":[{\"role\":\"bad\",\"content\":\"a\"}]}", 400, "no such role"},
    {"/v1/chat/completions", CHAT(",\"n\":129"), 400, "`n` must be > 0 and <= 128. Given: 129"},
    {"/v1/chat/completions",
     CHAT(",\"max_tokens\":1,\"logit_bias\":{\"5\":-100,\"0\":1.5},\"min_tokens\":1,"
          "\"stop_token_ids\":[3]"),
     200, ""},
    {"/v1/chat/completions", CHAT(",\"logit_bias\":7"), 400,
     "`logit_bias`: expected a map of token ids to numbers, got 7"},
    {"/v1/chat/completions", CHAT(",\"logit_bias\":{\"a\":1}"), 400,
     "`logit_bias`: invalid key \\\"a\\\", expected a token id"},
    {"/v1/chat/completions", CHAT(",\"logit_bias\":{\"07\":1}"), 400, "expected a token id"},
    {"/v1/chat/completions", CHAT(",\"logit_bias\":{\"4294967296\":1}"), 400,
     "expected a token id"},
    {"/v1/chat/completions", CHAT(",\"logit_bias\":{\"7\":\"1\"}"), 400, "expected a number"},
    {"/v1/chat/completions", CHAT(",\"logit_bias\":{\"257\":1}"), 400,
     "token id 257 is outside the vocabulary of 257"},
    {"/v1/chat/completions", CHAT(",\"logit_bias\":{\"7\":100.5}"), 400,
     "`logit_bias` must be between -100 and 100"},
    {"/v1/chat/completions", CHAT(",\"max_tokens\":1,\"bad_words\":[\"a\",\" bcd\"]"), 200, ""},
    {"/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1,\"bad_words\":[\"a\"]}", 200, ""},
    {"/v1/chat/completions", CHAT(",\"bad_words\":\"a\""), 400, "expected a list"},
    {"/v1/chat/completions", CHAT(",\"bad_words\":[7]"), 400, "expected a string"},
    {"/v1/chat/completions", CHAT(",\"bad_words\":[\"a\",\" \\n\"]"), 400,
     "`bad_words` cannot contain an empty word"},
    {"/v1/chat/completions", CHAT(",\"min_tokens\":5,\"max_tokens\":4"), 400,
     "`min_tokens` must be <= `max_tokens`"},
    {"/v1/chat/completions", CHAT(",\"stop_token_ids\":[257]"), 400, "`stop_token_ids`: 257"},
    {"/v1/chat/completions", CHAT(",\"stop_token_ids\":3"), 400, "expected a list"},
    {"/v1/chat/completions", CHAT(",\"tools\":\"f\""), 400,
     "`tools`: expected a list, got string \\\"f\\\""},
    {"/v1/chat/completions", CHAT(",\"tools\":[{}]"), 400, "tools[0]: missing field `function`"},
    {"/v1/chat/completions", CHAT(",\"tools\":[{\"function\":{}}]"), 400,
     "tools[0]: missing field `name`"},
    {"/v1/chat/completions", CHAT(",\"guided_grammar\":\"x\""), 400,
     "grammars are not supported by the shards"},
    {"/v1/chat/completions", CHAT(",\"use_beam_search\":true"), 400,
     "\"param\":\"use_beam_search\""},
    {"/v1/chat/completions",
     CHAT(",\"max_tokens\":1,\"use_beam_search\":false,\"functions\":null,"
          "\"length_penalty\":1,\"bad_words\":[]"),
     200, ""},
    {"/v1/chat/completions", CHAT(",\"chat_template_kwargs\":1"), 400, "expected an object, got"},
    {"/v1/chat/completions", CHAT(",\"tool_choice\":{}"), 400, "expected a string or a function"},
    {"/v1/chat/completions", CHAT(",\"presence_penalty\":3"), 400,
     "`presence_penalty` must be >= -2.0"},
    /* constraints: the fake scheduler does not obey, but refuses nothing either */
    {"/v1/chat/completions",
     CHAT(",\"max_tokens\":1,\"response_format\":{\"type\":\"json_object\"}"), 200,
     "\"content\":\"a\""},
    {"/v1/chat/completions",
     CHAT(",\"max_tokens\":1,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
          "\"name\":"
          "\"n\",\"strict\":true,\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{}}}}}"),
     200, ""},
    {"/v1/chat/completions",
     CHAT(",\"max_tokens\":1,\"response_format\":{\"type\":\"regex\",\"value\":\"[a-z]+\"}"), 200,
     ""},
    {"/v1/completions",
     "{\"prompt\":\"a\",\"max_tokens\":1,\"structured_outputs\":{\"choice\":[\"a|b\",\"\xc3\xa9\"]}"
     "}",
     200, ""},
    {"/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1,\"guided_regex\":\"a+\"}", 200, ""},
    {"/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1,\"guided_choice\":[\"\"]}", 200, ""},
    {"/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1,\"guided_choice\":[\"x\"]}", 200, ""},
    {"/v1/chat/completions",
     CHAT(",\"stream\":true,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
          "\"schema\":{"
          "\"properties\":{\"a\":{\"uniqueItems\":true}}}}}"),
     400,
     "{\"error\":{\"message\":\"Input validation error: grammar is not valid: JSON schema: "
     "`uniqueItems` of items that are not 8 listed values at most at "
     "`#/properties/a/uniqueItems`\",\"type\":"
     "\"invalid_request_error\""},
    {"/v1/completions", "{\"prompt\":\"a\",\"guided_regex\":\"a(?=b)\"}", 400,
     "grammar is not valid: pattern"},
    {"/v1/completions", "{\"prompt\":\"a\",\"guided_json\":7}", 400,
     "`guided_json`: expected a JSON schema, got 7"},
    {"/v1/completions", "{\"prompt\":\"a\",\"guided_json\":{},\"guided_regex\":\"a\"}", 400,
     "more than one constraint"},
    {"/v1/completions", "{\"prompt\":\"a\",\"structured_outputs\":{\"grammar\":\"root ::= a\"}}",
     400, "grammars are not supported by the shards"},
    {"/v1/completions", "{\"prompt\":\"a\",\"structured_outputs\":[7]}", 400,
     "expected an object, got"},
    {"/v1/completions", "{\"prompt\":\"a\",\"response_format\":{\"type\":\"json_schema\"}}", 400,
     "missing field `json_schema`"},
    {"/v1/completions", "{\"prompt\":\"a\",\"guided_choice\":[]}", 400, "expected a list of texts"},
    {"/v1/chat/completions",
     CHAT(",\"tools\":[{\"function\":{\"name\":\"f\"}}],\"response_format\":{\"type\":\"json_"
          "object\",\"value\":{}}"),
     400, "\"message\":\"Tool error: Grammar and tools are mutually exclusive\""},
    {"/v1/chat/completions",
     CHAT(",\"max_tokens\":2,\"tools\":[{\"function\":{\"name\":\"f\"}}],\"tool_choice\":"
          "\"required\""),
     200, "\"content\":\"ab\"},\"logprobs\":null,\"finish_reason\":\"length\""},
    {"/v1/chat/completions",
     CHAT(",\"stream\":true,\"tools\":[{\"function\":{\"name\":\"f\"}}],\"tool_choice\":\"g\""),
     400, "\"message\":\"Tool error: Tool with name g not found\""},
    {"/v1/chat/completions",
     CHAT(",\"tools\":[{\"function\":{\"name\":\"a/"
          "b\",\"parameters\":{\"properties\":{\"x\":{\"$ref\":"
          "\"#/$defs/y\"}},\"$defs\":{\"y\":{\"uniqueItems\":true}}}}}],\"tool_choice\":\"a/b\""),
     400, "at `#/$defs/a~1b/$defs/y/uniqueItems`"},
    {"/v1/chat/completions", CHAT(",\"stream\":true,\"top_p\":7"), 400,
     "{\"error\":{\"message\":\"Input validation error: `top_p` must be >= 0 and <= 1\","
     "\"type\":\"invalid_request_error\",\"param\":\"top_p\",\"code\":null},\"error_type\":"
     "\"validation\"}"},
    {"/v1/completions", "{}", 400, "missing field `prompt`"},
    {"/v1/completions", "{\"prompt\":[]}", 400,
     "Empty array detected. Do not use an empty array for the prompt."},
    {"/v1/completions", "{\"prompt\":[[]]}", 400, "`prompt` cannot be empty"},
    {"/v1/completions", "{\"prompt\":[1,\"a\"]}", 400,
     "expected a whole number from 0 to 4294967295"},
    {"/v1/completions", "{\"prompt\":[\"a\",1]}", 400, "expected a string or a list of token ids"},
    {"/v1/completions", "{\"prompt\":[257]}", 400, "token id 257 is outside the vocabulary of 257"},
    {"/v1/completions", "{\"prompt\":[4294967295]}", 400,
     "token id 4294967295 is outside the vocabulary of 257"},
    {"/v1/completions", "{\"prompt\":\"a\",\"suffix\":\"b\"}", 400,
     "\"message\":\"Suffix is not supported and can be achieved by preprocessing the prompt.\""},
    /* more prompts, choices, alternatives and stops than TGI's routes take */
    {"/v1/completions",
     "{\"prompt\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"],\"max_tokens\":1}", 200,
     "\"index\":8,"},
    {"/v1/completions", "{\"prompt\":[\"1\",\"2\",\"3\"],\"n\":40,\"max_tokens\":1}", 200,
     "\"index\":119,"},
    {"/v1/chat/completions", CHAT(",\"n\":8,\"max_tokens\":1"), 200, "\"index\":7,"},
    {"/v1/chat/completions", CHAT(",\"n\":0"), 400, "`n` must be > 0 and <= 128. Given: 0"},
    {"/v1/chat/completions",
     CHAT(",\"max_tokens\":1,\"logprobs\":true,\"top_logprobs\":20,\"stop\":[\"1\",\"2\",\"3\","
          "\"4\","
          "\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\",\"14\",\"15\",\"16\"]"),
     200, ""},
    {"/v1/chat/completions", CHAT(",\"logprobs\":true,\"top_logprobs\":21"), 400,
     "`top_logprobs` must be >= 0 and <= 20. Given: 21"},
    {"/v1/completions",
     "{\"prompt\":\"a\",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\","
     "\"11\","
     "\"12\",\"13\",\"14\",\"15\",\"16\",\"17\"]}",
     400, "`stop` supports up to 16 stop sequences. Given: 17"},
    {"/generate",
     "{\"inputs\":\"a\",\"parameters\":{\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\"],\"max_new_"
     "tokens\":1}}",
     422, "`stop` supports up to 4 stop sequences. Given: 5"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"top_n_tokens\":6,\"max_new_tokens\":1}}",
     422, "`top_n_tokens` must be >= 0 and <= 5. Given: 6"},
    /* null is absent */
    {"/v1/chat/completions",
     CHAT(",\"max_tokens\":1,\"stream\":null,\"stream_options\":null,\"n\":null,\"seed\":null,"
          "\"temperature\":null,\"top_p\":null,\"top_k\":null,\"logprobs\":null,\"top_logprobs\":"
          "null,"
          "\"tools\":null,\"tool_choice\":null,\"parallel_tool_calls\":null,\"response_format\":"
          "null,"
          "\"logit_bias\":null,\"user\":null,\"stop\":null,\"presence_penalty\":null,"
          "\"frequency_penalty\":null,\"max_completion_tokens\":null,\"metadata\":null,"
          "\"model\":null,\"stop_token_ids\":null,\"ignore_eos\":null,\"min_tokens\":null,"
          "\"chat_template_kwargs\":null,\"reasoning_effort\":null,\"add_generation_prompt\":null,"
          "\"continue_final_message\":null,\"guided_json\":null,\"echo\":null"),
     200, "\"content\":\"a\""},
    {"/v1/chat/completions", CHAT(",\"max_tokens\":1,\"stream_options\":{\"include_usage\":null}"),
     200, "\"content\":\"a\""},
    {"/v1/completions",
     "{\"prompt\":\"a\",\"max_tokens\":1,\"stream\":null,\"echo\":null,\"suffix\":null,\"best_of\":"
     "null,"
     "\"n\":null,\"logprobs\":null,\"stream_options\":null,\"seed\":null}",
     200, "\"text\":\"a\""},
    {"/v1/messages",
     "{\"model\":null,\"max_tokens\":1,\"stream\":null,\"system\":null,\"tools\":null,\"thinking\":"
     "null,"
     "\"tool_choice\":null,\"stop_sequences\":null,\"metadata\":null,\"top_p\":null,\"messages\":[{"
     "\"role\":\"user\",\"content\":\"x\"}]}",
     200, "\"text\":\"a\""},
    {"/v1/responses",
     "{\"input\":\"x\",\"max_output_tokens\":1,\"stream\":null,\"store\":null,\"tools\":null,"
     "\"instructions\":null,\"previous_response_id\":null,\"truncation\":null,\"text\":null,"
     "\"reasoning\":null,\"include\":null,\"background\":null}",
     200, "\"text\":\"a\""},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"do_sample\":null}}", 422,
     "invalid type: null"},
    /* what other servers take these for */
    {"/v1/chat/completions", CHAT(",\"max_tokens\":1,\"seed\":-1"), 200, "\"content\":\"a\""},
    {"/v1/chat/completions", CHAT(",\"max_tokens\":1,\"seed\":-7"), 200, "\"content\":\"a\""},
    {"/v1/chat/completions", CHAT(",\"max_tokens\":1,\"seed\":-1.5"), 400,
     "`seed`: expected a whole number of 64 bits, got -1.5"},
    {"/v1/chat/completions", CHAT(",\"max_tokens\":1,\"top_p\":0"), 200, "\"content\":\"a\""},
    {"/v1/chat/completions", CHAT(",\"max_tokens\":1,\"top_p\":-0.5"), 400,
     "`top_p` must be >= 0 and <= 1"},
    {"/v1/completions", "{\"prompt\":\"EOS\",\"max_tokens\":-1}", 200,
     "\"finish_reason\":\"stop\""},
    {"/v1/completions", "{\"prompt\":\"EOS\",\"max_tokens\":-2}", 400,
     "`max_tokens` must be > 0, or -1 for as many as there is room for"},
    {"/v1/chat/completions",
     "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":null}]}", 200,
     "\"content\":\"a\""},
    {"/v1/chat/completions", "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":7}]}",
     400, "messages[0]: `content` must be a string or a list of parts"},
    /* plain words, with the field in `param` */
    {"/v1/chat/completions", CHAT(",\"stream\":\"yes\""), 400,
     "{\"error\":{\"message\":\"Invalid request: `stream`: expected a boolean, got string "
     "\\\"yes\\\"\",\"type\":\"invalid_request_error\",\"param\":\"stream\""},
    {"/v1/chat/completions", CHAT(",\"temperature\":\"hot\""), 400,
     "`temperature`: expected a number, got string"},
    {"/v1/messages", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", 400,
     "Invalid request: missing field `max_tokens`"},
    {"/v1/completions", "{\"prompt\":\"FAIL\",\"stream\":true}", 200,
     "data: {\"error\":{\"message\":\"Request failed during generation: Server error: x\","
     "\"type\":\"server_error\",\"param\":null,\"code\":null,\"http_status_code\":500},"
     "\"error_type\":\"generation\"}\n\ndata: [DONE]\n\n"},
    {"/v1/completions", "{\"prompt\":[\"a\",\"FAIL\"],\"max_tokens\":3000}", 500, "generation"},
    {"/tokenize", "{\"inputs\":\"ab\"}", 200,
     "[{\"id\":256,\"text\":\"\",\"start\":0,\"stop\":0},{\"id\":97,\"text\":\"a\",\"start\":0,"
     "\"stop\":1},"
     "{\"id\":98,\"text\":\"b\",\"start\":1,\"stop\":2}]"},
};

static void requests_and_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *p = post(&rig, cases[i].path, cases[i].body, &b);
        if (status_of(p) != cases[i].status || !strstr(p, cases[i].part))
            fail_msg("%s %s\nwanted %d %s\ngot %s", cases[i].path, cases[i].body, cases[i].status,
                     cases[i].part, p);
    }
}

static void stop_sequences_stay_out_of_openai_answers(void **state)
{
    (void)state;
    /* the fake scheduler does not stop by itself: held back text must come back in full */
    char *p = post(&rig, "/v1/completions",
                   "{\"prompt\":\"x\",\"max_tokens\":5,\"stop\":[\"cx\",\"ef\"]}", &b);
    must_have(p, "\"text\":\"abcde\",\"logprobs\":null,\"finish_reason\":\"length\"");
    /* complete with the last token allowed: a stop all the same */
    p = post(&rig, "/v1/completions",
             "{\"prompt\":\"x\",\"max_tokens\":5,\"stop\":[\"cx\",\"de\"]}", &b);
    must_have(p, "\"text\":\"abc\",\"logprobs\":null,\"finish_reason\":\"stop\"");
}

static void models_are_listed_and_found(void **state)
{
    (void)state;
    char *p = ask_raw(&rig, "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &b);
    must_have(
        p,
        "{\"object\":\"list\",\"data\":[{\"id\":\"test/model\",\"object\":\"model\",\"created\":0,"
        "\"owned_by\":\"test/model\",\"root\":\"test/model\",\"parent\":null,"
        "\"max_model_len\":");
    p = ask_raw(&rig, "GET /v1/models/test/model HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                &b);
    must_have(p, "{\"id\":\"test/model\",\"object\":\"model\"");
    p = ask_raw(&rig, "GET /v1/models/nope HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &b);
    assert_int_equal(status_of(p), 404);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_answers),
        cmocka_unit_test(chat_streams),
        cmocka_unit_test(chat_logprobs_and_n),
        cmocka_unit_test(the_template_sees_tools_calls_and_a_last_answer),
        cmocka_unit_test(numbers_reach_the_template_as_they_were_written),
        cmocka_unit_test(calls_are_told_from_text),
        cmocka_unit_test(calls_are_streamed),
        cmocka_unit_test(reasoning_is_told_from_the_answer),
        cmocka_unit_test(completions_answer),
        cmocka_unit_test(completions_logprobs_with_echo),
        cmocka_unit_test(completions_stream),
        cmocka_unit_test(requests_and_refusals),
        cmocka_unit_test(stop_sequences_stay_out_of_openai_answers),
        cmocka_unit_test(models_are_listed_and_found),
    };
    log_init("test", LOG_OFF, false, STDERR_FILENO);
    return cmocka_run_group_tests(tests, start, stop);
}
