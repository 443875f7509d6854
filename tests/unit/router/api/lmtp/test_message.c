/* Messages as the client meant them, items as the client reads them, the handshake's answer. */
#include "router/api/lmtp/items.h"
#include "router/api/lmtp/message.h"
#include "router/http/accept.h"
#include "tests/unit/test.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct arena arena;

static struct lmtp_message parse_n(const char *text, size_t n)
{
    struct lmtp_message m;
    char *exact = malloc(n ? n : 1); /* so that a sanitizer sees a byte too many */
    memcpy(exact, text, n);
    arena_reset(&arena);
    arena_init(&arena, 4096 + 16 * n);
    lmtp_parse(exact, n, &arena, &m);
    free(exact);
    return m;
}
static struct lmtp_message parse(const char *text) { return parse_n(text, strlen(text)); }

TEST(test_generate)
{
    struct lmtp_message m = parse(
        "GENERATE {\"max_tokens\": 20, \"temperature\": 0.5, \"top_logprobs\": 3, \"model\": "
        "\"a\\u00e9\\n\","
        " \"prompt\": [1, 67, 300000], \"stream_id\": 7, \"logit_bias\": {\"5\": -100, \"0\": "
        "1.5e0},"
        " \"top_p\": 0.9, \"top_k\": 40, \"repetition_penalty\": 1.1, \"presence_penalty\": -1,"
        " \"frequency_penalty\": 2, \"length_penalty\": 3, \"seed\": 9223372036854775807,"
        " \"unheard\": {\"of\": [1, {\"x\": null}]}}");
    assert_int_equal(m.err.kind, ERR_NONE);
    assert_int_equal(m.type, LMTP_GENERATE);
    assert_string_equal(m.id.text, "7");
    assert_string_equal(m.model, "a\xc3\xa9\n");
    assert_int_equal(m.n_prompt, 3);
    assert_int_equal(m.prompt[2], 300000);
    assert_int_equal(m.max_tokens, 20);
    assert_int_equal(m.top_logprobs, 3);
    assert_int_equal(m.top_k.v, 40);
    assert_true(m.temperature.v == 0.5f && m.top_p.v == 0.9f && m.repetition_penalty.v == 1.1f);
    assert_true(m.openai_presence_penalty.v == -1 && m.openai_frequency_penalty.v == 2);
    assert_true(m.seed.set && m.seed.v == INT64_MAX);
    assert_int_equal(m.n_bias, 2);
    assert_true(m.bias_ids[0] == 5 && m.bias[0] == -100 && m.bias_ids[1] == 0 && m.bias[1] == 1.5f);
}

TEST(test_defaults)
{
    struct lmtp_message m = parse("GENERATE {\"prompt\":[1],\"stream_id\":1}\n");
    assert_int_equal(m.err.kind, ERR_NONE);
    assert_int_equal(m.max_tokens, 32);
    assert_int_equal(m.top_logprobs, 1);
    assert_true(!m.temperature.set && m.top_k.v == 0 && !m.top_p.set && !m.seed.set && !m.n_bias);
    assert_null(m.model);
    m = parse("GENERATE  {\"prompt\":[1],\"stream_id\":1,\"temperature\":null,\"top_p\":null,"
              "\"top_k\":null,\"logit_bias\":null,\"seed\":null,\"model\":null}");
    assert_int_equal(m.err.kind, ERR_NONE);
    assert_true(!m.temperature.set && !m.top_p.set && !m.seed.set && !m.n_bias);
    m = parse("GENERATE {\"prompt\":[1],\"stream_id\":1,\"temperature\":-3}");
    assert_true(m.err.kind == ERR_NONE && !m.temperature.set);
}

