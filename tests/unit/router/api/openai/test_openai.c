/* OpenAI's routes on a socket: exact bodies and chunks. */
#include "tests/unit/router/api/openai/openai_rig.h"

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

TEST(chat_answers)
{
    char *p = post(&rig, "/v1/chat/completions", CHAT(",\"max_tokens\":3"), &b);
    must_have(p, "x-prompt-tokens: 22\r\n"); /* <s>[user]hi[assistant] */
    must_have(p, "x-compute-time: ");
    assert_string_equal(
        body_of(settled(p)),
        "{\"object\":\"chat.completion\",\"id\":\"\",\"created\":,\"model\":\"test/model\","
        "\"system_fingerprint\":\"0.0-native\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
        "\"assistant\",\"content\":\"abc\"},\"logprobs\":null,\"finish_reason\":\"length\"}],"
        "\"usage\":{\"prompt_tokens\":22,\"completion_tokens\":3,\"total_tokens\":25,\"prompt_"
        "tokens_details\":{\"cached_tokens\":0}"
        ",\"completion_tokens_details\":{\"reasoning_tokens\":0}}}");
}

TEST(chat_streams)
{
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
                                  "details\":{\"cached_tokens\":0},"
                                  "\"completion_tokens_details\":{\"reasoning_tokens\":0}}}"
                                  "\n\ndata: [DONE]\n\n");
}

TEST(chat_logprobs_and_n)
{
    char *p =
        post(&rig, "/v1/chat/completions",
             CHAT(",\"max_completion_tokens\":1,\"logprobs\":true,\"top_logprobs\":1,\"n\":2"), &b);
    must_have(p, "\"logprobs\":{\"content\":[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],"
                 "\"top_logprobs\":[{\"token\":\"A\",\"logprob\":-0.1,\"bytes\":[65]}]}]}");
    must_have(p, "{\"index\":1,\"message\":{\"role\":\"assistant\",\"content\":\"a\"}");
    must_have(p, "\"usage\":{\"prompt_tokens\":22,\"completion_tokens\":2,\"total_tokens\":24,"
                 "\"prompt_tokens_details\":{\"cached_tokens\":0}"
                 ",\"completion_tokens_details\":{\"reasoning_tokens\":0}}");
}

TEST(the_template_sees_tools_calls_and_a_last_answer)
{
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

TEST(numbers_reach_the_template_as_they_were_written)
{
    static const char *const arguments[] = {"{\"city\":2.0}", "\"{\\\"city\\\":2.0}\"",
                                            "{\"city\":12345678901234567890}"};
    static const char *const want[] = {"[assistant]2.0", "[assistant]2.0",
                                       "[assistant]12345678901234567890"};
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

TEST(calls_are_told_from_text)
{
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

TEST(calls_are_streamed)
{
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

TEST(reasoning_is_told_from_the_answer)
{
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

TEST(completions_answer)
{
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

TEST(completions_logprobs_with_echo)
{
    char *p = post(&rig, "/v1/completions",
                   "{\"prompt\":\"h\xc3\xa9\",\"max_tokens\":1,\"echo\":true,\"logprobs\":1}", &b);
    must_have(
        p,
        "\"logprobs\":{\"tokens\":[\"p\",\"p\",\"p\",\"p\",\"a\"],\"token_logprobs\":[null,-0.25,"
        "-0.25,-0.25,-0.5],\"top_logprobs\":[null,{\"p\":-0.25},{\"p\":-0.25},{\"p\":-0.25},"
        "{\"A\":-0.1,\"a\":-0.5}],\"text_offset\":[0,0,1,2,2]}");
}

TEST(completions_stream)
{
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

TEST(stop_sequences_stay_out_of_openai_answers)
{
    /* the fake scheduler does not stop by itself: held back text must come back in full */
    char *p = post(&rig, "/v1/completions",
                   "{\"prompt\":\"x\",\"max_tokens\":5,\"stop\":[\"cx\",\"ef\"]}", &b);
    must_have(p, "\"text\":\"abcde\",\"logprobs\":null,\"finish_reason\":\"length\"");
    /* complete with the last token allowed: a stop all the same */
    p = post(&rig, "/v1/completions",
             "{\"prompt\":\"x\",\"max_tokens\":5,\"stop\":[\"cx\",\"de\"]}", &b);
    must_have(p, "\"text\":\"abc\",\"logprobs\":null,\"finish_reason\":\"stop\"");
}

TEST(models_are_listed_and_found)
{
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
    log_init("test", LOG_OFF, false, STDERR_FILENO);
    return tests_run(openai_start, openai_stop);
}
