/* The edge from the outside: status, headers and bytes on a socket, for good and for bad clients.
 */
#include "tests/unit/router/edge_rig.h"

TEST(generate_answers_in_tgis_order)
{
    char *p =
        post(&rig, "/generate",
             "{\"inputs\":\"h\xc3\xa9\",\"parameters\":{\"max_new_tokens\":3,\"details\":true,"
             "\"decoder_input_details\":true,\"top_n_tokens\":2}}",
             &b);
    assert_int_equal(status_of(p), 200);
    assert_string_equal(
        body_of(p),
        "{\"generated_text\":\"abc\",\"details\":{\"finish_reason\":\"length\",\"generated_"
        "tokens\":3,"
        "\"seed\":null,\"prefill\":[{\"id\":256,\"text\":\"p\",\"logprob\":null},"
        "{\"id\":104,\"text\":\"p\",\"logprob\":-0.25},{\"id\":195,\"text\":\"p\",\"logprob\":-0."
        "25},"
        "{\"id\":169,\"text\":\"p\",\"logprob\":-0.25}],\"tokens\":["
        "{\"id\":100,\"text\":\"a\",\"logprob\":-0.5,\"special\":false},"
        "{\"id\":101,\"text\":\"b\",\"logprob\":-0.5,\"special\":false},"
        "{\"id\":102,\"text\":\"c\",\"logprob\":-0.5,\"special\":false}],\"top_tokens\":["
        "[{\"id\":1,\"text\":\"A\",\"logprob\":-0.1,\"special\":false},"
        "{\"id\":2,\"text\":\"B\",\"logprob\":-2.5,\"special\":false}],"
        "[{\"id\":1,\"text\":\"A\",\"logprob\":-0.1,\"special\":false},"
        "{\"id\":2,\"text\":\"B\",\"logprob\":-2.5,\"special\":false}],"
        "[{\"id\":1,\"text\":\"A\",\"logprob\":-0.1,\"special\":false},"
        "{\"id\":2,\"text\":\"B\",\"logprob\":-2.5,\"special\":false}]]}}");
    must_have(p, "x-compute-characters: 2\r\n");
    must_have(p, "x-prompt-tokens: 4\r\n");
    must_have(p, "x-generated-tokens: 3\r\n");
    must_have(p, "x-compute-type: cpu\r\n");
    must_have(p, "x-request-id: ");
}

TEST(stream_ends_with_the_text)
{
    char *p = post(&rig, "/generate_stream",
                   "{\"inputs\":\"x EOS\",\"parameters\":{\"max_new_tokens\":9,\"details\":true,"
                   "\"do_sample\":true,\"seed\":18446744073709551615}}",
                   &b);
    assert_int_equal(status_of(p), 200);
    must_have(p, "text/event-stream");
    assert_string_equal(
        unchunk(p),
        "data: "
        "{\"index\":1,\"token\":{\"id\":100,\"text\":\"a\",\"logprob\":-0.5,\"special\":false},"
        "\"generated_text\":null,\"details\":null}\n\n"
        "data: "
        "{\"index\":2,\"token\":{\"id\":101,\"text\":\"b\",\"logprob\":-0.5,\"special\":false},"
        "\"generated_text\":null,\"details\":null}\n\n"
        "data: "
        "{\"index\":3,\"token\":{\"id\":102,\"text\":\"</s>\",\"logprob\":-0.5,\"special\":true},"
        "\"generated_text\":\"ab\",\"details\":{\"finish_reason\":\"eos_token\",\"generated_"
        "tokens\":3,"
        "\"seed\":18446744073709551615,\"input_length\":6}}\n\n");
}

TEST(best_of_returns_the_others_too)
{
    char *p = post(&rig, "/generate",
                   "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":1,\"details\":true,"
                   "\"do_sample\":true,\"best_of\":2}}",
                   &b);
    must_have(p, "\"best_of_sequences\":[{\"generated_text\":\"a\",\"finish_reason\":\"length\","
                 "\"generated_tokens\":1,\"seed\":");
}

