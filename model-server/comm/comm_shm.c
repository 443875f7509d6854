/* comm_shm.c - collectives between processes of one host.
 *
 * One segment holds a line per rank and two buffers per rank. A barrier is a counter per rank.
 * Each rank increments its own counter, and waits until all others have reached it. Data passes
 * through the buffers in chunks that alternate between the two halves. A rank that writes half h
 * for chunk i + 2 has passed the barrier of chunk i + 1, and by then every rank has finished
 * reading chunk i.
 *
 * A message passes through the sender's box, which has two halves as well. Two counters for each
 * pair of ranks count the pieces put into it and taken from it. A message is complete when the
 * receiver has taken all of it, so that the box is free for another receiver.
 *
 * Waiting: spin briefly (common/thread/spin.h), then sleep on the other rank's counter (a futex),
 * and check every POLL_MS whether that rank lives. A process is identified by its pid and start
 * time, because pids are reused. */
#include "model-server/comm/comm_shm.h"
#include "common/clock.h"
#include "common/process/shard_group.h"
#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SMALL = 16 * 1024 }; /* up to this size every rank adds everything: one barrier less */
enum { POLL_MS = 50 };
/* If a poll takes longer, this process did not run, and others may not have either: their container
 * was paused. Such time does not count towards a timeout. */
enum { STOPPED_MS = 1000 };

static struct shm *shm_of(struct comm *c)
{
    return (struct shm *)c;
} /* `comm` is its first field */

static struct shm_pair *pair_of(const struct shm *s, int from, int to)
{
    return (struct shm_pair *)(void *)s->seg->data + (size_t)from * (size_t)s->comm.world + to;
}

static float *buffers(const struct shm *s) { return (void *)pair_of(s, s->comm.world, 0); }

static float *buffer(const struct shm *s, int rank)
{
    return buffers(s) + ((size_t)rank * 2 + s->half) * CHUNK;
}

/* Where a rank puts piece number n for another rank. */
static float *box(const struct shm *s, int rank, unsigned n)
{
    return buffers(s) + (size_t)s->comm.world * 2 * CHUNK + ((size_t)rank * 2 + n % 2) * PIECE;
}

/* ---------------------------------------------------------------- barrier */

