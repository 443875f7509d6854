/* comm_solo.c - a world of one. */
#include "model-server/comm/comm.h"
#include <string.h>

static int solo_all_reduce(struct comm *c, float *x, size_t n, struct err *e)
{
    (void)c, (void)x, (void)n, (void)e;
    return 0;
}

static int solo_all_gather(struct comm *c, const float *in, float *out, size_t n, struct err *e)
{
    (void)c, (void)e;
    if (out != in && n)
        memmove(out, in, n * sizeof(*out));
    return 0;
}

static int solo_barrier(struct comm *c, struct err *e)
{
    (void)c, (void)e;
    return 0;
}

static int solo_check(struct comm *c, struct err *e)
{
    (void)c, (void)e;
    return 0;
}

static void solo_close(struct comm *c) { (void)c; }

/* There is no other rank. */
static int solo_send(struct comm *c, int to, const float *x, size_t n, struct err *e)
{
    (void)c, (void)x, (void)n;
    return err_set(e, ERR_VALIDATION, "send to rank %d of a world of one", to);
}

static int solo_recv(struct comm *c, int from, float *x, size_t n, struct err *e)
{
    (void)c, (void)x, (void)n;
    return err_set(e, ERR_VALIDATION, "receive from rank %d of a world of one", from);
}

static struct comm *solo_split(struct comm *c, const struct comm_group *g, struct err *e)
{
    (void)g, (void)e;
    return c;
}

struct comm *comm_solo(void)
{
    static const struct comm_ops ops = {solo_all_reduce, solo_all_gather, solo_barrier, solo_check,
                                        solo_close,      solo_send,       solo_recv,    solo_split};
    static struct comm solo = {&ops, 0, 1, 1, false, NULL}; /* never written */
    return &solo;
}
