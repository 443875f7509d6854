/* What clients ask and do to streams, right or wrong, answer by answer. */
#include "tests/unit/router/api/lmtp/client.h"

TEST(test_a_stream)
{
    int fd = ws_open(&rig);
    speak(fd, GENERATE_2);
    expect(fd, TOKEN_1);
    expect(fd, TOKEN_2);
    speak(fd, GENERATE_2 "\n"); /* the id is free again */
    expect(fd, TOKEN_1);
    expect(fd, TOKEN_2);
    speak(
        fd,
        "GENERATE "
        "{\"prompt\":[69,79,83],\"model\":\"test/model\",\"stream_id\":\"x\",\"top_logprobs\":2}");
    expect_part(fd, "TOKEN [{\"token\":100,\"stream_id\":\"x\",",
                "{\"100\":-0.5,\"1\":-0.1,\"2\":-2.5}");
    expect_part(fd, "TOKEN [{\"token\":101,", "null");
    expect_part(fd, "TOKEN [{\"token\":102,", "\"finish_reason\":\"stop\"");
    hang_up(&rig, fd);
}

TEST(test_scores)
{
    int fd = ws_open(&rig);
    speak(fd, "SCORE {\"prompt\":[1,2],\"scored\":[3,4],\"stream_id\":1}");
    expect(fd, "TOKEN [{\"token\":3,\"stream_id\":1,\"logprob\":-0.25,\"finish_reason\":null}]");
    expect(fd,
           "TOKEN [{\"token\":4,\"stream_id\":1,\"logprob\":-0.25,\"finish_reason\":\"stop\"}]");
    speak(fd, "SCORE {\"prompt\":[],\"scored\":[3],\"stream_id\":1}");
    expect(fd, "TOKEN [{\"token\":3,\"stream_id\":1,\"logprob\":0.0,\"finish_reason\":\"stop\"}]");
    hang_up(&rig, fd);
}

