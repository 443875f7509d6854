// Errors in the shape of each protocol, when to come back, and who may ask: the pure parts of the
// edge.
#include "router/generate/drain.h"
#include "router/http/errors.h"
#include "router/http/keys.h"
#include "router/http/route.h"
#include "tests/unit/test.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct err error(enum err_kind k, const char *msg)
{
    struct err e = ERR_INIT;
    err_set(&e, k, "%s", msg);
    return e;
}

static void expect(enum error_shape s, struct err e, const char *want)
{
    struct buf b = BUF_INIT;
    error_body(&b, s, &e, "r1", e.kind == ERR_OVERLOADED ? 7 : 0);
    buf_ch(&b, 0);
    assert_string_equal(b.p, want);
    buf_free(&b);
}

TEST(shapes)
{
    assert_int_equal(route_errors("/generate"), ERRORS_TGI);
    assert_int_equal(route_errors("/v1/models"), ERRORS_OPENAI);
    assert_int_equal(route_errors("/chat/completions"), ERRORS_OPENAI);
    assert_int_equal(route_errors("/completions"), ERRORS_OPENAI);
    assert_int_equal(route_errors("/embeddings"), ERRORS_OPENAI);
    assert_int_equal(route_errors("/v1/messages/count_tokens"), ERRORS_ANTHROPIC);
    assert_int_equal(route_errors("/v2/chat"), ERRORS_COHERE);
    assert_int_equal(route_errors("/v2/rerank"), ERRORS_OPENAI);
    assert_int_equal(route_errors("/v1beta/models/m:generateContent"), ERRORS_GOOGLE);
    /* paths that are no route's */
    assert_int_equal(route_errors("/v1/files"), ERRORS_OPENAI);
    assert_int_equal(route_errors("/v1/messages/batches"), ERRORS_ANTHROPIC);
    assert_int_equal(route_errors("/v1beta/cachedContents"), ERRORS_GOOGLE);
    assert_int_equal(route_errors("/v1beta1/projects/p/locations/l/x"), ERRORS_GOOGLE);
    assert_int_equal(route_errors("/api/pull"), ERRORS_OLLAMA);
    assert_int_equal(route_errors("/nothing"), ERRORS_TGI);
    struct err e = error(ERR_VALIDATION, "Input validation error: `top_p` must be \"small\"");
    expect(ERRORS_TGI, e,
           "{\"error\":\"Input validation error: `top_p` must be "
           "\\\"small\\\"\",\"error_type\":\"validation\"}");
    expect(ERRORS_OPENAI, e,
           "{\"error\":{\"message\":\"Input validation error: `top_p` must be \\\"small\\\"\","
           "\"type\":\"invalid_request_error\",\"param\":\"top_p\",\"code\":null},\"error_type\":"
           "\"validation\"}");
    expect(ERRORS_ANTHROPIC, e,
           "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
           "\"Input validation error: `top_p` must be \\\"small\\\"\"},\"request_id\":\"r1\"}");
    expect(ERRORS_COHERE, e,
           "{\"id\":\"r1\",\"message\":\"Input validation error: `top_p` must be \\\"small\\\"\"}");
    expect(ERRORS_GOOGLE, e,
           "{\"error\":{\"code\":400,\"message\":\"Input validation error: `top_p` must be "
           "\\\"small\\\"\",\"status\":\"INVALID_ARGUMENT\"}}");
    expect(ERRORS_GOOGLE, error(ERR_OVERLOADED, "Model is overloaded"),
           "{\"error\":{\"code\":503,\"message\":\"Model is overloaded\",\"status\":"
           "\"UNAVAILABLE\",\"details\":[{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\","
           "\"retryDelay\":\"7s\"}]}}");
    expect(ERRORS_TGI, error(ERR_SYNTAX, "no JSON"), "no JSON");
    expect(
        ERRORS_OPENAI, error(ERR_KEY_LIMIT, "Model is overloaded"),
        "{\"error\":{\"message\":\"Model is overloaded\",\"type\":\"rate_limit_error\",\"param\":"
        "null,\"code\":\"rate_limit_exceeded\"},\"error_type\":\"overloaded\"}");
    expect(ERRORS_OPENAI, error(ERR_OVERLOADED, "Model is overloaded"),
           "{\"error\":{\"message\":\"Model is overloaded\",\"type\":\"server_error\",\"param\":"
           "null,\"code\":\"unavailable\"},\"error_type\":\"overloaded\"}");
    expect(ERRORS_ANTHROPIC, error(ERR_OVERLOADED, "Model is overloaded"),
           "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Model is "
           "overloaded\"},\"request_id\":\"r1\"}");
    expect(ERRORS_OPENAI,
           error(ERR_TOO_LONG, "Input validation error: `inputs` must have less than 5 tokens"),
           "{\"error\":{\"message\":\"Input validation error: `inputs` must have less than 5 "
           "tokens\",\"type\":\"invalid_request_error\",\"param\":\"inputs\",\"code\":\"context_"
           "length_exceeded\"},\"error_type\":\"validation\"}");
}

