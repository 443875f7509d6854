/* comm_shm.c - collectives between processes of one host.
 *
 * One segment holds a line per rank and two buffers per rank. A barrier is a counter per rank: its
 * own says how many the rank has reached, and it waits until all others say the same. Data goes
 * through the buffers in chunks that use the two halves in turn: the rank that writes half h for
 * chunk i + 2 has passed the barrier of chunk i + 1, and by then every rank has finished reading
 * chunk i.
 *
 * A message goes through the sender's box, which has two halves as well. Two counters for each pair
 * of ranks say how many pieces have been put there and how many have been taken. A message is over
 * when the receiver has taken all of it, so that the box is free for another receiver.
 *
 * Meeting. Rank 0 makes the segment complete, without a name, and then links it under the group's
 * name: a half-made one is never seen, and nothing is left if it dies before. The others look
 * for the name. A segment whose rank 0 is dead is left over from a group that failed: rank 0
 * replaces it, the others wait for the replacement.
 *
 * Waiting. Spin briefly, then sleep on the other rank's counter (a futex) and look every POLL_MS
 * whether it still lives: a process is its pid and its start time, as a pid alone may be reused. */
#include "common/clock.h"
#include "common/shard_group.h"
#include "model-server/comm/comm_group.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SHM_DIR   SHARD_GROUP_DIR
#define SHM_MAGIC UINT64_C(0x324d48534d4d4f43) /* "COMMSHM2" */

enum { MAX_WORLD = COMM_MOST_RANKS };
enum { CHUNK = 64 * 1024 }; /* floats in a half buffer */
enum { PIECE = 32 * 1024 }; /* floats in half a box */
enum { SMALL = 16 * 1024 }; /* up to here every rank adds up everything: one barrier less */
enum { SPINS = 2000 };      /* about 30 us */
enum { POLL_MS = 50 };
enum { SWEEP_AGE_S = 600 };

struct shm_count {
    _Alignas(64) atomic_uint n; /* how often something has happened */
    atomic_uint waiters;        /* who sleep on `n` */
};
struct shm_rank {
    struct shm_count arrived; /* barriers reached */
    atomic_int pid;           /* 0: not here yet */
    atomic_bool left;         /* closed in good order */
    _Atomic uint64_t start;   /* of the process, 0: not known yet */
};
/* Pieces from one rank to another. */
struct shm_pair {
    struct shm_count put, taken;
    _Atomic uint64_t floats; /* of the message at hand */
};

struct segment {
    uint64_t magic;
    uint32_t world;
    struct shm_rank ranks[MAX_WORLD];
    /* [world][world] pairs, by sender; [world][2][CHUNK] buffers; [world][2][PIECE] boxes */
    _Alignas(64) char data[];
};

struct shm {
    struct comm comm;
    struct segment *seg;
    int numbers[MAX_WORLD]; /* what the ranks are called in messages */
    unsigned reached;       /* barriers */
    unsigned half;          /* buffer of the next chunk */
    int timeout_ms;
    int named; /* rank 0, while its segment has a name: a descriptor that locks it; else -1 */
    struct err
        broken; /* the first failure: the ranks no longer agree, every later call repeats it */
};

static size_t segment_bytes(int world)
{
    const size_t n = (size_t)world;
    return sizeof(struct segment) + n * n * sizeof(struct shm_pair) +
           n * 2 * (CHUNK + PIECE) * sizeof(float);
}

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

/* Where a rank puts piece number n for another. */
static float *box(const struct shm *s, int rank, unsigned n)
{
    return buffers(s) + (size_t)s->comm.world * 2 * CHUNK + ((size_t)rank * 2 + n % 2) * PIECE;
}

/* ---------------------------------------------------------------- liveness */