static void futex_wait_ms(atomic_uint *word, unsigned value, int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

static bool has_reached(struct shm_count *c, unsigned n, unsigned *seen)
{
    *seen = atomic_load(&c->n); /* sequentially consistent: pairs with count_to() */
    return (int)(*seen - n) >= 0;
}

/* Checks the awaited rank, and all others that have died: one of these may be the cause. */
static int check_wait(struct shm *s, int rank, int64_t deadline_ms, struct err *e)
{
    struct comm *all = s->comm.whole ? s->comm.whole : &s->comm;
    struct shm_rank *r = &s->seg->ranks[rank];
    struct err dead = ERR_INIT;
    const int pid = atomic_load(&r->pid), number = s->numbers[rank];
    /* who ends has left before */
    const bool lives = shm_rank_lives(r), left = atomic_load(&r->left);
    if (!left && !lives)
        return err_set(e, ERR_SYSTEM, "rank %d (pid %d) died", number, pid);
    if (all->ops->check(all, &dead) < 0)
        return *e = dead, -1;
    if (left)
        return err_set(e, ERR_SYSTEM, "rank %d (pid %d) has left", number, pid);
    if (clock_ms() >= deadline_ms)
        return err_set(e, ERR_SYSTEM, "rank %d did not arrive within %g s", number,
                       s->timeout_ms / 1000.0);
    return 0;
}

/* Waits until `rank` has counted to n. */
static int wait_for(struct shm *s, int rank, struct shm_count *c, unsigned n, int64_t deadline_ms,
                    struct err *e)
{
    unsigned seen;
    for (uint32_t i = 0; i < s->spin.now; i++) {
        if (has_reached(c, n, &seen)) {
            spin_gained(&s->spin, i);
            return 0;
        }
        spin_pause();
    }
    const int64_t begin = clock_ns();
    int64_t before = begin / 1000000;
    int rc = 0;
    atomic_fetch_add(&c->waiters, 1);
    while (!rc && !has_reached(c, n, &seen)) {
        futex_wait_ms(&c->n, seen, POLL_MS);
        const int64_t now = clock_ms();
        if (now - before > STOPPED_MS)
            deadline_ms += now - before;
        before = now;
        if (!has_reached(c, n, &seen))
            rc = check_wait(s, rank, deadline_ms, e);
    }
    atomic_fetch_sub(&c->waiters, 1);
    spin_slept(&s->spin, clock_ns() - begin);
    return rc;
}

static void count_to(struct shm_count *c, unsigned n)
{
    atomic_store(&c->n, n);
    if (atomic_load(&c->waiters))
        syscall(SYS_futex, &c->n, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int shm_arrive(struct shm *s, struct err *e)
{
    int64_t deadline_ms = clock_ms() + s->timeout_ms;
    if (s->broken.kind != ERR_NONE)
        return *e = s->broken, -1;
    count_to(&s->seg->ranks[s->comm.rank].arrived, ++s->reached);
    for (int r = 0; r < s->comm.world; r++)
        if (r != s->comm.rank &&
            wait_for(s, r, &s->seg->ranks[r].arrived, s->reached, deadline_ms, &s->broken))
            return *e = s->broken, -1;
    return 0;
}

static int shm_barrier(struct comm *c, struct err *e) { return shm_arrive(shm_of(c), e); }

/* ---------------------------------------------------------------- collectives */

/* out = the sum over ranks, in order, of elements [begin, begin + n) of their buffers. `out` may
 * be this rank's buffer: an element is read before it is written. */
static void sum_ranks(struct shm *s, float *out, size_t begin, size_t n)
{
    enum { LANE = 16 };
    for (size_t i = 0; i < n; i += LANE) {
        float acc[LANE];
        size_t left = n - i < LANE ? n - i : LANE;
        if (left == LANE) {
            memcpy(acc, buffer(s, 0) + begin + i, sizeof(acc));
            for (int r = 1; r < s->comm.world; r++) {
                const float *b = buffer(s, r) + begin + i;
                for (int l = 0; l < LANE; l++) /* a constant count: becomes vector adds */
                    acc[l] += b[l];
            }
            memcpy(out + i, acc, sizeof(acc));
            continue;
        }
        for (size_t l = 0; l < left; l++) {
            acc[l] = buffer(s, 0)[begin + i + l];
            for (int r = 1; r < s->comm.world; r++)
                acc[l] += buffer(s, r)[begin + i + l];
            out[i + l] = acc[l];
        }
    }
}

/* First element of a rank's share of n. */
static size_t share(const struct shm *s, size_t n, int rank)
{
    return n * (size_t)rank / (size_t)s->comm.world;
}

/* n <= CHUNK */
static int reduce_chunk(struct shm *s, float *x, size_t n, struct err *e)
{
    memcpy(buffer(s, s->comm.rank), x, n * sizeof(*x));
    if (shm_arrive(s, e))
        return -1;
    if (n <= SMALL) {
        sum_ranks(s, x, 0, n);
    } else { /* each adds its share, in its own buffer, and reads the others */
        size_t mine = share(s, n, s->comm.rank), end = share(s, n, s->comm.rank + 1);
        sum_ranks(s, buffer(s, s->comm.rank) + mine, mine, end - mine);
        if (shm_arrive(s, e))
            return -1;
        for (int r = 0; r < s->comm.world; r++) {
            size_t first = share(s, n, r), last = share(s, n, r + 1);
            memcpy(x + first, buffer(s, r) + first, (last - first) * sizeof(*x));
        }
    }
    s->half ^= 1;
    return 0;
}

static int shm_all_reduce(struct comm *c, float *x, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i += CHUNK)
        if (reduce_chunk(shm_of(c), x + i, n - i < CHUNK ? n - i : CHUNK, e))
            return err_wrap(e, "all_reduce");
    return 0;
}

static int shm_all_gather(struct comm *c, const float *in, float *out, size_t n, struct err *e)
{
    struct shm *s = shm_of(c);
    for (size_t i = 0; i < n; i += CHUNK) {
        size_t m = n - i < CHUNK ? n - i : CHUNK;
        memcpy(buffer(s, c->rank), in + i, m * sizeof(*in));
        if (shm_arrive(s, e))
            return err_wrap(e, "all_gather");
        for (int r = 0; r < c->world; r++)
            memcpy(out + (size_t)r * n + i, buffer(s, r), m * sizeof(*out));
        s->half ^= 1;
    }
    return 0;
}

/* ---------------------------------------------------------------- messages */

static int no_peer(const struct shm *s, int rank, struct err *e)
{
    if (rank >= 0 && rank < s->comm.world && rank != s->comm.rank)
        return 0;
    return err_set(e, ERR_VALIDATION, "a message between rank %d and rank %d of %d", s->comm.rank,
                   rank, s->comm.world);
}

/* Piece number n is put into the box when the previous one has been taken. */
static int send_pieces(struct shm *s, int to, const float *x, size_t n, struct err *e)
{
    struct shm_pair *p = pair_of(s, s->comm.rank, to);
    const int64_t deadline_ms = clock_ms() + s->timeout_ms;
    unsigned put = atomic_load(&p->put.n);
    atomic_store(&p->floats, n);
    for (size_t i = 0; i < n; i += PIECE) {
        const size_t m = n - i < PIECE ? n - i : PIECE;
        if (wait_for(s, to, &p->taken, put - 1, deadline_ms, e))
            return -1;
        memcpy(box(s, s->comm.rank, put), x + i, m * sizeof(*x));
        count_to(&p->put, ++put);
    }
    return wait_for(s, to, &p->taken, put, deadline_ms, e);
}

static int receive_pieces(struct shm *s, int from, float *x, size_t n, struct err *e)
{
    struct shm_pair *p = pair_of(s, from, s->comm.rank);
    const int64_t deadline_ms = clock_ms() + s->timeout_ms;
    unsigned taken = atomic_load(&p->taken.n);
    for (size_t i = 0; i < n; i += PIECE) {
        const size_t m = n - i < PIECE ? n - i : PIECE;
        if (wait_for(s, from, &p->put, taken + 1, deadline_ms, e))
            return -1;
        const uint64_t sent = atomic_load(&p->floats);
        if (sent != n)
            return err_set(e, ERR_SYSTEM, "rank %d sends %llu numbers, this one waits for %zu",
                           s->numbers[from], (unsigned long long)sent, n);
        memcpy(x + i, box(s, from, taken), m * sizeof(*x));
        count_to(&p->taken, ++taken);
    }
    return 0;
}

static int shm_send(struct comm *c, int to, const float *x, size_t n, struct err *e)
{
    struct shm *s = shm_of(c);
    if (no_peer(s, to, e))
        return -1;
    if (s->broken.kind == ERR_NONE && !send_pieces(s, to, x, n, &s->broken))
        return 0;
    *e = s->broken;
    return err_wrap(e, "send");
}

static int shm_recv(struct comm *c, int from, float *x, size_t n, struct err *e)
{
    struct shm *s = shm_of(c);
    if (no_peer(s, from, e))
        return -1;
    if (s->broken.kind == ERR_NONE && !receive_pieces(s, from, x, n, &s->broken))
        return 0;
    *e = s->broken;
    return err_wrap(e, "receive");
}

static int shm_check(struct comm *c, struct err *e)
{
    const struct shm *s = shm_of(c);
    int gone = -1;
    for (int r = 0; r < c->world; r++) {
        struct shm_rank *other = &s->seg->ranks[r];
        if (r == c->rank)
            continue;
        if (atomic_load(&other->left))
            gone = gone < 0 ? r : gone;
        else if (!shm_rank_lives(other))
            return err_set(e, ERR_SYSTEM, "rank %d (pid %d) died", s->numbers[r],
                           atomic_load(&other->pid));
    }
    if (gone < 0)
        return 0;
    err_set(e, ERR_SYSTEM, "rank %d (pid %d) has left", s->numbers[gone],
            atomic_load(&s->seg->ranks[gone].pid));
    return COMM_LEFT + s->numbers[gone];
}

static void shm_close(struct comm *c)
{
    struct shm *s = shm_of(c);
    if (s->seg) {
        struct shm_rank *me = &s->seg->ranks[c->rank];
        if (!c->failed &&
            atomic_load(&me->pid) == getpid()) /* not if another process has its place */
            atomic_store(&me->left, true);
        munmap(s->seg, shm_segment_bytes(c->world));
    }
    free(s);
}

static struct comm *shm_split(struct comm *c, const struct comm_group *g, struct err *e)
{
    const struct shm *s = shm_of(c);
    int numbers[MAX_WORLD];
    for (int i = 0; i < g->n; i++)
        numbers[i] = s->numbers[g->ranks[i]];
    return comm_shm_group(g, numbers, s->timeout_ms, e);
}

static const struct comm_ops shm_ops = {shm_all_reduce, shm_all_gather, shm_barrier, shm_check,
                                        shm_close,      shm_send,       shm_recv,    shm_split};

static struct shm *shm_new(int rank, int world, int timeout_ms, struct err *e)
{
    if (world < 1 || world > MAX_WORLD || rank < 0 || rank >= world || timeout_ms < 0) {
        err_set(e, ERR_VALIDATION, "rank %d of %d: there may be 1 to %d ranks, from 0", rank, world,
                MAX_WORLD);
        return NULL;
    }
    struct shm *s = calloc(1, sizeof(*s));
    if (!s)
        return err_nomem(e), NULL;
    s->comm = (struct comm){&shm_ops, rank, world, 1, false, NULL};
    s->timeout_ms = timeout_ms;
    s->spin = spin_new(false);
    s->named = -1;
    for (int r = 0; r < world; r++)
        s->numbers[r] = r;
    return s;
}

/* Takes ownership of `s`. `what`: the group and the rank, for errors. */
static struct comm *meet_at(struct shm *s, const char *group, const char *what, struct err *e)
{
    char path[SHARD_GROUP_PATH];
    shard_group_path(path, group);
    if (!shm_meet(s, path, e))
        return &s->comm;
    err_wrap(e, "%s", what);
    shm_close(&s->comm);
    return NULL;
}

struct comm *comm_shm_open(const char *group, int rank, int world, int timeout_ms, struct err *e)
{
    char what[320];
    struct shm *s = shm_new(rank, world, timeout_ms, e);
    snprintf(what, sizeof(what), "shard group %s, rank %d", group, rank);
    return s ? meet_at(s, group, what, e) : NULL;
}

struct comm *comm_shm_group(const struct comm_group *g, const int *numbers, int timeout_ms,
                            struct err *e)
{
    char name[32], what[64];
    struct shm *s = shm_new(g->me, g->n, timeout_ms, e);
    if (!s)
        return NULL;
    memcpy(s->numbers, numbers, (size_t)g->n * sizeof(*numbers));
    s->comm.whole = g->whole;
    snprintf(name, sizeof(name), "part-%016" PRIx64, g->name);
    snprintf(what, sizeof(what), "a part of the ranks, rank %d of %d", g->me, g->n);
    return meet_at(s, name, what, e);
}