/* A message that quotes the words of another error has no code of its own. */
TEST(codes_are_of_the_kind)
{
    expect(ERRORS_OPENAI, error(ERR_NOT_FOUND, "no such file: model.txt"),
           "{\"error\":{\"message\":\"no such file: model.txt\",\"type\":\"invalid_request_error\","
           "\"param\":null,\"code\":\"not_found\"},\"error_type\":\"not_found\"}");
    expect(ERRORS_OPENAI, error(ERR_NO_MODEL, "The model `x` does not exist"),
           "{\"error\":{\"message\":\"The model `x` does not exist\",\"type\":"
           "\"invalid_request_error\",\"param\":null,\"code\":\"model_not_found\"},\"error_type\":"
           "\"not_found\"}");
    expect(ERRORS_OPENAI, error(ERR_VALIDATION, "`stop`: maximum context length is a stop"),
           "{\"error\":{\"message\":\"`stop`: maximum context length is a stop\",\"type\":"
           "\"invalid_request_error\",\"param\":\"stop\",\"code\":null},\"error_type\":"
           "\"validation\"}");
    expect(ERRORS_OPENAI, error(ERR_NO_PREVIOUS, "`previous_response_id`: gone"),
           "{\"error\":{\"message\":\"`previous_response_id`: gone\",\"type\":"
           "\"invalid_request_error\",\"param\":\"previous_response_id\",\"code\":\"previous_"
           "response_not_found\"},\"error_type\":\"validation\"}");
    expect(ERRORS_OPENAI_MESSAGE, error(ERR_NO_MODEL, "The model `x` does not exist"),
           "{\"type\":\"error\",\"status\":404,\"error\":{\"message\":\"The model `x` does not "
           "exist\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":"
           "\"model_not_found\"},\"error_type\":\"not_found\"}");
}

/* Anthropic's SDKs go on without a thread only if the error says so. */
TEST(a_refused_thread_is_named)
{
    struct err e = error(ERR_NO_THREADS, "`thread` is not supported");
    expect(
        ERRORS_ANTHROPIC, e,
        "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
        "\"`thread` is not supported\",\"details\":{\"error_code\":\"thread_unsupported_request\","
        "\"unsupported\":[\"thread\"]}},\"request_id\":\"r1\"}");
    e = error(ERR_SHAPE, "another fault of it");
    err_param(&e, "thread");
    expect(ERRORS_ANTHROPIC, e,
           "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
           "\"another fault of it\"},\"request_id\":\"r1\"}");
}

TEST(statuses)
{
    static const struct {
        enum err_kind k;
        int tgi, openai;
    } rows[] = {{ERR_VALIDATION, 422, 400}, {ERR_SHAPE, 422, 400},      {ERR_SYNTAX, 400, 400},
                {ERR_TEMPLATE, 422, 400},   {ERR_OVERLOADED, 429, 503}, {ERR_GENERATION, 424, 500},
                {ERR_UNHEALTHY, 503, 503},  {ERR_NOT_FOUND, 404, 404},  {ERR_KEY_LIMIT, 429, 429}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(error_status(ERRORS_TGI, rows[i].k), rows[i].tgi);
        assert_int_equal(error_status(ERRORS_OPENAI, rows[i].k), rows[i].openai);
        assert_int_equal(error_status(ERRORS_ANTHROPIC, rows[i].k), rows[i].openai);
    }
}

