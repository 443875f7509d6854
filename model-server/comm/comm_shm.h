/* comm_shm.h - the shared segment of ranks of one host. Private to comm_shm*.c. */
#ifndef MODEL_SERVER_COMM_COMM_SHM_H
#define MODEL_SERVER_COMM_COMM_SHM_H
#include "common/thread/spin.h"
#include "model-server/comm/comm_group.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { MAX_WORLD = COMM_MOST_RANKS };
enum { CHUNK = 64 * 1024 }; /* floats in a half buffer */
enum { PIECE = 32 * 1024 }; /* floats in half a box */

struct shm_count {
    _Alignas(64) atomic_uint n; /* number of events */
    atomic_uint waiters;        /* who sleep on `n` */
};
struct shm_rank {
    struct shm_count arrived; /* barriers reached */
    atomic_int pid;           /* 0: not here yet */
    atomic_bool left;         /* closed in good order */
    _Atomic uint64_t start;   /* start time of the process, 0: not known yet */
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
    int numbers[MAX_WORLD]; /* rank numbers in messages */
    unsigned reached;       /* barriers */
    unsigned half;          /* buffer of the next chunk */
    int timeout_ms;
    struct spin spin; /* of its thread's waits */
    int named;        /* rank 0, while its segment has a name: descriptor that locks it; else -1 */
    /* the first failure: the ranks are out of step, and every later call returns it */
    struct err broken;
};

/* Size of the segment that this many ranks share. */
size_t shm_segment_bytes(int world);
/* False: the process of a rank that has joined is known to be dead. */
bool shm_rank_lives(const struct shm_rank *r);

/* Maps the segment at `path` into s->seg and returns when all ranks have mapped it; then its name
 * is removed. Rank 0 creates it, the others wait for it until s->timeout_ms. After an error s->seg
 * may be set. */
int shm_meet(struct shm *s, const char *path, struct err *e);
/* Returns when all ranks have called it. */
int shm_arrive(struct shm *s, struct err *e);
#endif