TEST(compat_is_a_list_with_the_prompt)
{
    char *p = post(&rig, "/", "{\"inputs\":\"Q:\",\"parameters\":{\"max_new_tokens\":2}}", &b);
    assert_string_equal(body_of(p), "[{\"generated_text\":\"Q:ab\"}]");
    p = post(&rig, "/", "{\"inputs\":\"Q:\",\"stream\":true,\"parameters\":{\"max_new_tokens\":1}}",
             &b);
    must_have(p, "\"generated_text\":\"Q:a\",\"details\":null}\n\n");
}

/* path, body, status, what the reply contains */
static const struct bad {
    const char *path, *body;
    int status;
    const char *part;
} bad[] = {
    {"/generate", "", 400,
     "Failed to parse the request body as JSON: EOF while parsing a value at line 1 column "},
    {"/generate", "{\"inputs\":", 400, "Failed to parse the request body as JSON: "},
    {"/generate", "{\"inputs\":\"a\"} x", 400, "trailing characters"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"stop\":[\"a\\u0000b\"]}}", 400, "NUL"},
    {"/generate", "{\"inputs\":\"\xff\"}", 400, "invalid unicode"},
    {"/generate", "{\"inputs\":\"a\nb\"}", 400, "control character"},
    {"/generate", "{\"inputs\":\"a\",\"n\":01}", 400, "invalid number"},
    {"/generate", "{\"inputs\":\"a\",\"n\":1.}", 400, "invalid number"},
    {"/generate", "{\"inputs\":\"a\",\"n\":-.5e1}", 400, "JSON"},
    {"/generate", "{\"inputs\":\"a\",\"inputs\":\"b\"}", 422, "duplicate field `inputs`"},
    {"/generate", "[]", 422, "invalid type: sequence"},
    {"/generate", "{}", 422,
     "Failed to deserialize the JSON body into the target type: missing field `inputs` at line 1 "
     "column 2"},
    {"/generate", "{\"inputs\":1}", 422,
     "target type: inputs: invalid type: integer `1`, expected a string at line 1 column 11"},
    {"/generate", "{\"inputs\":null}", 422, "inputs: invalid type: null, expected a string"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":\"3\"}}", 422,
     "parameters.max_new_tokens: invalid type: string \"3\", expected u32 at line 1 column 48"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":-1}}", 422,
     "invalid value: integer `-1`, expected u32"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"seed\":18446744073709551616}}", 422,
     "expected u64"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"seed\":1.5}}", 422,
     "invalid type: floating point `1.5`, expected u64"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"do_sample\":null}}", 422,
     "expected a boolean"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"temperature\":1e99}}", 422, "out of range"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"stop\":[1]}}", 422, "expected a string"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":null}", 422, "parameters: invalid type: null"},
    {"/generate", "{\"inputs\":\"\"}", 422,
     "{\"error\":\"Input validation error: `inputs` cannot be "
     "empty\",\"error_type\":\"validation\"}"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"best_of\":3}}", 422,
     "`best_of` must be > 0 and <= 2. Given: 3"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"best_of\":2}}", 422,
     "you must use sampling when `best_of` is > 1"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"best_of\":2,\"do_sample\":true,\"seed\":1}}",
     422, "`seed` must not be set when `best_of` > 1"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"temperature\":0}}", 422,
     "`temperature` must be strictly positive"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"repetition_penalty\":0}}", 422,
     "`repetition_penalty`"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"frequency_penalty\":2.5}}", 422,
     "`frequency_penalty` must be >= -2.0 and <= 2.0"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"top_p\":1.0}}", 422,
     "`top_p` must be > 0.0 and < 1.0"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"typical_p\":0}}", 422, "`typical_p`"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"top_k\":0}}", 422,
     "`top_k` must be strictly positive"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":0}}", 422,
     "`max_new_tokens` must be strictly positive"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\"]}}",
     422, "`stop` supports up to 4 stop sequences. Given: 5"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"top_n_tokens\":6}}", 422,
     "`top_n_tokens` must be >= 0 and <= 5. Given: 6"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"truncate\":0}}", 422,
     "`truncate` must be strictly positive and less than 3000. Given: 0"},
    {"/generate",
     "{\"inputs\":\"a\",\"parameters\":{\"grammar\":{\"type\":\"regex\",\"value\":\"a(\"}}}", 422,
     "{\"error\":\"Input validation error: grammar is not valid: pattern: a group without end"},
    {"/generate_stream",
     "{\"inputs\":\"a\",\"parameters\":{\"grammar\":{\"type\":\"json\",\"value\":\"{\"}}}", 200,
     "data: {\"error\":\"Input validation error: grammar is not valid: JSON schema:"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"grammar\":{\"type\":\"json\"}}}", 422,
     "parameters.grammar: missing field `value`"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"grammar\":{\"type\":\"ebnf\",\"value\":1}}}",
     422, "unknown variant `ebnf`"},
    {"/generate",
     "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":2,\"grammar\":{\"type\":\"json_schema\","
     "\"value\":{\"name\":\"n\",\"schema\":{\"type\":\"integer\"}}}}}",
     200, "\"generated_text\":\"ab\""},
    {"/generate_stream", "{\"inputs\":\"a\",\"parameters\":{\"best_of\":2}}", 200,
     "data: {\"error\":\"Input validation error: `best_of` != 1 is not supported when streaming "
     "tokens\","
     "\"error_type\":\"validation\"}\n\n"},
    {"/generate_stream", "{\"inputs\":\"a\",\"parameters\":{\"decoder_input_details\":true}}", 200,
     "`decoder_input_details` == true is not supported when streaming tokens"},
    {"/generate_stream", "{\"inputs\":", 400, "Failed to parse"},
    {"/generate", "{\"inputs\":\"FAIL\"}", 424,
     "{\"error\":\"Request failed during generation: Server error: "
     "x\",\"error_type\":\"generation\"}"},
    {"/generate_stream", "{\"inputs\":\"FAIL\"}", 200, "\"error_type\":\"generation\"}\n\n"},
};

