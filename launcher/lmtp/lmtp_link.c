#include "launcher/lmtp/lmtp_link.h"
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* RFC 6455, 5.2 */
enum { FIN = 0x80, MASKED = 0x80, TEXT = 1, CLOSE = 8, PING = 9, PONG = 10, MOST = 64 << 20 };

static int send_all(int fd, const char *p, size_t n, struct err *e)
{
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_sys(e, "send");
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

/* Reads until l->in has at least `n` bytes. */
static int fill(struct lmtp_link *l, size_t n, struct err *e)
{
    while (l->in.len < n) {
        if (buf_reserve(&l->in, 65536) != 0)
            return err_nomem(e);
        ssize_t k = recv(l->fd, l->in.p + l->in.len, 65536, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_sys(e, "recv");
        if (k == 0)
            return err_set(e, ERR_INCOMPLETE, "the server has closed the connection");
        l->in.len += (size_t)k;
    }
    return 0;
}

static void consume(struct lmtp_link *l, size_t n)
{
    memmove(l->in.p, l->in.p + n, l->in.len - n);
    l->in.len -= n;
}

/* ---------------------------------------------------------------- connecting */

static int dial_unix(const char *path, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(a.sun_path))
        return err_set(e, ERR_VALIDATION, "unix:%s: too long a path", path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0)
        return fd;
    err_sys(e, "unix:%s", path);
    if (fd >= 0)
        close(fd);
    return -1;
}

static int dial_tcp(const char *where, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
    const char *colon = strrchr(where, ':');
    char host[256];
    int fd = -1;
    if (!colon ||
        (size_t)snprintf(host, sizeof(host), "%.*s", (int)(colon - where), where) >= sizeof(host))
        return err_set(e, ERR_VALIDATION, "%s: expected host:port or unix:/path", where);
    if (getaddrinfo(*host ? host : "localhost", colon + 1, &hints, &all) != 0)
        return err_set(e, ERR_VALIDATION, "%s: no such address", where);
    for (const struct addrinfo *a = all; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            err_sys(e, "%s", where);
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(all);
    return fd;
}

/* The server's accept key is not checked: it detects caching proxies, whose answer would not be
 * 101. */
static int handshake(struct lmtp_link *l, const char *where, const char *key, struct err *e)
{
    struct buf b = BUF_INIT;
    const char *end;
    buf_fmt(&b, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
            where);
    buf_str(&b, "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: bG10cC1sYXVuY2hlci0wMQ==\r\n");
    if (key && *key)
        buf_fmt(&b, "Authorization: Bearer %s\r\n", key);
    buf_str(&b, "\r\n");
    int rc = b.oom ? err_nomem(e) : send_all(l->fd, b.p, b.len, e);
    buf_free(&b);
    while (rc == 0 && !(end = l->in.p ? memmem(l->in.p, l->in.len, "\r\n\r\n", 4) : NULL))
        rc = l->in.len > 65536 ? err_set(e, ERR_INCOMPLETE, "%s does not speak HTTP", where)
                               : fill(l, l->in.len + 1, e);
    if (rc != 0)
        return -1;
    if (strncmp(l->in.p, "HTTP/1.1 101", 12) != 0)
        return err_set(e, ERR_INCOMPLETE, "%s does not speak LMTP: %.*s", where,
                       (int)strcspn(l->in.p, "\r"), l->in.p);
    consume(l, (size_t)(end + 4 - l->in.p));
    return 0;
}

int lmtp_link_open(struct lmtp_link *l, const char *where, const char *key, struct err *e)
{
    *l = (struct lmtp_link){.lines = !strncmp(where, "unix:", 5)};
    l->fd = l->lines ? dial_unix(where + 5, e) : dial_tcp(where, e);
    if (l->fd < 0)
        return -1;
    return l->lines ? 0 : handshake(l, where, key, e);
}

void lmtp_link_close(struct lmtp_link *l)
{
    if (l->fd >= 0)
        close(l->fd);
    buf_free(&l->in);
    l->fd = -1;
}

/* ---------------------------------------------------------------- messages */

static int send_frame(struct lmtp_link *l, int opcode, const char *p, size_t n, struct err *e)
{
    struct buf b = BUF_INIT;
    unsigned char mask[4];
    if (getrandom(mask, sizeof(mask), 0) != sizeof(mask))
        return err_sys(e, "getrandom");
    int extra = n < 126 ? 0 : n < 65536 ? 2 : 8;
    buf_ch(&b, (char)(FIN | opcode));
    buf_ch(&b, (char)(MASKED | (extra == 0 ? (int)n : extra == 2 ? 126 : 127)));
    for (; extra > 0; extra--)
        buf_ch(&b, (char)((uint64_t)n >> 8 * (extra - 1)));
    buf_add(&b, mask, sizeof(mask));
    size_t head = b.len;
    buf_add(&b, p, n);
    for (size_t i = 0; !b.oom && i < n; i++)
        b.p[head + i] ^= (char)mask[i % 4];
    int rc = b.oom ? err_nomem(e) : send_all(l->fd, b.p, b.len, e);
    buf_free(&b);
    return rc;
}

int lmtp_link_send(struct lmtp_link *l, const char *message, size_t n, struct err *e)
{
    if (!l->lines)
        return send_frame(l, TEXT, message, n, e);
    return send_all(l->fd, message, n, e) != 0 ? -1 : send_all(l->fd, "\n", 1, e);
}

static int receive_line(struct lmtp_link *l, struct buf *out, struct err *e)
{
    const char *newline;
    while (!(newline = l->in.len ? memchr(l->in.p, '\n', l->in.len) : NULL))
        if (fill(l, l->in.len + 1, e) != 0)
            return -1;
    size_t n = (size_t)(newline - l->in.p);
    buf_add(out, l->in.p, n);
    consume(l, n + 1);
    return 0;
}

/* Reads a frame into l->in, and locates its payload. */
static int read_frame(struct lmtp_link *l, int *opcode, size_t *at, uint64_t *n, struct err *e)
{
    if (fill(l, 2, e) != 0)
        return -1;
    unsigned char small = (unsigned char)l->in.p[1];
    size_t extra = small == 126 ? 2 : small == 127 ? 8 : 0;
    if (small & MASKED)
        return err_set(e, ERR_INCOMPLETE, "the server masks its frames");
    if (fill(l, 2 + extra, e) != 0)
        return -1;
    *n = extra ? 0 : small;
    for (size_t i = 0; i < extra; i++)
        *n = *n << 8 | (unsigned char)l->in.p[2 + i];
    *opcode = (unsigned char)l->in.p[0];
    *at = 2 + extra;
    if (*n > MOST)
        return err_set(e, ERR_INCOMPLETE, "the server sends a frame of %llu bytes",
                       (unsigned long long)*n);
    return fill(l, *at + *n, e);
}

int lmtp_link_receive(struct lmtp_link *l, struct buf *out, struct err *e)
{
    buf_reset(out);
    if (l->lines)
        return receive_line(l, out, e);
    for (int first = 0;;) {
        int opcode = 0;
        size_t at = 0;
        uint64_t n = 0;
        if (read_frame(l, &opcode, &at, &n, e) != 0)
            return -1;
        int kind = opcode & 15;
        if (kind == CLOSE)
            return err_set(e, ERR_INCOMPLETE, "the server closed the connection: %.*s",
                           (int)(n > 2 ? n - 2 : 0), l->in.p + at + 2);
        if (kind == PING && send_frame(l, PONG, l->in.p + at, n, e) != 0)
            return -1;
        first = kind == TEXT ? TEXT : first;
        bool message = kind == TEXT || (kind == 0 && first == TEXT);
        if (message)
            buf_add(out, l->in.p + at, n);
        consume(l, at + n);
        if (message && opcode & FIN)
            return out->oom ? err_nomem(e) : 0;
    }
}
