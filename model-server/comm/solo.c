/* A world of one. */
#include "model-server/comm/comm.h"
#include <string.h>

static int reduce(struct comm *c, float *x, size_t n, struct err *e)
{
    return (void)c, (void)x, (void)n, (void)e, 0;
}

static int gather(struct comm *c, const float *in, float *out, size_t n, struct err *e)
{
    (void)c, (void)e;
    memmove(out, in, n * sizeof(*out));
    return 0;
}

static int barrier(struct comm *c, struct err *e) { return (void)c, (void)e, 0; }
static void no_close(struct comm *c) { (void)c; }

struct comm *comm_solo(void)
{
    static const struct comm_ops ops = {reduce, gather, barrier, no_close};
    static struct comm solo = {&ops, 0, 1}; /* never written */
    return &solo;
}
