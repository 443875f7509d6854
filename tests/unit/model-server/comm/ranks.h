/* ranks.h - forked processes as ranks, and the requirements on every communicator. The including
 * file defines join(). */
#ifndef TESTS_UNIT_MODEL_SERVER_COMM_RANKS_H
#define TESTS_UNIT_MODEL_SERVER_COMM_RANKS_H
#include "common/clock.h"
#include "model-server/comm/comm.h"
#include "tests/unit/test.h"
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 8 };
static char group[64];

/* The work of a rank; its exit status is the result, 0 is success. */
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

/* A communicator of this group, or NULL with a message on stderr. */
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

/* Many small sums in a row: they would reveal a barrier that opens early. */
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
        /* longer than the others spin */
        if (rank == i % world && i % 500 == 0)
            usleep(3000);
    }
    comm_close(c);
    return c ? 0 : 1;
}

/* ---------------------------------------------------------------- messages and parts */

/* Each rank receives a message of every size from the previous one and sends it on, so that the
 * last one has rank 0's message; between them all ranks compute sums. */
static int messages(int rank, int world)
{
    static const size_t sizes[] = {0, 1, 3, 1000, 32768, 32769, 65536, 200003};
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 20000, &e);
    float *x = malloc(200004 * sizeof(*x));
    for (size_t k = 0; c && k < 2 * sizeof(sizes) / sizeof(sizes[0]); k++) {
        const size_t n = sizes[k / 2];
        float one = 1;
        for (size_t i = 0; i < n; i++)
            x[i] = rank ? 0 : value((int)k, i);
        x[n] = 42;
        if ((rank && comm_recv(c, rank - 1, x, n, &e)) ||
            (rank + 1 < world && comm_send(c, rank + 1, x, n, &e)))
            return fprintf(stderr, "rank %d: %s\n", rank, e.msg), 2;
        for (size_t i = 0; i < n; i++)
            if (x[i] != value((int)k, i))
                return 3;
        if (x[n] != 42)
            return 4;
        if (k % 3 == 0 && (comm_all_reduce(c, &one, 1, &e) || one != (float)world))
            return 5;
    }
    free(x);
    comm_close(c);
    return c ? 0 : 1;
}

/* The last rank sends to all others at once, as in a pipeline. */
static int from_the_last(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 20000, &e);
    for (int i = 0; c && i < 300; i++) {
        float x[2] = {(float)i, (float)(i + 1)}, y[2] = {0};
        for (int r = 0; rank == world - 1 && r < rank; r++)
            if (comm_send(c, r, x, 2, &e))
                return 2;
        if (rank < world - 1 && (comm_recv(c, world - 1, y, 2, &e) || memcmp(x, y, sizeof(x)) != 0))
            return fprintf(stderr, "rank %d: %s\n", rank, e.msg), 3;
    }
    comm_close(c);
    return c ? 0 : 1;
}

/* A grid of `world / across` rows: sums within rows, messages along columns, sums over all. */
static int grid(int rank, int world, int across)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 20000, &e), *row, *column;
    if (!c)
        return 1;
    if (!(row = comm_split(c, rank / across, &e)) || !(column = comm_split(c, rank % across, &e)))
        return fprintf(stderr, "rank %d: %s\n", rank, e.msg), 2;
    const int rows = world / across, me = rank / across, first = me * across;
    if (row->world != across || row->rank != rank % across || column->world != rows ||
        column->rank != me)
        return 3;
    for (int round = 0; round < 40; round++) {
        float x[5], all = 1;
        for (size_t i = 0; i < 5; i++)
            x[i] = value(rank + round, i);
        if (comm_all_reduce(row, x, 5, &e))
            return fprintf(stderr, "rank %d: %s\n", rank, e.msg), 4;
        for (size_t i = 0; i < 5; i++) {
            float want = value(first + round, i);
            for (int r = 1; r < across; r++)
                want += value(first + r + round, i);
            if (x[i] != want)
                return 5;
        }
        float y[5] = {0};
        if ((me && comm_recv(column, me - 1, y, 5, &e)) ||
            (me + 1 < rows && comm_send(column, me + 1, x, 5, &e)))
            return fprintf(stderr, "rank %d: %s\n", rank, e.msg), 6;
        for (size_t i = 0; me && i < 5; i++) {
            float want = value(first - across + round, i);
            for (int r = 1; r < across; r++)
                want += value(first - across + r + round, i);
            if (y[i] != want)
                return 7;
        }
        if (round % 5 == 0 && (comm_all_reduce(c, &all, 1, &e) || all != (float)world))
            return 8;
    }
    if (c->ops->barrier(c, &e))
        return 9;
    comm_close(column);
    comm_close(row);
    comm_close(c);
    return 0;
}
static int grid_of_two(int rank, int world) { return grid(rank, world, 2); }
static int grid_of_one(int rank, int world) { return grid(rank, world, 1); }
static int grid_of_all(int rank, int world) { return grid(rank, world, world); }

/* Rank 1 ends while rank 0 waits for a message of rank 2, which waits for rank 1: all errors name
 * rank 1, by its number in the whole group. */
static int one_dies_apart(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 30000, &e), *part;
    float x = 1;
    if (!c || !(part = comm_split(c, rank > 0, &e)))
        return 1;
    if (rank == 1)
        raise(SIGKILL);
    const int64_t t = clock_ms();
    const int rc = rank ? comm_all_reduce(part, &x, 1, &e) : comm_recv(c, 2, &x, 1, &e);
    if (!rc || e.kind != ERR_SYSTEM || clock_ms() - t > 5000)
        return 2;
    if (!strstr(e.msg, "rank 1 (") || !strstr(e.msg, "died"))
        return fprintf(stderr, "rank %d: %s\n", rank, e.msg), 3;
    usleep(1000000); /* so that the first to close does not count as a second loss */
    comm_close(part);
    comm_close(c);
    return 0;
}

/* Rank 1 does not join a sum in time. */
static int one_is_late(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, rank ? 30000 : 1000, &e);
    float x = 1;
    if (!c)
        return 1;
    if (rank) {
        usleep(2500000);
        return 0;
    }
    const int64_t t = clock_ms();
    if (!comm_all_reduce(c, &x, 1, &e))
        return 2;
    if (!strstr(e.msg, "all_reduce: rank 1") || !strstr(e.msg, "did not arrive within 1 s"))
        return fprintf(stderr, "%s\n", e.msg), 3;
    return clock_ms() - t > 10000 ? 4 : 0;
}

/* A send without a receiver, and a receive without a sender. */
static int nobody_answers(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, rank ? 30000 : 1000, &e);
    float x = 1;
    if (!c)
        return 1;
    if (rank) {
        usleep(2500000);
        return 0;
    }
    const int64_t t = clock_ms();
    if (!comm_recv(c, 1, &x, 1, &e))
        return 2;
    if (!strstr(e.msg, "receive: rank 1") || !strstr(e.msg, "did not arrive within 1 s"))
        return fprintf(stderr, "%s\n", e.msg), 3;
    return clock_ms() - t > 10000 ? 4 : 0;
}

/* Sender and receiver use different message sizes. */
static int sizes_differ(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 3000, &e);
    float x[4] = {1};
    if (!c)
        return 1;
    int rc = rank ? comm_send(c, 0, x, 4, &e),
        0         : !comm_recv(c, 1, x, 3, &e) || !strstr(e.msg, "rank 1 ");
    usleep(200000);
    comm_close(c);
    return rc;
}
#endif
