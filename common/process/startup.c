#include "common/process/startup.h"
#include "common/clock.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* CLOCK_MONOTONIC is equal in all processes of a machine. */
struct startup_slot {
    _Atomic uint32_t phase;
    _Atomic uint64_t done, total;
    _Atomic int64_t began, since; /* ns: begin of this start, and of this phase */
    _Atomic int64_t took[STARTUP_PHASES];
};
struct startup_board {
    struct startup_slot slots[STARTUP_SLOTS];
};

const char *startup_name(enum startup_phase p)
{
    static const char *const names[STARTUP_PHASES] = {
        "none", "config", "tokenizer", "rendezvous", "weights", "shards", "warm_up", "kv", "ready"};
    return names[p];
}

static struct startup_board *map(int fd, struct err *e)
{
    void *p = mmap(NULL, sizeof(struct startup_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED)
        return p;
    err_sys(e, "the start-up board");
    return NULL;
}

struct startup_board *startup_board_new(int *fd, struct err *e)
{
    *fd = memfd_create("startup", MFD_CLOEXEC);
    if (*fd < 0 || ftruncate(*fd, sizeof(struct startup_board)) != 0) {
        err_sys(e, "the start-up board");
        return NULL;
    }
    return map(*fd, e);
}

struct startup_board *startup_board_map(int fd, struct err *e)
{
    struct stat st;
    struct startup_board *b = NULL;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof(*b))
        err_set(e, ERR_VALIDATION, "descriptor %d is not a start-up board", fd);
    else
        b = map(fd, e);
    if (b)
        close(fd);
    return b;
}

void startup_board_free(struct startup_board *b)
{
    if (b)
        munmap(b, sizeof(*b));
}

/* ---------------------------------------------------------------- writing */

static void clear(struct startup_slot *s)
{
    atomic_store(&s->phase, STARTUP_NONE);
    for (int i = 0; i < STARTUP_PHASES; i++)
        atomic_store(&s->took[i], 0);
}

void startup_begin(struct startup_board *b, uint32_t slot, enum startup_phase p)
{
    if (!b || slot >= STARTUP_SLOTS)
        return;
    struct startup_slot *s = &b->slots[slot];
    const int64_t now = clock_ns();
    const uint32_t before = atomic_load(&s->phase);
    if (p == STARTUP_CONFIG) {
        clear(s);
        atomic_store(&s->began, now);
    } else if (before > STARTUP_NONE && before < STARTUP_READY) {
        atomic_fetch_add(&s->took[before], now - atomic_load(&s->since));
    }
    if (p == STARTUP_READY && before != STARTUP_READY)
        atomic_store(&s->took[p], now - atomic_load(&s->began));
    atomic_store(&s->since, now);
    atomic_store(&s->done, 0);
    atomic_store(&s->total, 0);
    atomic_store(&s->phase, p);
}

void startup_progress(struct startup_board *b, uint32_t slot, uint64_t done, uint64_t total)
{
    if (!b || slot >= STARTUP_SLOTS)
        return;
    atomic_store(&b->slots[slot].done, done);
    atomic_store(&b->slots[slot].total, total);
}

void startup_add(struct startup_board *b, uint32_t slot, enum startup_phase p, int64_t ns)
{
    if (b && slot < STARTUP_SLOTS)
        atomic_fetch_add(&b->slots[slot].took[p], ns);
}

/* ---------------------------------------------------------------- reading */

static double seconds(int64_t ns) { return (double)ns * 1e-9; }

static struct startup_view look(const struct startup_slot *s)
{
    const uint64_t done = atomic_load(&s->done), total = atomic_load(&s->total);
    const int64_t now = clock_ns();
    const uint32_t phase = atomic_load(&s->phase);
    struct startup_view v = {
        .phase = phase < STARTUP_PHASES ? phase : STARTUP_NONE, .percent = -1, .left = -1};
    if (v.phase != STARTUP_NONE)
        v.seconds = seconds(now - atomic_load(&s->began));
    if (total && done <= total)
        v.percent = 100.0 * (double)done / (double)total;
    if (total && done && done <= total)
        v.left = seconds(now - atomic_load(&s->since)) * (double)(total - done) / (double)done;
    return v;
}

struct startup_view startup_look(const struct startup_board *b, uint32_t first, uint32_t n)
{
    struct startup_view last = {.phase = STARTUP_NONE, .percent = -1, .left = -1};
    for (uint32_t i = first; b && i < first + n && i < STARTUP_SLOTS; i++) {
        const struct startup_view v = look(&b->slots[i]);
        const bool behind = v.phase != last.phase ? v.phase < last.phase : v.percent < last.percent;
        if (i == first || behind)
            last = v;
    }
    return last;
}

double startup_seconds(const struct startup_board *b, uint32_t slot, enum startup_phase p)
{
    if (!b || slot >= STARTUP_SLOTS)
        return 0;
    const struct startup_slot *s = &b->slots[slot];
    int64_t ns = atomic_load(&s->took[p]);
    if (p != STARTUP_READY && p != STARTUP_NONE && atomic_load(&s->phase) == p)
        ns += clock_ns() - atomic_load(&s->since);
    return seconds(ns);
}

void startup_words(const struct startup_view *v, char *out, size_t max)
{
    int n = snprintf(out, max, "%s", v->phase == STARTUP_NONE ? "start" : startup_name(v->phase));
    if (n > 0 && (size_t)n < max && v->percent >= 0)
        n += snprintf(out + n, max - (size_t)n, " %.0f %%", v->percent);
    if (n > 0 && (size_t)n < max && v->left >= 0)
        snprintf(out + n, max - (size_t)n, ", about %.0f s left", v->left);
}
