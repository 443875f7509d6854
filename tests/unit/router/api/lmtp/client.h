/* client.h - an LMTP client with its own implementation of RFC 6455, over the fake scheduler of
 * rig.h, on a real port and a UNIX socket. */
#ifndef TEST_LMTP_CLIENT_H
#define TEST_LMTP_CLIENT_H
#include "tests/unit/router/rig.h"
#include <sys/un.h>

/* ---------------------------------------------------------------- a WebSocket client */
static struct rig rig;  /* the server of this test */
static struct buf rest; /* of a frame whose first items were read */
enum { TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10, FIN = 0x80 };

UNUSED static int open_path(const struct rig *r, const char *path, const char *headers,
                            struct buf *b)
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

UNUSED static int ws_open(const struct rig *r)
{
    struct buf b = BUF_INIT;
    int fd = open_path(r, "/", UPGRADE, &b);
    buf_reset(&rest);
    assert_int_equal(status_of(b.p), 101);
    must_have(b.p, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    buf_free(&b);
    return fd;
}

UNUSED static void frame(int fd, int first, const void *payload, size_t n, bool masked)
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

UNUSED static void speak(int fd, const char *message)
{
    frame(fd, FIN | TEXT, message, strlen(message), true);
}

UNUSED static bool take(int fd, void *p, size_t n)
{
    for (ssize_t k; n; p = (char *)p + k, n -= (size_t)k)
        if ((k = recv(fd, p, n, 0)) <= 0)
            return false;
    return true;
}

/* The next frame; its opcode, -1 at the end of the stream. */
UNUSED static int listen_any(int fd, struct buf *b)
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

UNUSED static const char *hear_text(int fd, struct buf *b)
{
    assert_int_equal(listen_any(fd, b), TEXT);
    return b->p;
}

/* The next item. One frame may contain the items of a step and of the following ones, if the
 * client was busy. One connection at a time. */
UNUSED static char *hear_item(int fd)
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

UNUSED static void expect(int fd, const char *exact)
{
    char *got = hear_item(fd);
    assert_string_equal(got, exact);
    free(got);
}

/* Reads items up to the one with `part`; returns the number of items before it. */
UNUSED static int expect_later(int fd, const char *part)
{
    for (int n = 0;; n++) {
        char *item = hear_item(fd);
        bool found = strstr(item, part) != NULL;
        free(item);
        if (found)
            return n;
    }
}

UNUSED static void expect_part(int fd, const char *start, const char *part)
{
    char *got = hear_item(fd);
    if (strncmp(got, start, strlen(start)) != 0)
        fail_msg("`%s` does not begin with `%s`", got, start);
    must_have(got, part);
    free(got);
}

/* Reads frames until a Close; returns its code (0: none, the stream ended). */
UNUSED static int closed_with(int fd)
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

UNUSED static void hang_up(struct rig *r, int fd)
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

/* ---------------------------------------------------------------- lines */
UNUSED static int dial_unix(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = 10};
    strcpy(a.sun_path, rig.config.lmtp_listen + 5);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

/* ---------------------------------------------------------------- set-up of a group */
UNUSED static int start(void **state)
{
    static char *alias[] = {"alias"};
    static char where[64];
    (void)state;
    snprintf(where, sizeof(where), "unix:/tmp/test-lmtp-%d", (int)getpid());
    log_init("test", LOG_OFF, false, 2);
    rig.config.lmtp_listen = where;
    rig.config.lmtp_grace = 2;
    rig.config.lmtp_model_alias = (struct flag_list){alias, 1};
    rig_start(&rig, NULL, 2000);
    return 0;
}

UNUSED static int stop(void **state)
{
    (void)state;
    rig_stop(&rig);
    buf_free(&rest);
    assert_int_equal(access(rig.config.lmtp_listen + 5, F_OK), -1);
    return 0;
}
#endif
