/* nccl_none.c - replaces nccl.c in builds without nccl.h: no rank reports NCCL, and the transfers
 * are never called. */
#include "model-server/backend/cuda/group.h"

uint32_t nccl_version(void) { return 0; }
int nccl_open(struct group *g, struct err *e)
{
    (void)g, (void)e;
    return 0;
}
int nccl_state(struct nccl *n, const char **why)
{
    (void)n, (void)why;
    return 0;
}
void nccl_gather(struct nccl *n, const float *in, float *out, size_t count)
{
    (void)n, (void)in, (void)out, (void)count;
}
void nccl_scatter(struct nccl *n, const float *x, float *out, size_t count)
{
    (void)n, (void)x, (void)out, (void)count;
}
int nccl_send(struct nccl *n, int to, const float *x, size_t count, struct err *e)
{
    (void)n, (void)to, (void)x, (void)count, (void)e;
    return -1;
}
int nccl_recv(struct nccl *n, int from, float *x, size_t count, struct err *e)
{
    (void)n, (void)from, (void)x, (void)count, (void)e;
    return -1;
}
void nccl_abort(struct nccl *n) { (void)n; }
void nccl_close(struct nccl *n) { (void)n; }
