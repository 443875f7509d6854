/* What old clients do not know: text, buffers, time limits, places in the queue, streams that are
 * resumed. */
#include "tests/unit/router/api/lmtp/client.h"

#define TEXT_TOKEN(letter, id, finish)                                                             \
    "TOKEN [{\"token\":" id ",\"stream_id\":1,\"logprob\":-0.5,\"finish_reason\":" finish          \
    ",\"top_logprobs\":{\"" id "\":-0.5},\"text\":\"" letter "\"}]"

TEST(test_text)
{
    int fd = ws_open(&rig);
    speak(fd, "GENERATE {\"text\":\"Once\",\"max_tokens\":2,\"stream_id\":1}");
    expect(fd, TEXT_TOKEN("a", "100", "null"));
    expect(fd, TEXT_TOKEN("b", "101", "\"length\""));
    speak(fd, "GENERATE {\"prompt\":[69,79,83],\"return_text\":true,\"stream_id\":1}");
    expect(fd, TEXT_TOKEN("a", "100", "null"));
    expect(fd, TEXT_TOKEN("b", "101", "null"));
    expect_part(fd, "TOKEN [{\"token\":102,", "\"text\":\"\"}"); /* EOS */
    speak(fd, "SCORE {\"text\":\"A\",\"scored_text\":\"BC\",\"stream_id\":1}");
    expect(fd, "TOKEN [{\"token\":66,\"stream_id\":1,\"logprob\":-0.25,\"finish_reason\":null,"
               "\"text\":\"p\"}]");
    expect(fd, "TOKEN [{\"token\":67,\"stream_id\":1,\"logprob\":-0.25,\"finish_reason\":\"stop\","
               "\"text\":\"p\"}]");
    static const struct {
        const char *said, *part;
    } rows[] = {
        {"GENERATE {\"text\":\"A\",\"prompt\":[1],\"stream_id\":1}", "`text`"},
        {"GENERATE {\"text\":[1],\"stream_id\":1}", "`text`"},
        {"GENERATE {\"text\":\"a\\u0000b\",\"stream_id\":1}", "`text`"},
        {"GENERATE {\"text\":\"A\",\"return_text\":1,\"stream_id\":1}", "`return_text`"},
        {"SCORE {\"text\":\"A\",\"scored_text\":\"\",\"stream_id\":1}", "`scored`"},
        {"SCORE {\"text\":\"A\",\"scored_text\":\"B\",\"scored\":[1],\"stream_id\":1}",
         "`scored_text`"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        speak(fd, rows[i].said);
        expect_part(fd, "TOKEN [{\"stream_id\":1,\"error\":", rows[i].part);
    }
    hang_up(&rig, fd);
}

/* Messages keep their order, though text takes a detour. */
TEST(test_text_keeps_the_order)
{
    int fd = ws_open(&rig);
    for (int i = 0; i < 50; i++) {
        char *m = text("BUFFER {\"text\":\"%0*d\",\"save\":\"b\",\"stream_id\":%d}", i + 1, 0, i);
        speak(fd, m);
        free(m);
        m = text("BUFFER {\"buffer\":\"b\",\"prompt\":[7],\"save\":\"c\",\"stream_id\":%d}", i);
        speak(fd, m);
        free(m);
    }
    for (int i = 0; i < 50; i++) {
        char *m = text("MSG [{\"stream_id\":%d,\"buffer\":\"b\",\"n_tokens\":%d}]", i, i + 2);
        expect(fd, m);
        free(m);
        m = text("MSG [{\"stream_id\":%d,\"buffer\":\"c\",\"n_tokens\":%d}]", i, i + 3);
        expect(fd, m);
        free(m);
    }
    hang_up(&rig, fd);
    for (int i = 0; i < 20; i++) { /* and leaving in the middle leaves nothing behind */
        fd = ws_open(&rig);
        speak(fd, "GENERATE {\"text\":\"Once\",\"max_tokens\":2000,\"stream_id\":1}");
        speak(fd, "GENERATE {\"text\":\"Once\",\"max_tokens\":2000,\"stream_id\":2}");
        hang_up(&rig, fd);
    }
}

TEST(test_buffers)
{
    int fd = ws_open(&rig);
    static const struct {
        const char *said, *answer;
    } rows[] = {
        {"BUFFER {\"prompt\":[69,79],\"save\":\"a\",\"stream_id\":1}",
         "MSG [{\"stream_id\":1,\"buffer\":\"a\",\"n_tokens\":2}]"},
        /* [69,79] and [83] are the prompt that ends after three tokens */
        {"GENERATE {\"buffer\":\"a\",\"prompt\":[83],\"save\":\"b\",\"stream_id\":2}",
         "TOKEN [{\"token\":100,\"stream_id\":2,"},
        {NULL, "TOKEN [{\"token\":101,"},
        {NULL, "TOKEN [{\"token\":102,"},
        {"BUFFER {\"buffer\":\"b\",\"save\":\"c\",\"stream_id\":3}",
         "MSG [{\"stream_id\":3,\"buffer\":\"c\",\"n_tokens\":6}]"},
        {"BUFFER {\"buffer\":\"b\",\"buffer_length\":3,\"save\":\"b\",\"stream_id\":3}",
         "MSG [{\"stream_id\":3,\"buffer\":\"b\",\"n_tokens\":3}]"},
        {"GENERATE {\"buffer\":\"b\",\"stream_id\":4}", "TOKEN [{\"token\":100,\"stream_id\":4,"},
        {NULL, "TOKEN [{\"token\":101,"},
        {NULL, "TOKEN [{\"token\":102,"},
        {"SCORE {\"buffer\":\"b\",\"scored\":[9],\"stream_id\":5}",
         "TOKEN [{\"token\":9,\"stream_id\":5,\"logprob\":-0.25,\"finish_reason\":\"stop\"}]"},
        {"BUFFER {\"drop\":\"b\",\"stream_id\":6}", "MSG [{\"stream_id\":6,\"dropped\":\"b\"}]"},
        {"BUFFER {\"drop\":\"b\",\"stream_id\":6}", "MSG [{\"stream_id\":6,\"error\":"},
        {"BUFFER {\"prompt\":[1],\"stream_id\":6}", "MSG [{\"stream_id\":6,\"error\":"},
        {"BUFFER {\"prompt\":[257],\"save\":\"x\",\"stream_id\":6}",
         "MSG [{\"stream_id\":6,\"error\":"},
        {"BUFFER {\"prompt\":[1],\"save\":\"\",\"stream_id\":6}",
         "MSG [{\"stream_id\":6,\"error\":"},
        {"GENERATE {\"buffer\":\"b\",\"stream_id\":7}", "TOKEN [{\"stream_id\":7,\"error\":"},
        {"GENERATE {\"buffer\":\"a\",\"buffer_length\":0,\"stream_id\":7}",
         "TOKEN [{\"stream_id\":7,\"error\":"},
        {"GENERATE {\"buffer\":1,\"stream_id\":7}", "TOKEN [{\"stream_id\":7,\"error\":"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].said)
            speak(fd, rows[i].said);
        expect_part(fd, rows[i].answer, "");
    }
    /* a stream that is cancelled has saved what it said */
    speak(fd, "GENERATE {\"prompt\":[1],\"max_tokens\":3000,\"save\":\"d\",\"stream_id\":8}");
    expect_part(fd, "TOKEN [{\"token\":100,", "");
    speak(fd, "CANCEL {\"stream_id\":9,\"data\":{\"stream_id\":8}}");
    int n = 1 + expect_later(fd, "cancelled");
    expect(fd, "MSG [{\"stream_id\":9,\"message\":\"cancel requested\"}]");
    speak(fd, "BUFFER {\"buffer\":\"d\",\"save\":\"e\",\"stream_id\":9}");
    char *want = text("MSG [{\"stream_id\":9,\"buffer\":\"e\",\"n_tokens\":%d}]", n + 1);
    expect(fd, want);
    free(want);
    hang_up(&rig, fd);
}

