/* LMTP on a real port: every row of what clients do wrong, frame by frame, over a scheduler that is
 * not there (rig.h). The client here is its own implementation of RFC 6455. */
#include "rig.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/un.h>

/* ---------------------------------------------------------------- a WebSocket client */
static struct buf rest; /* of a frame whose first items were read */
enum { TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10, FIN = 0x80 };

static int open_path(const struct rig *r, const char *path, const char *headers, struct buf *b)
{
    int fd = dial(r);
    char *request = text("GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", path, headers), c;
    say(fd, request, strlen(request));
    free(request);
    buf_reset(b);
    while (!(b->len >= 4 && !memcmp(b->p + b->len - 4, "\r\n\r\n", 4)) && recv(fd, &c, 1, 0) == 1)
        buf_ch(b, c);
    return fd;
}

#define UPGRADE                                                                                    \
    "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"       \
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

static int ws_open(const struct rig *r)
{
    struct buf b = BUF_INIT;
    int fd = open_path(r, "/", UPGRADE, &b);
    buf_reset(&rest);
    assert_int_equal(status_of(b.p), 101);
    must_have(b.p, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    buf_free(&b);
    return fd;
}

static void frame(int fd, int first, const void *payload, size_t n, bool masked)
{
    unsigned char head[14] = {(unsigned char)first}, mask[4] = {0x12, 0x34, 0x56, 0x78};
    size_t at = 2;
    head[1] = (unsigned char)(n < 126 ? n : n < 65536 ? 126 : 127);
    for (int i = n < 126 ? -1 : n < 65536 ? 1 : 7; i >= 0; i--)
        head[at++] = (unsigned char)(n >> 8 * i);
    if (masked) {
        head[1] |= 0x80;
        memcpy(head + at, mask, 4);
        at += 4;
    }
    unsigned char *copy = malloc(n + 1);
    memcpy(copy, payload, n);
    for (size_t i = 0; masked && i < n; i++)
        copy[i] ^= mask[i % 4];
    say(fd, (char *)head, at);
    say(fd, (char *)copy, n);
    free(copy);
}

static void speak(int fd, const char *message)
{
    frame(fd, FIN | TEXT, message, strlen(message), true);
}

static bool take(int fd, void *p, size_t n)
{
    for (ssize_t k; n; p = (char *)p + k, n -= (size_t)k)
        if ((k = recv(fd, p, n, 0)) <= 0)
            return false;
    return true;
}

/* The next frame; its opcode, -1 at the end of the stream. */
static int listen_any(int fd, struct buf *b)
{
    unsigned char head[2], more[8];
    buf_reset(b);
    if (!take(fd, head, 2))
        return -1;
    uint64_t n = head[1] & 127;
    int extra = n == 126 ? 2 : n == 127 ? 8 : 0;
    assert_false(head[1] & 0x80); /* servers do not mask */
    if (extra) {
        assert_true(take(fd, more, (size_t)extra));
        n = 0;
        for (int i = 0; i < extra; i++)
            n = n << 8 | more[i];
    }
    assert_int_equal(buf_reserve(b, n), 0);
    assert_true(take(fd, b->p, n));
    b->len = n;
    b->p[n] = 0;
    return head[0] & 15;
}

static const char *hear_text(int fd, struct buf *b)
{
    assert_int_equal(listen_any(fd, b), TEXT);
    return b->p;
}

/* The next item, as if it had come alone: what one step says, and the next one while the client was
 * busy, may be in one frame. One connection at a time. */
static char *hear_item(int fd)
{
    if (!rest.len)
        hear_text(fd, &rest);
    char *space = strchr(rest.p, '['), *next = strstr(rest.p, "},{");
    assert_non_null(space);
    if (!next) {
        char *whole = strdup(rest.p);
        buf_reset(&rest);
        return whole;
    }
    char *item = text("%.*s]", (int)(next + 1 - rest.p), rest.p);
    char *others = text("%.*s%s", (int)(space + 1 - rest.p), rest.p, next + 2);
    buf_reset(&rest);
    buf_str(&rest, others);
    free(others);
    return item;
}

static void expect(int fd, const char *exact)
{
    char *got = hear_item(fd);
    assert_string_equal(got, exact);
    free(got);
}

static void expect_part(int fd, const char *start, const char *part)
{
    char *got = hear_item(fd);
    if (strncmp(got, start, strlen(start)) != 0)
        fail_msg("`%s` does not begin with `%s`", got, start);
    must_have(got, part);
    free(got);
}

/* Frames until a Close; its code (0: none, the stream ended). */
static int closed_with(int fd)
{
    struct buf b = BUF_INIT;
    int code = 0, op;
    while ((op = listen_any(fd, &b)) >= 0 && op != CLOSE) {
    }
    if (op == CLOSE && b.len >= 2)
        code = (unsigned char)b.p[0] << 8 | (unsigned char)b.p[1];
    buf_free(&b);
    return code;
}

static void hang_up(struct rig *r, int fd)
{
    close(fd);
    rig_settle(r);
}

#define GENERATE_2 "GENERATE {\"prompt\":[1],\"max_tokens\":2,\"stream_id\":1}"
#define TOKEN_1                                                                                    \
    "TOKEN [{\"token\":100,\"stream_id\":1,\"logprob\":-0.5,\"finish_reason\":null,"               \
    "\"top_logprobs\":{\"100\":-0.5}}]"
#define TOKEN_2                                                                                    \
    "TOKEN [{\"token\":101,\"stream_id\":1,\"logprob\":-0.5,\"finish_reason\":\"length\","         \
    "\"top_logprobs\":{\"101\":-0.5}}]"

/* ---------------------------------------------------------------- tests */
static struct rig rig;

static void test_a_stream(void **state)
{
    (void)state;
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

static void test_scores(void **state)
{
    (void)state;
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
static void test_bad_messages(void **state)
{
    (void)state;
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

static void test_a_prompt_that_is_too_long(void **state)
{
    (void)state;
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

static void test_an_id_in_use(void **state)
{
    (void)state;
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

static void test_cancel(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    unsigned before = rig.infer.cancels;
    int fd = ws_open(&rig);
    speak(fd, "GENERATE {\"prompt\":[1],\"max_tokens\":3000,\"stream_id\":1}");
    expect(fd, TOKEN_1);
    speak(fd, "CANCEL {\"stream_id\":2,\"data\":{\"stream_id\":1}}");
    while (!strstr(hear_text(fd, &b), "{\"stream_id\":1,\"error\":\"lmtp.cancelled\"}")) {
    }
    expect(fd, "MSG [{\"stream_id\":2,\"message\":\"cancel requested\"}]");
    speak(fd, GENERATE_2);
    expect(fd, TOKEN_1);
    expect(fd, TOKEN_2);
    assert_int_equal(rig.infer.cancels, before + 1);
    buf_free(&b);
    hang_up(&rig, fd);
}

/* However it leaves, its streams are cancelled at once. */
static void test_a_client_that_leaves(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        unsigned before = rig.infer.cancels;
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
        assert_int_equal(rig.infer.cancels, before + 3);
    }
}

static void test_one_frame_a_step(void **state)
{
    (void)state;
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

static void test_frames(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    int fd = ws_open(&rig);
    frame(fd, FIN | BINARY, GENERATE_2, strlen(GENERATE_2), true); /* ignored */
    frame(fd, TEXT, "GENERATE {\"prompt\":", 19, true);
    frame(fd, FIN | PING, "ping!", 5, true);
    frame(fd, 0, "[1],\"max_tokens\":2", 18, true);
    frame(fd, FIN | 0, ",\"stream_id\":1}", 15, true);
    assert_int_equal(listen_any(fd, &b), PONG);
    assert_string_equal(b.p, "ping!");
    expect(fd, TOKEN_1);
    expect(fd, TOKEN_2);
    frame(fd, FIN | CLOSE, "\x03\xe8", 2, true);
    assert_int_equal(closed_with(fd), 1000);
    hang_up(&rig, fd);
    fd = ws_open(&rig);
    speak(fd, "GENERATE {\"prompt\":[1],\"max_tokens\":3000,\"stream_id\":1}");
    frame(fd, FIN | TEXT, GENERATE_2, strlen(GENERATE_2), false);
    assert_int_equal(closed_with(fd), 1002);
    hang_up(&rig, fd);
    fd = ws_open(&rig);
    frame(fd, FIN | 0x40 | TEXT, GENERATE_2, strlen(GENERATE_2), true);
    assert_int_equal(closed_with(fd), 1002);
    hang_up(&rig, fd);
    fd = ws_open(&rig);
    frame(fd, FIN | TEXT, "GENERATE {\"\xff\":1}", 16, true);
    assert_int_equal(closed_with(fd), 1007);
    hang_up(&rig, fd);
    buf_free(&b);
}

static void test_the_size_of_a_message(void **state)
{
    (void)state;
    size_t n = 5 << 20;
    char *big = malloc(n);
    memset(big, ' ', n);
    memcpy(big, GENERATE_2, strlen(GENERATE_2));
    int fd = ws_open(&rig);
    frame(fd, FIN | TEXT, big, 4 << 20, true);
    expect(fd, TOKEN_1);
    expect(fd, TOKEN_2);
    frame(fd, FIN | TEXT, big, n, true);
    assert_int_equal(closed_with(fd), 1009);
    free(big);
    hang_up(&rig, fd);
}

static void test_handshakes(void **state)
{
    (void)state;
    static const struct {
        const char *path, *headers;
        int status;
    } rows[] = {
        {"/", UPGRADE, 101},
        {"/lmtp", UPGRADE, 101},
        {"/health", UPGRADE, 200}, /* an offer that is not taken */
        {"/nowhere", UPGRADE, 404},
        {"/lmtp", "", 426},
        {"/",
         "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
         426},
        {"/", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n", 400},
        {"/",
         "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Key: short\r\n",
         400},
        {"/",
         "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
         400},
    };
    struct buf b = BUF_INIT;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int fd = open_path(&rig, rows[i].path, rows[i].headers, &b);
        if (status_of(b.p) != rows[i].status)
            fail_msg("row %zu: %s", i, b.p);
        close(fd);
    }
    buf_free(&b);
}

/* One who never reads costs a bounded queue, and then the connection. */
static void test_a_slow_reader(void **state)
{
    (void)state;
    int fd = ws_open(&rig), small = 128 << 10;
    unsigned before = rig.infer.cancels;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    for (int id = 1; id <= 100; id++) {
        char *m = text("GENERATE {\"prompt\":[1],\"max_tokens\":3900,\"stream_id\":%d}", id);
        speak(fd, m);
        free(m);
    }
    for (int i = 0; i < 2000 && rig.infer.cancels == before; i++)
        usleep(10000);
    rig_settle(&rig);
    assert_int_equal(rig.infer.cancels, before + 100);
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

static void test_overload(void **state)
{
    (void)state;
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

static int dial_unix(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = 10};
    strcpy(a.sun_path, rig.config.lmtp_listen + 5);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

static void test_lines(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    int fd = dial_unix();
    const char *two = "nonsense\r\n\n" GENERATE_2; /* the last line lacks its end */
    say(fd, two, 20);
    usleep(20000);
    say(fd, two + 20, strlen(two) - 20);
    shutdown(fd, SHUT_WR);
    assert_string_equal(
        hear(fd, &b),
        "MSG [{\"stream_id\":null,\"error\":\"a message is a type, a space and a JSON "
        "object\"}]\n" TOKEN_1 "\n" TOKEN_2 "\n");
    close(fd);
    char *big = malloc(5 << 20);
    memset(big, 'x', 5 << 20);
    fd = dial_unix();
    say(fd, big, 5 << 20);
    say(fd, "\n" GENERATE_2 "\n", strlen(GENERATE_2) + 2);
    shutdown(fd, SHUT_WR);
    must_have(hear(fd, &b), "too long");
    must_have(b.p, TOKEN_2);
    close(fd);
    free(big);
    fd = dial_unix();
    say(fd, "GENERATE {\"prompt\":[1],\"max_tokens\":3000,\"stream_id\":1}\n", 57);
    assert_true(recv(fd, &(char){0}, 1, 0) == 1);
    hang_up(&rig, fd);
    buf_free(&b);
}

/* Last: the server says goodbye to those who are in the middle, and to those who wait. */
static void test_shutdown(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    int busy = ws_open(&rig), idle = ws_open(&rig), lines = dial_unix();
    speak(busy, "GENERATE {\"prompt\":[1],\"max_tokens\":3000,\"stream_id\":1}");
    expect(busy, TOKEN_1);
    lmtp_stop(rig.edge.lmtp);
    int op;
    bool told = false;
    while ((op = listen_any(busy, &b)) == TEXT)
        told |= strstr(b.p, "{\"stream_id\":1,\"error\":\"the server is shutting down\"}") != NULL;
    assert_true(told);
    assert_int_equal(op, CLOSE);
    assert_int_equal((unsigned char)b.p[0] << 8 | (unsigned char)b.p[1], 1001);
    assert_int_equal(closed_with(idle), 1001);
    assert_int_equal(recv(lines, &(char){0}, 1, 0), 0);
    close(busy), close(idle), close(lines);
    buf_free(&b);
}

static int start(void **state)
{
    static char *alias[] = {"alias"};
    static char where[64];
    (void)state;
    snprintf(where, sizeof(where), "unix:/tmp/test-lmtp-%d", (int)getpid());
    log_init("test", LOG_OFF, false, 2);
    rig.config.lmtp_listen = where;
    rig.config.lmtp_model_alias = (struct flag_list){alias, 1};
    rig_start(&rig, NULL, 2000);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    rig_stop(&rig);
    buf_free(&rest);
    assert_int_equal(access(rig.config.lmtp_listen + 5, F_OK), -1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stream),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_bad_messages),
        cmocka_unit_test(test_a_prompt_that_is_too_long),
        cmocka_unit_test(test_an_id_in_use),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_a_client_that_leaves),
        cmocka_unit_test(test_one_frame_a_step),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_the_size_of_a_message),
        cmocka_unit_test(test_handshakes),
        cmocka_unit_test(test_a_slow_reader),
        cmocka_unit_test(test_overload),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_shutdown),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