TEST(test_what_is_no_message)
{
    const char *bad[] = {"",
                         "GENERATE",
                         "GENERATE{\"stream_id\":1}",
                         " GENERATE {\"stream_id\":1}",
                         "GENERATE ",
                         "GENERATE [1]",
                         "GENERATE 1",
                         "GENERATE {\"stream_id\":1",
                         "GENERATE {\"stream_id\":1}{",
                         "GENERATE {\"stream_id\":1} GENERATE {\"stream_id\":2}",
                         "GENERATE {\"stream_id\":1,}",
                         "GENERATE {\"stream_id\" 1}",
                         "GENERATE {\"stream_id\":01}",
                         "GENERATE {\"stream_id\":1.}",
                         "GENERATE {\"stream_id\":1e}",
                         "GENERATE {\"stream_id\":+1}",
                         "GENERATE {\"stream_id\":1,\"x\":NaN}",
                         "GENERATE {\"stream_id\":1,\"x\":-Infinity}",
                         "GENERATE {\"stream_id\":1,\"x\":\"\\x\"}",
                         "GENERATE {\"stream_id\":1,\"x\":\"\\u12g4\"}",
                         "GENERATE {\"stream_id\":1,\"x\":\"a\tb\"}",
                         "GENERATE {\"stream_id\":1,\"x\":tru}",
                         "GENERATE {\"stream_id\":1,\"prompt\":[1 2]}",
                         "GENERATE {\"stream_id\":1,\"prompt\":[1,]}",
                         "GENERATE {\"stream_id\":1,\"prompt\":[1}",
                         "GENERATE {\"stream_id\":1,\"logit_bias\":{\"1\"}}",
                         "GENERATE {'stream_id':1}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct lmtp_message m = parse(bad[i]);
        if (m.type != LMTP_MALFORMED || m.err.kind == ERR_NONE || m.id.text[0])
            fail_msg("taken for a message: %s", bad[i]);
    }
    char deep[400] = "GENERATE {\"stream_id\":1,\"x\":";
    memset(deep + strlen(deep), '[', 200);
    assert_int_equal(parse(deep).type, LMTP_MALFORMED);
}

TEST(test_fields_that_cannot_be)
{
    static const struct {
        const char *fields, *about;
    } bad[] = {{"\"prompt\":\"text\"", "`prompt`"},
               {"\"prompt\":[1.0]", "`prompt`"},
               {"\"prompt\":[-1]", "`prompt`"},
               {"\"prompt\":[4294967296]", "`prompt`"},
               {"\"prompt\":[[1]]", "`prompt`"},
               {"\"prompt\":[\"1\"]", "`prompt`"},
               {"\"prompt\":[]", "`prompt`"},
               {"\"x\":1", "`prompt`"},
               {"\"prompt\":[1],\"max_tokens\":0", "`max_tokens`"},
               {"\"prompt\":[1],\"max_tokens\":-1", "`max_tokens`"},
               {"\"prompt\":[1],\"max_tokens\":\"3\"", "`max_tokens`"},
               {"\"prompt\":[1],\"max_tokens\":null", "`max_tokens`"},
               {"\"prompt\":[1],\"top_logprobs\":0", "`top_logprobs`"},
               {"\"prompt\":[1],\"logit_bias\":[1]", "`logit_bias`"},
               {"\"prompt\":[1],\"logit_bias\":{\"-1\":1}", "`logit_bias`"},
               {"\"prompt\":[1],\"logit_bias\":{\"a\":1}", "`logit_bias`"},
               {"\"prompt\":[1],\"logit_bias\":{\"\":1}", "`logit_bias`"},
               {"\"prompt\":[1],\"logit_bias\":{\"4294967296\":1}", "`logit_bias`"},
               {"\"prompt\":[1],\"logit_bias\":{\"1\":\"2\"}", "`logit_bias`"},
               {"\"prompt\":[1],\"logit_bias\":{\"1\":1e39}", "`logit_bias`"},
               {"\"prompt\":[1],\"temperature\":\"hot\"", "`temperature`"},
               {"\"prompt\":[1],\"temperature\":1e999", "`temperature`"},
               {"\"prompt\":[1],\"top_p\":0", "`top_p`"},
               {"\"prompt\":[1],\"top_p\":1.5", "`top_p`"},
               {"\"prompt\":[1],\"top_k\":-1", "`top_k`"},
               {"\"prompt\":[1],\"repetition_penalty\":0", "`repetition_penalty`"},
               {"\"prompt\":[1],\"frequency_penalty\":3", "`frequency_penalty`"},
               {"\"prompt\":[1],\"seed\":-1", "`seed`"},
               {"\"prompt\":[1],\"model\":1", "`model`"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[200];
        snprintf(text, sizeof(text), "GENERATE {%s,\"stream_id\":1}", bad[i].fields);
        struct lmtp_message m = parse(text);
        /* the id comes last, and is known all the same: the error goes to its stream */
        if (m.type != LMTP_GENERATE || strcmp(m.id.text, "1") != 0 ||
            !strstr(m.err.msg, bad[i].about))
            fail_msg("%s: %s", text, m.err.msg);
    }
}

TEST(test_stream_ids)
{
    static const struct {
        const char *given, *kept;
    } ids[] = {{"1", "1"},
               {"-5", "-5"},
               {"\"a\\\"b\"", "\"a\\\"b\""},
               {"\"\"", "\"\""},
               {"null", ""},
               {"1.5", ""},
               {"1e3", ""},
               {"[1]", ""},
               {"{}", ""},
               {"true", ""},
               {"\"0123456789012345678901234567890123456789012345678901234567890123456789\"", ""}};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        char text[200];
        snprintf(text, sizeof(text), "GENERATE {\"prompt\":[1],\"stream_id\":%s}", ids[i].given);
        struct lmtp_message m = parse(text);
        assert_string_equal(m.id.text, ids[i].kept);
        assert_int_equal(m.err.kind != ERR_NONE, !*ids[i].kept);
    }
    assert_non_null(strstr(parse("GENERATE {\"prompt\":[1]}").err.msg, "stream_id"));
}