/* What arrives, and how the answer begins; all on one connection, which must survive each. */
TEST(test_bad_messages)
{
    static const struct {
        const char *said, *answer, *part;
    } rows[] = {
        {"GENERATE {", "MSG [{\"stream_id\":null,\"error\":", "JSON"},
        {"GENERATE", "MSG [{\"stream_id\":null,\"error\":", ""},
        {"", "MSG [{\"stream_id\":null,\"error\":", ""},
        {" " GENERATE_2, "MSG [{\"stream_id\":null,\"error\":", ""},
        {"GENERATE [1]", "MSG [{\"stream_id\":null,\"error\":", "object"},
        {GENERATE_2 "\n" GENERATE_2, "MSG [{\"stream_id\":null,\"error\":", ""},
        {"generate {\"stream_id\":4}",
         "MSG [{\"stream_id\":4,\"error\":", "Unknown command: generate"},
        {"FOO {\"stream_id\":4}", "MSG [{\"stream_id\":4,\"error\":", "Unknown command: FOO"},
        {"GENERATE {\"prompt\":[1]}", "MSG [{\"stream_id\":null,\"error\":", "stream_id"},
        {"GENERATE {\"prompt\":[1],\"stream_id\":null}", "MSG [{\"stream_id\":null,", "stream_id"},
        {"GENERATE {\"prompt\":[1],\"stream_id\":1.5}", "MSG [{\"stream_id\":null,", "stream_id"},
        {"GENERATE {\"stream_id\":4}", "TOKEN [{\"stream_id\":4,\"error\":", "prompt"},
        {"SCORE {\"prompt\":[1],\"stream_id\":4}", "TOKEN [{\"stream_id\":4,\"error\":", "scored"},
        {"SCORE {\"prompt\":[1],\"scored\":[],\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "scored"},
        {"GENERATE {\"prompt\":[1],\"logit_bias\":[],\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "logit_bias"},
        {"GENERATE {\"prompt\":[1],\"logit_bias\":{\"-1\":1},\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "logit_bias"},
        {"GENERATE {\"prompt\":[1],\"logit_bias\":{\"257\":1},\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "vocabulary"},
        {"GENERATE {\"prompt\":[257],\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "vocabulary"},
        {"GENERATE {\"prompt\":\"text\",\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "prompt"},
        {"GENERATE {\"prompt\":[1.0],\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "prompt"},
        {"GENERATE {\"prompt\":[],\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "prompt"},
        {"GENERATE {\"prompt\":[1],\"max_tokens\":0,\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "max_tokens"},
        {"GENERATE {\"prompt\":[1],\"max_tokens\":-1,\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "max_tokens"},
        {"GENERATE {\"prompt\":[1],\"max_tokens\":\"3\",\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "max_tokens"},
        {"GENERATE {\"prompt\":[1],\"max_tokens\":null,\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "max_tokens"},
        {"GENERATE {\"prompt\":[1],\"logit_bias\":{\"a\":1},\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "logit_bias"},
        {"GENERATE {\"prompt\":[1],\"logit_bias\":null,\"max_tokens\":1,\"stream_id\":4}",
         "TOKEN [{\"token\":100,\"stream_id\":4,", "\"length\""},
        {"GENERATE {\"prompt\":[1],\"unheard\":{\"of\":[1]},\"max_tokens\":1,\"stream_id\":4}",
         "TOKEN [{\"token\":100,\"stream_id\":4,", "\"length\""},
        {"SCORE {\"scored\":[1],\"stream_id\":4}", "TOKEN [{\"stream_id\":4,\"error\":", "prompt"},
        {"CANCEL {\"stream_id\":4}", "MSG [{\"stream_id\":4,\"error\":", "data.stream_id"},
        {"GENERATE {\"prompt\":[1],\"top_logprobs\":0,\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "top_logprobs"},
        {"GENERATE {\"prompt\":[1],\"top_logprobs\":1025,\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "1024"},
        {"GENERATE {\"prompt\":[1],\"model\":\"other\",\"stream_id\":4}",
         "TOKEN [{\"stream_id\":4,\"error\":", "other"},
        {"MODEL_INFO {\"model\":\"other\",\"stream_id\":4}",
         "MSG [{\"stream_id\":4,\"error\":", "other"},
        {"MODEL_INFO {\"model\":\"alias\",\"stream_id\":4}",
         "MSG [{\"stream_id\":4,\"model_info\":{", "\"vocab_size\":257"},
        {"CANCEL {\"stream_id\":4,\"data\":{\"stream_id\":9}}",
         "MSG [{\"stream_id\":4,\"message\":", "no active stream with id 9"},
        {"GENERATE {\"prompt\":[70,65,73,76],\"max_tokens\":9,\"stream_id\":4}",
         "TOKEN [{\"token\":100,", ""},
        {NULL, "TOKEN [{\"token\":101,", ""},
        {NULL, "TOKEN [{\"stream_id\":4,\"error\":", "Request failed"},
    };
    int fd = ws_open(&rig);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].said)
            speak(fd, rows[i].said);
        expect_part(fd, rows[i].answer, rows[i].part);
    }
    speak(fd, GENERATE_2);
    expect(fd, TOKEN_1);
    hang_up(&rig, fd);
}

TEST(test_a_prompt_that_is_too_long)
{
    struct buf b = BUF_INIT;
    int fd = ws_open(&rig);
    buf_str(&b, "GENERATE {\"stream_id\":1,\"prompt\":[1");
    for (int i = 0; i < 100000; i++)
        buf_str(&b, ", 1");
    buf_str(&b, "]}");
    speak(fd, b.p);
    expect_part(fd, "TOKEN [{\"stream_id\":1,\"error\":", "100001");
    buf_free(&b);
    hang_up(&rig, fd);
}

TEST(test_an_id_in_use)
{
    struct buf b = BUF_INIT;
    int fd = ws_open(&rig);
    speak(fd, "GENERATE {\"prompt\":[1],\"max_tokens\":1000,\"stream_id\":1}");
    expect(fd, TOKEN_1);
    speak(fd, GENERATE_2);
    while (!strstr(hear_text(fd, &b), "in use")) {
    }
    buf_free(&b);
    hang_up(&rig, fd);
}

TEST(test_cancel)
{
    unsigned before = rig.fleet.cancels;
    int fd = ws_open(&rig);
    speak(fd, "GENERATE {\"prompt\":[1],\"max_tokens\":3000,\"stream_id\":1}");
    expect(fd, TOKEN_1);
    speak(fd, "CANCEL {\"stream_id\":2,\"data\":{\"stream_id\":1}}");
    expect_later(fd, "{\"stream_id\":1,\"error\":\"lmtp.cancelled\"}");
    expect(fd, "MSG [{\"stream_id\":2,\"message\":\"cancel requested\"}]");
    speak(fd, GENERATE_2);
    expect(fd, TOKEN_1);
    expect(fd, TOKEN_2);
    assert_int_equal(rig.fleet.cancels, before + 1);
    hang_up(&rig, fd);
}

/* However it leaves, its streams are cancelled at once. */
TEST(test_a_client_that_leaves)
{
    for (int how = 0; how < 3; how++) {
        unsigned before = rig.fleet.cancels;
        int fd = ws_open(&rig);
        for (int id = 1; id <= 3; id++) {
            char *m = text("GENERATE {\"prompt\":[1],\"max_tokens\":3000,\"stream_id\":%d}", id);
            speak(fd, m);
            free(m);
        }
        expect(fd, TOKEN_1);
        if (how == 0) { /* reset */
            struct linger now = {1, 0};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        } else if (how == 1) {
            frame(fd, FIN | CLOSE, "\x03\xe8", 2, true);
            assert_int_equal(closed_with(fd), 1000);
        }
        close(fd);
        int64_t from = clock_ms();
        rig_settle(&rig);
        assert_in_range(clock_ms() - from, 0, 1000); /* the streams alone would take many seconds */
        assert_int_equal(rig.fleet.cancels, before + 3);
    }
}

TEST(test_one_frame_a_step)
{
    struct buf b = BUF_INIT;
    int fd = ws_open(&rig), most = 0;
    for (int id = 1; id <= 20; id++) {
        char *m = text("GENERATE {\"prompt\":[1],\"max_tokens\":30,\"stream_id\":%d}", id);
        speak(fd, m);
        free(m);
    }
    for (int items = 0; items < 600;) {
        int n = 0;
        hear_text(fd, &b);
        for (const char *p = b.p; (p = strstr(p, "\"token\":")); p++)
            n++;
        items += n;
        most = n > most ? n : most;
    }
    assert_true(most >= 20);
    buf_free(&b);
    hang_up(&rig, fd);
}

/* One who never reads costs a bounded queue, and then the connection. */
TEST(test_a_slow_reader)
{
    int fd = ws_open(&rig), small = 128 << 10;
    unsigned before = rig.fleet.cancels;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    for (int id = 1; id <= 100; id++) {
        char *m = text("GENERATE {\"prompt\":[1],\"max_tokens\":3900,\"stream_id\":%d}", id);
        speak(fd, m);
        free(m);
    }
    for (int i = 0; i < 6000 && rig.fleet.cancels == before; i++)
        usleep(10000);
    rig_settle(&rig);
    assert_int_equal(rig.fleet.cancels, before + 100);
    struct buf b = BUF_INIT, last = BUF_INIT;
    int op;
    while ((op = listen_any(fd, &b)) == TEXT) {
        buf_reset(&last);
        buf_add(&last, b.p, b.len);
    }
    assert_int_equal(op, CLOSE);
    must_have(last.p, "\"stream_id\":100,\"error\":\"the client reads too slowly\"");
    buf_free(&b);
    buf_free(&last);
    hang_up(&rig, fd);
}

TEST(test_overload)
{
    struct buf b = BUF_INIT;
    int fd = ws_open(&rig);
    for (int id = 1; id <= 129; id++) {
        char *m = text("GENERATE {\"prompt\":[1],\"max_tokens\":3000,\"stream_id\":%d}", id);
        speak(fd, m);
        free(m);
    }
    while (!strstr(hear_text(fd, &b), "{\"stream_id\":129,\"error\":\"Model is overloaded\"}")) {
    }
    buf_free(&b);
    hang_up(&rig, fd);
}

int main(void) { return tests_run(start, stop); }