TEST(parameters_are_named)
{
    static const struct {
        enum err_kind k;
        const char *msg, *param;
    } rows[] = {
        {ERR_VALIDATION, "Input validation error: `n` must be > 0", "n"},
        {ERR_VALIDATION, "nothing quoted", ""},
        {ERR_VALIDATION, "one ` alone", ""},
        {ERR_TOO_LONG, "`inputs` must have less than 4 tokens. Given: 5", "inputs"},
        {ERR_NO_MODEL, "The model `gpt` does not exist", ""},
        {ERR_SHAPE, "Invalid request: `a` has no such `b`", ""}, /* body.c says which */
        {ERR_GENERATION, "shard `0` has gone", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err e = error(rows[i].k, rows[i].msg);
        char param[64];
        error_param(&e, param, sizeof(param));
        assert_string_equal(param, rows[i].param);
    }
}

#define S 1000000000ll
TEST(waiting_follows_the_pace)
{
    struct drain d = {0};
    assert_int_equal(drain_wait(&d, 100 * S, 1), DRAIN_UNKNOWN_S);
    for (int i = 0; i < 10; i++)
        drain_ended(&d, (100 + 2 * i) * S, 1); /* one in two seconds */
    assert_int_equal(drain_wait(&d, 120 * S, 1), 3);
    assert_int_equal(drain_wait(&d, 120 * S, 10), 21);
    assert_int_equal(drain_wait(&d, 120 * S, 1000), DRAIN_MAX_S);
    assert_int_equal(drain_wait(&d, 150 * S, 1), 6); /* nothing ended lately: slower */
    assert_int_equal(drain_wait(&d, 300 * S, 1), DRAIN_UNKNOWN_S);
    for (int i = 0; i < 1000; i++)
        drain_ended(&d, 300 * S + i * (S / 1000), 4);
    assert_int_equal(drain_wait(&d, 301 * S, 8), DRAIN_MIN_S);
}

TEST(keys_from_list_and_file)
{
    struct keys k;
    struct err e = ERR_INIT;
    char path[] = "/tmp/keys-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(keys_load(&k, NULL, NULL, &e), 0);
    assert_int_equal(k.n, 0);
    keys_free(&k);
    assert_int_equal(keys_load(&k, "a", path, &e), -1); /* a file without a key */
    assert_non_null(strstr(e.msg, "no key in it"));
    assert_int_equal(keys_load(&k, NULL, "/nonexistent/keys", &e), -1);
    const char *text = "# ours\n  third \r\n\nfourth,5\t the night shift \n";
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    assert_int_equal(keys_load(&k, "first, second", path, &e), 0);
    assert_int_equal(k.n, 4);
    static const char *const good[] = {"first", "second", "third", "fourth,5"};
    static const char *const names[] = {"key-1", "key-2", "key-3", "the night shift"};
    static const char *const bad[] = {"",           "First",  "firs", "firstt",
                                      "firstfirst", "# ours", ",",    "fourth,5\t the night shift"};
    char name[KEY_NAME_MAX];
    for (size_t i = 0; i < 4; i++) {
        assert_true(keys_have(&k, good[i], name));
        assert_string_equal(name, names[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_true(!keys_have(&k, bad[i], name) && !*name);
    keys_free(&k);
    unlink(path);

    char *longest = malloc(8194); /* what no request can carry is no key */
    memset(longest, 'k', 8193);
    longest[8193] = 0;
    assert_int_equal(keys_load(&k, longest, NULL, &e), -1);
    assert_non_null(strstr(e.msg, "8193 bytes"));
    longest[8192] = 0;
    assert_int_equal(keys_load(&k, longest, NULL, &e), 0);
    keys_free(&k);
    free(longest);
}

int main(void) { return tests_run(NULL, NULL); }
