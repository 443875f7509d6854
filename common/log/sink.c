#include "common/log/sink.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/log/stacks.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAP_MS = 2 };

/* A line is stored as its length (4 bytes) and its bytes; byte i is at index i modulo LOG_RING. */
static char ring[LOG_RING];

/* head and tail are byte counts that only grow. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t come;
    uint64_t head, tail;
    uint64_t n_reported; /* dropped lines already reported; writer thread */
    bool torn;           /* the last line that was written was cut; writer thread */
    void (*notice)(struct buf *out, uint64_t dropped);
    atomic_int fd;
    atomic_bool running;       /* the writer thread exists */
    _Atomic uint64_t dropped;  /* lines */
    _Atomic uint64_t progress; /* completed writes */
    atomic_bool idle;          /* the ring is empty and no write is in progress */
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .come = PTHREAD_COND_INITIALIZER,
          .fd = STDERR_FILENO,
          .idle = true};

uint64_t log_dropped(void) { return atomic_load(&sink.dropped); }
static int log_sink_fd(void) { return atomic_load(&sink.fd); }

static void ring_copy_in(uint64_t at, const char *p, size_t n)
{
    size_t first = LOG_RING - at % LOG_RING;
    first = first < n ? first : n;
    memcpy(ring + at % LOG_RING, p, first);
    memcpy(ring, p + first, n - first);
}

static void ring_copy_out(char *p, uint64_t at, size_t n)
{
    size_t first = LOG_RING - at % LOG_RING;
    first = first < n ? first : n;
    memcpy(p, ring + at % LOG_RING, first);
    memcpy(p + first, ring, n - first);
}

static uint32_t length_at(uint64_t at)
{
    uint32_t n;
    ring_copy_out((char *)&n, at, sizeof(n));
    return n;
}

/* Waits if another process made the descriptor non-blocking. Returns the bytes that were written:
 * all, unless there is no reader or no disk space. */
static size_t write_all(int fd, const char *p, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t w = write(fd, p + done, n - done);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0 && errno == EAGAIN)
            poll(&(struct pollfd){fd, POLLOUT, 0}, 1, -1);
        else if (w < 0)
            break;
        done += w > 0 ? (size_t)w : 0;
    }
    return done;
}

/* Writes `lines` lines, and counts those that could not be written. The next line does not continue
 * one that was cut. Writer thread. */
static bool write_lines(int fd, const char *p, size_t n, uint32_t lines)
{
    size_t done = 0;
    if (!sink.torn || write_all(fd, "\n", 1) == 1) {
        done = write_all(fd, p, n);
        sink.torn = done > 0 && p[done - 1] != '\n';
    }
    for (size_t i = 0; i < done; i++)
        lines -= lines && p[i] == '\n';
    atomic_fetch_add(&sink.dropped, lines);
    return done == n;
}

/* Takes whole lines, as many as an atomic pipe write holds, at least one. Returns their number. */
static uint32_t take(char *out, size_t *n)
{
    uint32_t lines = 0;
    for (*n = 0; sink.head != sink.tail; lines++) {
        uint32_t len = length_at(sink.head);
        if (lines && *n + len > PIPE_BUF)
            break;
        ring_copy_out(out + *n, sink.head + sizeof(len), len);
        *n += len;
        sink.head += sizeof(len) + len;
    }
    return lines;
}

static bool write_dropped(int fd, uint64_t missing)
{
    struct buf b = BUF_INIT;
    sink.notice(&b, missing);
    const bool ok = !b.oom && write_lines(fd, b.p, b.len, 0);
    buf_free(&b);
    return ok;
}

static void *writer(void *arg)
{
    static char batch[LOG_LINE_MAX + PIPE_BUF]; /* static: there is only one writer */
    (void)arg;
    pthread_mutex_lock(&sink.lock);
    for (;;) {
        while (sink.head == sink.tail) {
            atomic_store(&sink.idle, true);
            pthread_cond_wait(&sink.come, &sink.lock);
        }
        uint64_t missing = atomic_load(&sink.dropped) - sink.n_reported;
        size_t n;
        uint32_t lines = take(batch, &n);
        int fd = atomic_load(&sink.fd);
        pthread_mutex_unlock(&sink.lock);
        if (missing && write_dropped(fd, missing))
            sink.n_reported += missing;
        write_lines(fd, batch, n, lines);
        atomic_fetch_add(&sink.progress, 1);
        pthread_mutex_lock(&sink.lock);
    }
    return NULL;
}

void log_sink_put(const char *line, size_t n)
{
    const uint32_t len = (uint32_t)n;
    if (!atomic_load(&sink.running)) {
        write_all(log_sink_fd(), line, n);
        return;
    }
    if (n > LOG_LINE_MAX) {
        atomic_fetch_add(&sink.dropped, 1);
        return;
    }
    pthread_mutex_lock(&sink.lock);
    while (sink.tail - sink.head + sizeof(len) + n > LOG_RING) {
        sink.head += sizeof(len) + length_at(sink.head);
        atomic_fetch_add(&sink.dropped, 1);
    }
    ring_copy_in(sink.tail, (const char *)&len, sizeof(len));
    ring_copy_in(sink.tail + sizeof(len), line, n);
    sink.tail += sizeof(len) + n;
    atomic_store(&sink.idle, false);
    pthread_cond_signal(&sink.come);
    pthread_mutex_unlock(&sink.lock);
}

bool log_sink_settle(int64_t quiet_ms, int64_t most_ms)
{
    uint64_t seen = atomic_load(&sink.progress);
    int64_t now = clock_ms(), quiet = now + quiet_ms, end = now + most_ms;
    if (!atomic_load(&sink.running))
        return true;
    for (; !atomic_load(&sink.idle); now = clock_ms()) {
        uint64_t progress = atomic_load(&sink.progress);
        if (progress != seen)
            quiet = now + quiet_ms;
        if (now >= quiet || now >= end)
            return false;
        seen = progress;
        nanosleep(&(struct timespec){.tv_nsec = NAP_MS * 1000000L}, NULL);
    }
    return true;
}

bool log_flush(void) { return log_sink_settle(LOG_READER_MS, LOG_FLUSH_MS); }

static void at_exit(void) { log_flush(); }

/* A forked child has no writer thread. */
static void forked(void)
{
    atomic_store(&sink.running, false);
    pthread_mutex_init(&sink.lock, NULL);
}

/* Blocks all signals in the writer, so that other threads handle them. */
static bool start_writer(void)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    sigdelset(&all, STACKS_SIGNAL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = pthread_create(&thread, NULL, writer, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ok)
        pthread_detach(thread);
    return ok;
}

void log_sink_start(int fd, void (*notice)(struct buf *out, uint64_t dropped))
{
    log_flush();
    atomic_store(&sink.fd, fd);
    if (sink.notice)
        return;
    sink.notice = notice;
    if (start_writer()) { /* otherwise lines are written synchronously */
        atexit(at_exit);
        pthread_atfork(NULL, NULL, forked);
        atomic_store(&sink.running, true);
    }
}