TEST(test_extensions)
{
    struct lmtp_message m = parse(
        "GENERATE {\"text\":\"a\\u00e9\",\"buffer\":\"b\",\"buffer_length\":7,\"timeout\":1.5,"
        "\"status\":true,\"session\":\"s\",\"stream_id\":1}");
    assert_int_equal(m.err.kind, ERR_NONE);
    assert_string_equal(m.text, "a\xc3\xa9");
    assert_int_equal(m.n_text, 3);
    assert_string_equal(m.buffer, "b");
    assert_string_equal(m.session, "s");
    assert_true(m.buffer_length == 7 && m.timeout_ms == 1500 && m.status && m.return_text);
    m = parse("GENERATE {\"prompt\":[1],\"text\":null,\"buffer\":null,\"timeout\":null,"
              "\"status\":false,\"session\":null,\"stream_id\":1}");
    assert_int_equal(m.err.kind, ERR_NONE);
    assert_true(!m.text && !m.buffer && !m.timeout_ms && !m.status && !m.session && !m.return_text);
    assert_true(m.buffer_length == UINT32_MAX);
    m = parse("RESUME {\"session\":\"s\",\"from\":3,\"stream_id\":1}");
    assert_true(m.type == LMTP_RESUME && m.err.kind == ERR_NONE && m.from == 3);
    m = parse("BUFFER {\"drop\":\"b\",\"stream_id\":1}");
    assert_true(m.type == LMTP_BUFFER && m.err.kind == ERR_NONE);
    static const struct {
        const char *text, *about;
    } bad[] = {
        {"BUFFER {\"stream_id\":1}", "`prompt`"},
        {"BUFFER {\"prompt\":[1],\"stream_id\":1}", "`save`"},
        {"BUFFER {\"prompt\":[1],\"save\":\"a\",\"drop\":\"a\",\"stream_id\":1}", "`save`"},
        {"RESUME {\"session\":\"s\",\"from\":-1,\"stream_id\":1}", "`from`"},
        {"GENERATE {\"prompt\":[1],\"timeout\":-1,\"stream_id\":1}", "`timeout`"},
        {"GENERATE {\"prompt\":[1],\"timeout\":1e9,\"stream_id\":1}", "`timeout`"},
        {"GENERATE {\"prompt\":[1],\"status\":1,\"stream_id\":1}", "`status`"},
        {"GENERATE {\"buffer\":\"0123456789012345678901234567890123456789012345678901234567890"
         "1234567\",\"stream_id\":1}",
         "`buffer`"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (!strstr(parse(bad[i].text).err.msg, bad[i].about))
            fail_msg("%s: %s", bad[i].text, parse(bad[i].text).err.msg);
}

TEST(test_other_types)
{
    struct lmtp_message m = parse("SCORE {\"prompt\":[],\"scored\":[3,4],\"stream_id\":2,"
                                  "\"temperature\":\"ignored\",\"max_tokens\":0}");
    assert_true(m.type == LMTP_SCORE && m.err.kind == ERR_NONE);
    assert_true(m.n_prompt == 0 && m.prompt && m.n_scored == 2 && m.scored[1] == 4);
    assert_non_null(
        strstr(parse("SCORE {\"prompt\":[1],\"scored\":[],\"stream_id\":2}").err.msg, "`scored`"));
    assert_non_null(strstr(parse("SCORE {\"prompt\":[1],\"stream_id\":2}").err.msg, "`scored`"));
    assert_non_null(strstr(parse("SCORE {\"scored\":[1],\"stream_id\":2}").err.msg, "`prompt`"));
    m = parse("MODEL_INFO {\"model\":\"m\",\"data\":{\"model\":\"m\"},\"stream_id\":3}");
    assert_true(m.type == LMTP_INFO && m.err.kind == ERR_NONE);
    m = parse("CANCEL {\"stream_id\":4,\"data\":{\"x\":[{}],\"stream_id\":3}}");
    assert_true(m.type == LMTP_CANCEL && m.err.kind == ERR_NONE);
    assert_string_equal(m.target.text, "3");
    assert_int_not_equal(parse("CANCEL {\"stream_id\":4}").err.kind, ERR_NONE);
    m = parse("generate {\"stream_id\":5,\"prompt\":7}");
    assert_int_equal(m.type, LMTP_UNKNOWN);
    assert_string_equal(m.err.msg, "Unknown command: generate");
}

static struct buf large_bias(uint32_t n)
{
    struct buf b = BUF_INIT;
    buf_str(&b, "GENERATE {\"prompt\": [1], \"stream_id\": 1, \"logit_bias\": {");
    for (uint32_t i = 0; i < n; i++)
        buf_fmt(&b, "%s\"%u\": -100", i ? ", " : "", 2 * i);
    buf_str(&b, "}}");
    return b;
}

static double cpu_ms(void) /* of this thread: others may keep the machine busy */
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* lmql's masks name up to half a vocabulary in each request: reading one must cost time in
 * proportion to its length, and little. */
TEST(test_half_a_vocabulary_of_biases)
{
    struct buf b = large_bias(64000);
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        double from = cpu_ms();
        struct lmtp_message m = parse_n(b.p, b.len);
        double ms = cpu_ms() - from;
        best = ms < best ? ms : best;
        assert_int_equal(m.err.kind, ERR_NONE);
        assert_int_equal(m.n_bias, 64000);
        assert_int_equal(m.bias_ids[63999], 127998);
        assert_true(m.bias[63999] == -100);
    }
    print_message("%.2f MB of biases in %.2f ms\n", (double)b.len * 1e-6, best);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(best < 10);
#endif
    buf_free(&b);
}

TEST(test_items)
{
    struct buf b = BUF_INIT;
    struct gen_token top[] = {{.id = 7, .logprob = -0.5f}, {.id = 9, .logprob = -INFINITY}};
    item_token(
        &b,
        &(struct lmtp_token){
            .id = "3", .token = 9, .logprob = -1.5f, .alternatives = true, .top = top, .n_top = 2});
    assert_string_equal(b.p, "{\"token\":9,\"stream_id\":3,\"logprob\":-1.5,\"finish_reason\":null,"
                             "\"top_logprobs\":{\"9\":-1.5,\"7\":-0.5}}");
    buf_reset(&b);
    item_token(&b,
               &(struct lmtp_token){.id = "\"a\"", .token = 0, .logprob = NAN, .finish = "stop"});
    assert_string_equal(
        b.p, "{\"token\":0,\"stream_id\":\"a\",\"logprob\":-1e+30,\"finish_reason\":\"stop\"}");
    buf_reset(&b);
    item_error(&b, NULL, "say \"no\"");
    assert_string_equal(b.p, "{\"stream_id\":null,\"error\":\"say \\\"no\\\"\"}");
    buf_free(&b);
}

TEST(test_accept)
{
    char out[WS_ACCEPT_LEN + 1];
    assert_true(ws_accept("dGhlIHNhbXBsZSBub25jZQ==", out)); /* RFC 6455, 1.3 */
    assert_string_equal(out, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_false(ws_accept(NULL, out));
    assert_false(ws_accept("", out));
    assert_false(ws_accept("dGhlIHNhbXBsZSBub25jZQ", out));
    assert_false(ws_accept("dGhlIHNhbXBsZSBub25jZR==", out)); /* bits beyond the 16 bytes */
    assert_false(ws_accept("dGhlIHNhbXBsZSBub25j*Q==", out));
}

static int clean(void **state)
{
    (void)state;
    arena_reset(&arena);
    return 0;
}

int main(void) { return tests_run(NULL, clean); }