TEST(test_timeout)
{
    unsigned before = rig.fleet.cancels;
    int64_t from = clock_ms();
    int fd = ws_open(&rig);
    speak(fd, "GENERATE {\"prompt\":[1],\"max_tokens\":3000,\"timeout\":0.3,\"stream_id\":1}");
    expect_later(fd, "{\"stream_id\":1,\"error\":\"lmtp.timeout\"}");
    assert_in_range(clock_ms() - from, 300, 5000);
    assert_int_equal(rig.fleet.cancels, before + 1);
    speak(fd, "GENERATE {\"prompt\":[1],\"max_tokens\":2,\"timeout\":60,\"stream_id\":1}");
    expect(fd, TOKEN_1);
    expect(fd, TOKEN_2);
    speak(fd, "GENERATE {\"prompt\":[1],\"timeout\":0,\"stream_id\":1}");
    expect_part(fd, "TOKEN [{\"stream_id\":1,\"error\":", "`timeout`");
    hang_up(&rig, fd);
}

TEST(test_places_in_the_queue)
{
    int fd = ws_open(&rig);
    speak(fd, "GENERATE {\"prompt\":[1],\"max_tokens\":2,\"status\":true,\"stream_id\":1}");
    expect(fd, "MSG [{\"stream_id\":1,\"status\":\"queued\",\"position\":2}]");
    expect(fd, "MSG [{\"stream_id\":1,\"status\":\"queued\",\"position\":1}]");
    expect(fd, TOKEN_1);
    expect(fd, TOKEN_2);
    hang_up(&rig, fd);
}

