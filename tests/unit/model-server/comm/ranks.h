/* ranks.h - forked processes as ranks, and what every communicator must do for them. Whoever
 * includes this defines join(). */
#ifndef TESTS_UNIT_MODEL_SERVER_COMM_RANKS_H
#define TESTS_UNIT_MODEL_SERVER_COMM_RANKS_H
#include "common/clock.h"
#include "model-server/comm/comm.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka wants these above
#include <cmocka.h>

enum { MAX_RANKS = 8 };
static char group[64];

/* What a rank does; its exit status is the result, 0 is good. */
typedef int rank_fn(int rank, int world);

static void ranks_start(rank_fn *fn, int world, pid_t *pids)
{
    static int n;
    snprintf(group, sizeof(group), "test/comm %d.%d", (int)getpid(), n++);
    for (int r = 0; r < world; r++)
        if (!(pids[r] = fork())) {
            alarm(60);
            _exit(fn(r, world));
        }
}

static void ranks_end(int world, const pid_t *pids, int *status)
{
    for (int r = 0; r < world; r++) {
        int st = 0;
        assert_int_equal(waitpid(pids[r], &st, 0), pids[r]);
        status[r] = WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
    }
}

static void run_ranks(rank_fn *fn, int world)
{
    pid_t pids[MAX_RANKS];
    int status[MAX_RANKS];
    ranks_start(fn, world, pids);
    ranks_end(world, pids, status);
    for (int r = 0; r < world; r++)
        if (status[r])
            fail_msg("rank %d of %d: status %d", r, world, status[r]);
}

/* A communicator of this group, or NULL with words on stderr. */
static struct comm *join(int rank, int world, int timeout_ms, struct err *e);

/* A value whose sum over ranks depends on the order of addition. */
static float value(int rank, size_t i)
{
    uint32_t h = ((uint32_t)i * 2654435761u) ^ ((uint32_t)rank * 0x9e3779b9u);
    h ^= h >> 15, h *= 0x85ebca6bu, h ^= h >> 13;
    return ((float)(h & 0xffff) - 32768.0f) * (float)(1 << (h >> 28));
}

static int sums(int rank, int world)
{
    static const size_t sizes[] = {1, 15, 16, 17, 1000, 16384, 16385, 65536, 65537, 200003};
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 20000, &e);
    if (!c)
        return 1;
    for (int round = 0; round < 20; round++) {
        size_t n = sizes[round % 10];
        float *x = malloc((n + 1) * sizeof(*x));
        for (size_t i = 0; i < n; i++)
            x[i] = value(rank + round, i);
        x[n] = 42;
        if (comm_all_reduce(c, x, n, &e))
            return 2;
        for (size_t i = 0; i < n; i++) {
            float want = value(round, i);
            for (int r = 1; r < world; r++)
                want += value(r + round, i);
            if (x[i] != want)
                return 3;
        }
        if (x[n] != 42)
            return 4;
        free(x);
    }
    comm_close(c);
    return 0;
}

static int gathers(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 20000, &e);
    for (size_t n = 1; c && n < 200000; n = n * 5 + 3) {
        float *in = malloc(n * sizeof(*in)), *out = malloc(n * (size_t)world * sizeof(*out));
        for (size_t i = 0; i < n; i++)
            in[i] = value(rank, i);
        if (c->ops->all_gather(c, in, out, n, &e) || c->ops->barrier(c, &e))
            return 2;
        for (size_t i = 0; i < n * (size_t)world; i++)
            if (out[i] != value((int)(i / n), i % n))
                return 3;
        free(in), free(out);
    }
    comm_close(c);
    return c ? 0 : 1;
}

/* Many small sums in a row: where a barrier that lets somebody through early would show. */
static int hurry(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 20000, &e);
    for (int i = 0; c && i < 3000; i++) {
        float x[3] = {(float)(rank + i), 1, (float)i};
        if (comm_all_reduce(c, x, 3, &e))
            return 2;
        if (x[0] != (float)(world * i + world * (world - 1) / 2) || x[1] != (float)world)
            return 3;
        if (rank == i % world && i % 500 == 0)
            usleep(3000); /* longer than the others spin */
    }
    comm_close(c);
    return c ? 0 : 1;
}
#endif
