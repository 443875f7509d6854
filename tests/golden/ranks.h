/* ranks.h - compares every rank of a tensor-parallel model with a golden file: one thread per
 * rank with its own device, over shared memory. */
#ifndef TESTS_GOLDEN_RANKS_H
#define TESTS_GOLDEN_RANKS_H
#include "tests/golden/golden.h"
#include <pthread.h>
#include <unistd.h>

enum { MOST_RANKS = 4 };

struct rank_run {
    pthread_t thread;
    const struct bench_setup *setup;
    const struct golden *golden;
    const char *group;
    int rank, world, rc;
    struct verdict verdict;
    struct err e;
};

static void *rank_main(void *arg)
{
    struct rank_run *r = arg;
    struct bench b = {0};
    struct comm *c =
        r->world > 1 ? comm_shm_open(r->group, r->rank, r->world, 20000, &r->e) : comm_solo();
    r->rc = c ? bench_open_as(&b, r->setup, c, 1, MAX_SEQ_BLOCKS, &r->e) : -1;
    if (r->rc == 0)
        r->rc = judge(&b, r->golden, &r->verdict, &r->e);
    if (c) {
        bench_close(&b);
        comm_close(c);
    }
    return NULL;
}

/* Results of `world` ranks, in out[0 .. world); the test fails if a rank could not run. */
static void judge_ranks(const struct bench_setup *setup, const struct golden *g, int world,
                        struct verdict out[MOST_RANKS])
{
    static struct rank_run ranks[MOST_RANKS];
    char group[64];
    snprintf(group, sizeof(group), "golden-%d-%d", (int)getpid(), world);
    for (int i = 0; i < world; i++) {
        ranks[i] = (struct rank_run){
            .setup = setup, .golden = g, .group = group, .rank = i, .world = world};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    }
    for (int i = 0; i < world; i++)
        assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
    for (int i = 0; i < world; i++) {
        if (ranks[i].rc)
            fail_msg("%s, rank %d of %d: %s", setup->dir, i, world, ranks[i].e.msg);
        out[i] = ranks[i].verdict;
    }
}
#endif
