#include "model-server/backend/host/round.h"

void rounding_init(struct rounding *r, unsigned features)
{
#define X(OP, variant, needs)                                                                      \
    if ((features & (needs)) == (needs))                                                           \
        r->OP = k_##OP##_##variant;
    ROUND_VARIANTS(X)
#undef X
}
