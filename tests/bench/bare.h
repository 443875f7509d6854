/* bare.h - the ceiling: libmicrohttpd in an epoll of our own and nothing else. Every stream gets an
 * event of the same size every step; everything else is answered 200 and empty. */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H
#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

struct bare_stream {
    struct MHD_Connection *c;
    struct bare_stream *next;
    struct bare *b;
    uint32_t left, due;
    bool suspended;
};
struct bare {
    struct MHD_Daemon *d;
    struct bare_stream *all;
    uint32_t n, n_streams, n_tokens;
    int64_t stamp;
};

static ssize_t bare_pull(void *cls, uint64_t pos, char *out, size_t max)
{
    struct bare_stream *s = cls;
    (void)pos;
    if (!s->left)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (!s->due) {
        s->suspended = true;
        MHD_suspend_connection(s->c);
        return 0;
    }
    s->due = 0;
    s->left--;
    return snprintf(out, max,
                    "data: {\"index\":%u,\"token\":{\"id\":7,\"text\":\"%lld \",\"logprob\":-0.5,"
                    "\"special\":false},\"generated_text\":null,\"details\":null}\n\n",
                    s->left, (long long)s->b->stamp);
}

static enum MHD_Result bare_access(void *cls, struct MHD_Connection *c, const char *url,
                                   const char *method, const char *version, const char *body,
                                   size_t *n_body, void **state)
{
    static int seen;
    struct bare *b = cls;
    (void)url, (void)version, (void)body;
    if (!*state) {
        *state = &seen;
        return MHD_YES;
    }
    if (*n_body) {
        *n_body = 0;
        return MHD_YES;
    }
    struct MHD_Response *r;
    if (!strcmp(method, "POST")) {
        struct bare_stream *s = calloc(1, sizeof(*s)); /* the process ends before it matters */
        *s = (struct bare_stream){.c = c, .b = b, .next = b->all, .left = b->n_tokens};
        b->all = s;
        b->n++;
        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, bare_pull, s, NULL);
    } else {
        r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    }
    enum MHD_Result ok = MHD_queue_response(c, 200, r);
    MHD_destroy_response(r);
    return ok;
}

/* Serves until it is killed. */
static _Noreturn void bare_serve(uint16_t port, uint32_t n_streams, uint32_t n_tokens, int step_ms)
{
    struct bare b = {.n_streams = n_streams, .n_tokens = n_tokens};
    b.d = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, port, NULL, NULL, bare_access,
                           &b, MHD_OPTION_CONNECTION_LIMIT, 16384u, MHD_OPTION_END);
    int fd = b.d ? MHD_get_daemon_info(b.d, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd : -1;
    struct epoll_event ev = {.events = EPOLLIN}, got[8];
    int loop = epoll_create1(0);
    epoll_ctl(loop, EPOLL_CTL_ADD, fd, &ev);
    int64_t next = 0;
    for (;;) {
        MHD_UNSIGNED_LONG_LONG ms;
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
        int wait = MHD_get_timeout(b.d, &ms) == MHD_YES && ms < 100 ? (int)ms : 100;
        if (b.n >= b.n_streams && now >= next) {
            b.stamp = now;
            next = now + step_ms * 1000000L;
            for (struct bare_stream *s = b.all; s; s = s->next) {
                s->due = 1;
                if (s->suspended) {
                    s->suspended = false;
                    MHD_resume_connection(s->c);
                }
            }
            wait = 0;
        } else if (b.n >= b.n_streams && b.n && wait > (next - now) / 1000000) {
            wait = (int)((next - now) / 1000000) + 1;
        }
        epoll_wait(loop, got, 8, wait);
        MHD_run(b.d);
    }
}
#endif