/* Start time of a process in clock ticks since boot; 0: there is none, or it is a zombie. */
static uint64_t process_start(int pid)
{
    char path[32], line[1024], state = 'X';
    uint64_t start = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    size_t n = fread(line, 1, sizeof(line) - 1, f);
    fclose(f);
    line[n] = '\0';
    char *after = strrchr(line, ')'); /* the name before it may hold anything */
    if (!after || sscanf(after,
                         ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d"
                         " %*d %*d %" SCNu64,
                         &state, &start) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : start;
}

/* Not known to be dead. */
static bool rank_lives(const struct shm_rank *r)
{
    int pid = atomic_load(&r->pid);
    uint64_t start = atomic_load(&r->start);
    return !pid || !start || process_start(pid) == start;
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

/* Of a rank that is waited for, and of all others that have died: one of these may be why. */
static int check_wait(struct shm *s, int rank, int64_t deadline_ms, struct err *e)
{
    struct comm *all = s->comm.whole ? s->comm.whole : &s->comm;
    struct shm_rank *r = &s->seg->ranks[rank];
    struct err dead = ERR_INIT;
    const int pid = atomic_load(&r->pid), number = s->numbers[rank];
    const bool lives = rank_lives(r), left = atomic_load(&r->left); /* who ends has left before */
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

/* Until `rank` has counted to n. */
static int wait_for(struct shm *s, int rank, struct shm_count *c, unsigned n, int64_t deadline_ms,
                    struct err *e)
{
    unsigned seen;
    for (int i = 0; i < SPINS; i++) {
        if (has_reached(c, n, &seen))
            return 0;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    int rc = 0;
    atomic_fetch_add(&c->waiters, 1);
    while (!rc && !has_reached(c, n, &seen)) {
        futex_wait_ms(&c->n, seen, POLL_MS);
        if (!has_reached(c, n, &seen))
            rc = check_wait(s, rank, deadline_ms, e);
    }
    atomic_fetch_sub(&c->waiters, 1);
    return rc;
}

static void count_to(struct shm_count *c, unsigned n)
{
    atomic_store(&c->n, n);
    if (atomic_load(&c->waiters))
        syscall(SYS_futex, &c->n, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int barrier(struct shm *s, struct err *e)
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

static int shm_barrier(struct comm *c, struct err *e) { return barrier(shm_of(c), e); }

/* ---------------------------------------------------------------- collectives */

/* out = the sum over ranks, in their order, of elements [begin, begin + n) of their buffers. A
 * buffer of this rank may be `out`: an element is read before it is written. */
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
    if (barrier(s, e))
        return -1;
    if (n <= SMALL) {
        sum_ranks(s, x, 0, n);
    } else { /* each adds up its share, in its own buffer, and takes the others' */
        size_t mine = share(s, n, s->comm.rank), end = share(s, n, s->comm.rank + 1);
        sum_ranks(s, buffer(s, s->comm.rank) + mine, mine, end - mine);
        if (barrier(s, e))
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
        if (barrier(s, e))
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

/* Piece number n is in the box, and the one before it has been taken. */
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
        else if (!rank_lives(other))
            return err_set(e, ERR_SYSTEM, "rank %d (pid %d) died", s->numbers[r],
                           atomic_load(&other->pid));
    }
    if (gone < 0)
        return 0;
    err_set(e, ERR_SYSTEM, "rank %d (pid %d) has left", s->numbers[gone],
            atomic_load(&s->seg->ranks[gone].pid));
    return COMM_LEFT;
}

static void shm_close(struct comm *c)
{
    struct shm *s = shm_of(c);
    if (s->seg) {
        struct shm_rank *me = &s->seg->ranks[c->rank];
        if (atomic_load(&me->pid) == getpid()) /* not if the place was another's */
            atomic_store(&me->left, true);
        munmap(s->seg, segment_bytes(c->world));
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

/* ---------------------------------------------------------------- meeting */

static void unname(struct shm *s)
{
    if (s->named >= 0)
        close(s->named);
    s->named = -1;
}

static struct segment *map_segment(int fd, int world)
{
    void *p = mmap(NULL, segment_bytes(world), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Takes this rank's place. The pid is first: it decides between two that claim to be the same rank.
 */
static int take_place(struct segment *seg, int rank, struct err *e)
{
    int none = 0;
    struct shm_rank *r = &seg->ranks[rank];
    if (!atomic_compare_exchange_strong(&r->pid, &none, getpid()))
        return err_set(e, ERR_VALIDATION, "rank %d is taken by pid %d", rank, none);
    atomic_store(&r->start, process_start(getpid()));
    return 0;
}

/* An existing segment under the group's name: 0 mapped, 1 nothing to be had (yet), -1 error. */
static int open_segment(const char *path, int world, struct segment **out, struct err *e)
{
    struct stat st;
    int rc = 1, fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? 1 : err_sys(e, "open %s", path);
    struct segment *head = NULL;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        st.st_size < (off_t)segment_bytes(1)) {
        rc = err_set(e, ERR_SYSTEM, "%s is not ours", path);
    } else if (!(head = map_segment(fd, 1))) {
        rc = err_sys(e, "map %s", path);
    } else if (head->magic != SHM_MAGIC) {
        rc = err_set(e, ERR_SYSTEM, "%s is of another version", path);
    } else if (rank_lives(&head->ranks[0])) {
        if (head->world != (uint32_t)world || st.st_size != (off_t)segment_bytes(world))
            rc = err_set(e, ERR_VALIDATION, "rank 0 says there are %u ranks, this one says %d",
                         head->world, world);
        else if (!(*out = map_segment(fd, world)))
            rc = err_sys(e, "map %s", path);
        else
            rc = 0;
    }
    if (head)
        munmap(head, segment_bytes(1));
    close(fd);
    return rc;
}

static int join_segment(const char *path, int world, int64_t deadline_ms, struct shm *s,
                        struct err *e)
{
    for (int rc; (rc = open_segment(path, world, &s->seg, e)) != 0; usleep(2000)) {
        if (rc < 0)
            return -1;
        if (clock_ms() >= deadline_ms)
            return err_set(e, ERR_SYSTEM, "rank 0 did not arrive within %g s",
                           s->timeout_ms / 1000.0);
    }
    return take_place(s->seg, s->comm.rank, e);
}

/* Link the finished segment under its name, in place of one whose group is dead. */
static int publish(int fd, const char *path, int world, struct err *e)
{
    char self[40];
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    for (int tries = 0; tries < 10; tries++) {
        struct segment *old = NULL;
        struct err ignored = ERR_INIT;
        if (!linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
            return 0;
        if (errno != EEXIST)
            return err_sys(e, "create %s", path);
        int rc = open_segment(path, world, &old, &ignored);
        if (old)
            munmap(old, segment_bytes(world));
        if (rc == 0 || ignored.kind == ERR_VALIDATION) /* its rank 0 lives */
            return err_set(e, ERR_VALIDATION, "another rank 0 of this group is running");
        if (unlink(path) && errno != ENOENT)
            return err_sys(e, "remove %s", path);
    }
    return err_set(e, ERR_SYSTEM, "%s comes back each time it is removed", path);
}

/* Removes what groups have left that were killed while they met: rank 0 of a group that meets holds
 * a lock on its file. Only old files, as a shard of an older version holds none. */
static void sweep(void)
{
    DIR *d = opendir(SHM_DIR);
    const size_t n = strlen(SHARD_GROUP_PREFIX);
    for (const struct dirent *x;
         d && (x = readdir(d));) { // NOLINT(concurrency-mt-unsafe): own stream
        struct stat held, named;
        const char *name = x->d_name;
        if (strncmp(name, SHARD_GROUP_PREFIX, n) != 0)
            continue;
        int fd = openat(dirfd(d), name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && fstat(fd, &held) == 0 && S_ISREG(held.st_mode) && held.st_uid == geteuid() &&
            held.st_mtime < time(NULL) - SWEEP_AGE_S && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
            fstatat(dirfd(d), name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            named.st_ino == held.st_ino)
            unlinkat(dirfd(d), name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
}

static int create_segment(const char *path, int world, struct shm *s, struct err *e)
{
    int fd = open(SHM_DIR, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, "create a segment in " SHM_DIR);
    int rc = posix_fallocate(fd, 0, (off_t)segment_bytes(world)); /* or a write may be a SIGBUS */
    if (rc) {
        errno = rc;
        rc = err_sys(e, "%zu KiB in " SHM_DIR " (docker run --shm-size)",
                     segment_bytes(world) / 1024);
    } else if (!(s->seg = map_segment(fd, world)) || flock(fd, LOCK_EX)) {
        rc = err_sys(e, "map a segment in " SHM_DIR);
    } else {
        sweep();
        s->seg->magic = SHM_MAGIC;
        s->seg->world = (uint32_t)world;
        rc = take_place(s->seg, 0, e) || publish(fd, path, world, e) ? -1 : 0;
    }
    s->named = fd;
    return rc;
}

/* All ranks are here and know it; none goes on, perhaps to fail, before that. */
static int meet(struct shm *s, const char *path, struct err *e)
{
    int rc = s->comm.rank ? join_segment(path, s->comm.world, clock_ms() + s->timeout_ms, s, e)
                          : create_segment(path, s->comm.world, s, e);
    if (!rc) {
        rc = barrier(s, e);
        if (!s->comm.rank)
            unlink(path);
        unname(s);
        rc = rc ? rc : barrier(s, e);
    }
    return rc;
}

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
    s->named = -1;
    for (int r = 0; r < world; r++)
        s->numbers[r] = r;
    return s;
}

struct comm *comm_shm_open(const char *group, int rank, int world, int timeout_ms, struct err *e)
{
    char path[SHARD_GROUP_PATH];
    struct shm *s = shm_new(rank, world, timeout_ms, e);
    if (!s)
        return NULL;
    shard_group_path(path, group);
    if (!meet(s, path, e))
        return &s->comm;
    err_wrap(e, "shard group %s, rank %d", group, rank);
    unname(s);
    shm_close(&s->comm);
    return NULL;
}

struct comm *comm_shm_group(const struct comm_group *g, const int *numbers, int timeout_ms,
                            struct err *e)
{
    char name[32], path[SHARD_GROUP_PATH];
    struct shm *s = shm_new(g->me, g->n, timeout_ms, e);
    if (!s)
        return NULL;
    memcpy(s->numbers, numbers, (size_t)g->n * sizeof(*numbers));
    s->comm.whole = g->whole;
    snprintf(name, sizeof(name), "part-%016" PRIx64, g->name);
    shard_group_path(path, name);
    if (!meet(s, path, e))
        return &s->comm;
    err_wrap(e, "a part of the ranks, rank %d of %d", g->me, g->n);
    unname(s);
    shm_close(&s->comm);
    return NULL;
}