TEST(bad_bodies_are_refused_in_tgis_words)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char *p = post(&rig, bad[i].path, bad[i].body, &b);
        if (status_of(p) != bad[i].status || !strstr(p, bad[i].part))
            fail_msg("%s %s\nwanted %d %s\ngot %s", bad[i].path, bad[i].body, bad[i].status,
                     bad[i].part, p);
    }
}

TEST(budget_rules)
{
    char long_input[3602] = "", *body;
    memset(long_input, 'x', 3100);
    body = text("{\"inputs\":\"%s\",\"parameters\":{\"max_new_tokens\":900}}", long_input);
    must_have(post(&rig, "/generate", body, &b),
              "`inputs` tokens + `max_new_tokens` must be <= 4000. "
              "Given: 3101 `inputs` tokens and 900 `max_new_tokens`");
    free(body);
    body = text("{\"inputs\":\"%s\",\"parameters\":{\"max_new_tokens\":10}}", long_input);
    must_have(post(&rig, "/generate", body, &b),
              "`inputs` must have less than 3000 tokens. Given: 3101");
    free(body);
    /* cut on the left, the first token stays in front */
    body = text("{\"inputs\":\"%s\",\"parameters\":{\"max_new_tokens\":1,\"truncate\":5,"
                "\"decoder_input_details\":true}}",
                long_input);
    char *p = post(&rig, "/generate", body, &b);
    must_have(p, "x-prompt-tokens: 5\r\n");
    must_have(p, "\"prefill\":[{\"id\":256,");
    free(body);
}

struct raw {
    const char *request;
    int status;
    const char *part;
};

