/* nccl_none.c - in the place of nccl.c where the build had no nccl.h: ranks exchange through the
 * host. */
#include "model-server/backend/cuda/cuda.h"

int nccl_open(struct device *d, struct comm *host, struct comm **out, struct err *e)
{
    (void)d, (void)host, (void)e;
    *out = NULL;
    return 0;
}