#define LONG_STREAM                                                                                \
    "GENERATE {\"prompt\":[1],\"max_tokens\":3000,\"session\":\"secret\",\"stream_id\":1}"

static void resume(int fd, const char *session, int from)
{
    char *m = text("RESUME {\"session\":\"%s\",\"from\":%d,\"stream_id\":1}", session, from);
    speak(fd, m);
    free(m);
}

/* Tokens `from` to `to` of the fake model, and nothing left out. */
static void expect_tokens(int fd, int from, int to)
{
    for (int i = from; i < to; i++) {
        char *want = text("TOKEN [{\"token\":%d,\"stream_id\":1,", 100 + i);
        expect_part(fd, want, "");
        free(want);
    }
}

TEST(test_a_stream_is_resumed)
{
    unsigned before = rig.fleet.cancels;
    int fd = ws_open(&rig);
    speak(fd, LONG_STREAM);
    expect_tokens(fd, 0, 5);
    close(fd);
    usleep(200000);
    fd = ws_open(&rig);
    resume(fd, "wrong", 5);
    expect(fd, "TOKEN [{\"stream_id\":1,\"error\":\"lmtp.gone\"}]");
    resume(fd, "secret", 1000000);
    expect_part(fd, "TOKEN [{\"stream_id\":1,\"error\":", "behind");
    resume(fd, "secret", 3);
    expect_tokens(fd, 3, 300);
    int other = ws_open(&rig); /* the old connection may be there still: the new one has it */
    struct buf tail = rest;
    rest = (struct buf)BUF_INIT;
    resume(other, "secret", 300);
    expect_tokens(other, 300, 600);
    buf_free(&tail);
    buf_reset(&rest);
    close(fd);
    assert_int_equal(rig.fleet.cancels, before);
    speak(other, "CANCEL {\"stream_id\":2,\"data\":{\"stream_id\":1}}");
    expect_later(other, "cancel requested");
    assert_int_equal(rig.fleet.cancels, before + 1);
    hang_up(&rig, other);
}

TEST(test_what_ended_is_heard_again)
{
    int fd = ws_open(&rig);
    speak(fd, "GENERATE {\"prompt\":[1],\"max_tokens\":2,\"session\":\"s\",\"stream_id\":1}");
    expect(fd, TOKEN_1);
    expect(fd, TOKEN_2);
    hang_up(&rig, fd);
    fd = ws_open(&rig);
    resume(fd, "s", 0);
    expect(fd, TOKEN_1);
    expect(fd, TOKEN_2);
    resume(fd, "s", 1);
    expect(fd, TOKEN_2);
    resume(fd, "s", 2);
    expect_part(fd, "TOKEN [{\"stream_id\":1,\"error\":", "behind");
    speak(fd, "GENERATE {\"prompt\":[1],\"session\":\"s\",\"save\":\"b\",\"stream_id\":1}");
    expect_part(fd, "TOKEN [{\"stream_id\":1,\"error\":", "`save`");
    speak(fd, "RESUME {\"stream_id\":1}");
    expect_part(fd, "TOKEN [{\"stream_id\":1,\"error\":", "`session`");
    hang_up(&rig, fd);
}

TEST(test_the_grace_time_ends)
{
    unsigned before = rig.fleet.cancels;
    int fd = ws_open(&rig);
    speak(fd, LONG_STREAM);
    expect_tokens(fd, 0, 1);
    close(fd);
    buf_reset(&rest);
    usleep(500000);
    assert_int_equal(rig.fleet.cancels, before);
    rig_settle(&rig); /* the grace time, and not the six seconds of the stream */
    assert_int_equal(rig.fleet.cancels, before + 1);
    fd = ws_open(&rig);
    resume(fd, "secret", 0);
    expect(fd, "TOKEN [{\"stream_id\":1,\"error\":\"lmtp.gone\"}]");
    hang_up(&rig, fd);
}

int main(void) { return tests_run(start, stop); }
