/* Requests to OpenAI's and Anthropic's routes, one a row: what is served, and how others are
 * refused. */
#include "tests/unit/router/api/openai/openai_rig.h"

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
    {"/v1/chat/completions", CHAT(",\"tools\":[{\"type\":\"custom\",\"custom\":{}}]"), 400,
     "tools[0]: missing field `name`"},
    {"/v1/chat/completions",
     CHAT(",\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"x\",\"format\":{\"type\":"
          "\"grammar\",\"grammar\":{\"syntax\":\"ebnf\",\"definition\":\"x\"}}}}]"),
     400, "tools[0]: a grammar's `syntax` must be `lark` or `regex`"},
    {"/v1/chat/completions", CHAT(",\"tools\":[{\"type\":\"mcp\"}]"), 400,
     "tools[0]: type `mcp` is not"},
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
     "{\"error\":{\"message\":\"Input validation error: `response_format`: grammar is not valid: "
     "JSON schema: "
     "`uniqueItems` of items that are not 8 listed values at most at "
     "`#/properties/a/uniqueItems`\",\"type\":"
     "\"invalid_request_error\",\"param\":\"response_format\""},
    {"/v1/completions", "{\"prompt\":\"a\",\"guided_regex\":\"a(?=b)\"}", 400,
     "`guided_regex`: grammar is not valid: pattern"},
    {"/v1/completions", "{\"prompt\":\"a\",\"structured_outputs\":{\"json\":{\"type\":\"x\"}}}",
     400, "\"param\":\"structured_outputs\""},
    {"/v1/completions", "{\"prompt\":\"a\",\"response_format\":{}}", 400,
     "`response_format`: missing field `type`"},
    {"/v1/chat/completions",
     CHAT(",\"tool_choice\":\"required\",\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":"
          "{\"type\":\"x\"}}}]"),
     400, "\"param\":\"tools\""},
    {"/v1/completions", "{\"prompt\":\"a\",\"guided_json\":7}", 400,
     "`guided_json`: expected a JSON schema, got 7"},
    {"/v1/completions", "{\"prompt\":\"a\",\"guided_json\":{},\"guided_regex\":\"a\"}", 400,
     "more than one constraint of the answer: `guided_json` is another\",\"type\":"
     "\"invalid_request_error\",\"param\":\"guided_regex\""},
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
    {"/v1/completions", "{\"prompt\":\"a\",\"logprobs\":21}", 400,
     "`logprobs` must be >= 0 and <= 20. Given: 21"},
    {"/v1/completions", "{\"prompt\":\"a\",\"truncate_prompt_tokens\":999999}", 400,
     "`truncate_prompt_tokens` must be strictly positive and less than"},
    {"/v1/completions", "{\"prompt\":\"a\",\"suffix\":\"\",\"max_tokens\":1}", 200, ""},
    {"/v1/completions", "{\"prompt\":\"a\",\"num_beams\":4}", 400, "`num_beams` is not supported"},
    {"/v1/completions",
     "{\"prompt\":\"a\",\"num_beams\":1,\"guidance_scale\":1.0,\"max_tokens\":1}", 200, ""},
    {"/v1/completions", "{\"prompt\":\"a\",\"thinking_token_budget\":0}", 400,
     "`thinking_token_budget` is not supported"},
    {"/v1/completions", "{\"prompt\":\"a\",\"thinking_token_budget\":-1,\"max_tokens\":1}", 200,
     ""},
    {"/v1/completions", "{\"prompt\":\"a\",\"typical_p\":7}", 400, "`typical_p` must be"},
    {"/v1/completions", "{\"prompt\":\"a\",\"repeat_penalty\":0}", 400,
     "`repeat_penalty` must be strictly positive"},
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

TEST(requests_and_refusals)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *p = post(&rig, cases[i].path, cases[i].body, &b);
        if (status_of(p) != cases[i].status || !strstr(p, cases[i].part))
            fail_msg("%s %s\nwanted %d %s\ngot %s", cases[i].path, cases[i].body, cases[i].status,
                     cases[i].part, p);
    }
}

int main(void)
{
    log_init("test", LOG_OFF, false, STDERR_FILENO);
    return tests_run(openai_start, openai_stop);
}