TEST(the_protocol_is_guarded)
{
#define JSON "Content-Type: application/json\r\n"
    static const struct raw raws[] = {
        {"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200, ""},
        {"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200, ""},
        {"GET http://x/info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200, "test/model"},
        {"GET http://x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200, ""},
        {"GET /http://x/info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404, ""},
        {"HEAD /info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200, "application/json"},
        {"GET /info HTTP/1.0\r\n\r\n", 200, "{\"model_id\":\"test/model\",\"model_sha\":null"},
        {"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404, ""},
        {"GET /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405,
         "allow: POST, OPTIONS"},
        {"DELETE /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405,
         "allow: GET, HEAD, OPTIONS"},
        {"OPTIONS /generate HTTP/1.1\r\nHost: x\r\nOrigin: http://a\r\nConnection: close\r\n\r\n",
         200, "access-control-allow-headers: *,authorization"},
        {"OPTIONS /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200,
         "allow: POST, OPTIONS\r\n"},
        {"OPTIONS /info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200,
         "allow: GET, HEAD, OPTIONS\r\n"},
        {"OPTIONS / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200,
         "allow: GET, HEAD, POST, OPTIONS\r\n"},
        {"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200,
         "allow: GET, HEAD, POST, OPTIONS\r\n"},
        {"OPTIONS /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404, ""},
        {"GET /health%00x HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""},
        {"POST /generate HTTP/1.1\r\nHost: x\r\n" JSON
         "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
         400, ""},
        {"POST /generate HTTP/1.1\r\nHost: x\r\n" JSON
         "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
         400, ""},
        {"POST /generate HTTP/1.1\r\nHost: x\r\n" JSON "Content-Length : 2\r\n\r\n{}", 400,
         "Connection: close"},
        {"POST /generate HTTP/1.1\r\nHost: x\r\n" JSON "Transfer-Encoding : chunked\r\n\r\n", 400,
         "Connection: close"},
        {"POST /generate HTTP/1.1\r\nHost: x\r\n" JSON
         "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
         400, "Connection: close"},
        {"POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
         415, "Expected request with `Content-Type: application/json`"},
        {"POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: text/json\r\n"
         "Content-Length: 2\r\n\r\n{}",
         415, ""},
        {"POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: Application/"
         "x+json;charset=utf-8\r\nContent-Length: 2\r\n\r\n{}",
         422, "missing field"},
        {"POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" JSON
         "Transfer-Encoding: chunked\r\n\r\n3\r\n{\"i\r\n3\r\n\":1\r\n1\r\n}\r\n0\r\n\r\n",
         422, "missing field `inputs` at line 1 column 7"},
        {"POST /generate HTTP/1.1\r\nHost: x\r\n" JSON
         "Content-Length: 900000\r\nExpect: 100-continue\r\n\r\n",
         413, "Failed to buffer the request body: length limit exceeded"},
        {"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", 400, ""},
        {"GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-7\r\nConnection: close\r\n\r\n",
         200, "x-request-id: mine-7"},
    };
    for (size_t i = 0; i < sizeof(raws) / sizeof(raws[0]); i++) {
        char *p = ask_raw(&rig, raws[i].request, &b);
        if (status_of(p) != raws[i].status || !strstr(p, raws[i].part))
            fail_msg("%s\nwanted %d %s\ngot %s", raws[i].request, raws[i].status, raws[i].part, p);
    }
}

TEST(a_body_over_the_limit_is_413_not_a_reset)
{
    size_t n = 3000000;
    char *head = text("POST /generate HTTP/1.1\r\nHost: x\r\n" JSON "Connection: close\r\n"
                      "Content-Length: %zu\r\n\r\n",
                      n);
    char *junk = calloc(1, n);
    int fd = dial(&rig);
    say(fd, head, strlen(head));
    say(fd, memset(junk, 'x', n), n);
    assert_int_equal(status_of(receive(fd, &b)), 413);
    close(fd);
    free(junk);
    free(head);
}

TEST(one_connection_serves_many_requests)
{
    const char *body = "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":1}}";
    char *one = text("POST /generate HTTP/1.1\r\nHost: x\r\n" JSON "Content-Length: %zu\r\n\r\n%s",
                     strlen(body), body);
    struct buf all = BUF_INIT;
    for (int i = 0; i < 20; i++)
        buf_str(&all, one); /* pipelined */
    buf_str(&all, "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    int fd = dial(&rig), seen = 0;
    say(fd, all.p, all.len);
    for (const char *p = receive(fd, &b); (p = strstr(p, "{\"generated_text\":\"a\"}")); p++)
        seen++;
    assert_int_equal(seen, 20);
    close(fd);
    buf_free(&all);
    free(one);
}

/* The ways of leaving: with FIN, with RST, half-closing; streaming and not. */
TEST(a_client_that_leaves_is_cancelled_at_once)
{
    const char *paths[] = {"/generate", "/generate_stream"};
    for (int way = 0; way < 6; way++) {
        char *req = post_text(paths[way % 2],
                              "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":3900}}");
        unsigned cancels = rig.fleet.cancels, submitted = rig.fleet.submitted;
        int fd = dial(&rig);
        say(fd, req, strlen(req));
        wait_for(&rig.fleet.submitted, submitted + 1);
        usleep(20000);
        int64_t left = clock_ms();
        if (way / 2 == 0) {
            close(fd);
        } else if (way / 2 == 1) {
            struct linger hard = {1, 0};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
            close(fd);
        } else {
            shutdown(fd, SHUT_WR);
        }
        wait_for(&rig.fleet.cancels, cancels + 1);
        assert_true(clock_ms() - left < 1000); /* an answer takes longer */
        if (way / 2 == 2)
            close(fd);
        free(req);
        rig_settle(&rig);
    }
    assert_true(metric(&rig, "tgi_request_failure{err=\"dropped\"} ") >= 6);
}

TEST(a_slow_reader_is_cut_off_and_costs_little)
{
    char *req = post_text("/generate_stream",
                          "{\"inputs\":\"BIG\",\"parameters\":{\"max_new_tokens\":2000}}");
    unsigned cancels = rig.fleet.cancels;
    int fd = dial(&rig), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    say(fd, req, strlen(req));
    wait_for(&rig.fleet.cancels, cancels + 1);
    rig_settle(&rig);
    receive(fd, &b);
    assert_true(b.len < 8000000);
    assert_null(strstr(b.p, "\"details\":{"));
    close(fd);
    free(req);
}

TEST(too_many_at_once_is_429)
{
    int fd[130];
    char *req = post_text("/generate_stream",
                          "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":3900}}");
    unsigned submitted = rig.fleet.submitted;
    for (int i = 0; i < 128; i++) {
        fd[i] = dial(&rig);
        say(fd[i], req, strlen(req));
    }
    wait_for(&rig.fleet.submitted, submitted + 128);
    char *p = post(&rig, "/generate", "{\"inputs\":\"x\"}", &b);
    assert_int_equal(status_of(p), 429);
    must_have(p, "{\"error\":\"Model is overloaded\",\"error_type\":\"overloaded\"}");
    must_have(p, "retry-after: ");
    p = post(&rig, "/generate_stream", "{\"inputs\":\"x\"}", &b);
    assert_int_equal(status_of(p), 200);
    must_have(p, "data: {\"error\":\"Model is overloaded\",\"error_type\":\"overloaded\"}\n\n");
    for (int i = 0; i < 128; i++)
        close(fd[i]);
    rig_settle(&rig);
    assert_int_equal(status_of(post(&rig, "/generate", "{\"inputs\":\"x EOS\"}", &b)), 200);
    free(req);
}

TEST(draining_refuses_new_and_finishes_old)
{
    char *req =
        post_text("/generate_stream", "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":300}}");
    unsigned submitted = rig.fleet.submitted;
    int fd = dial(&rig);
    say(fd, req, strlen(req));
    wait_for(&rig.fleet.submitted, submitted + 1);
    rig.edge.draining = true;
    char *p = post(&rig, "/generate_stream", "{\"inputs\":\"x\"}", &b);
    assert_int_equal(status_of(p), 503);
    must_have(p, "retry-after: 1");
    p = ask_raw(&rig, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &b);
    assert_int_equal(status_of(p), 503);
    must_have(p, "{\"error\":\"unhealthy\",\"error_type\":\"healthcheck\"}");
    must_have(receive(fd, &b), "\"index\":300,");
    rig.edge.draining = false;
    close(fd);
    free(req);
}

TEST(every_request_has_one_outcome)
{
    rig_settle(&rig);
    double failed = 0;
    const char *const kinds[] = {"validation", "overloaded", "generation", "dropped", "unhealthy"};
    for (int i = 0; i < 5; i++) {
        char *line = text("tgi_request_failure{err=\"%s\"} ", kinds[i]);
        double n = metric(&rig, line);
        assert_true(n > 0);
        failed += n;
        free(line);
    }
    assert_true(metric(&rig, "\ntgi_request_count ") ==
                failed + metric(&rig, "\ntgi_request_success "));
}

int main(void)
{
    log_init("test", LOG_OFF, false, STDERR_FILENO);
    return tests_run(edge_up, edge_down);
}
