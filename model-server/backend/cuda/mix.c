/* mix.c - records the operation of mixed residual streams: mix.cu. */
#include "model-server/backend/cuda/cuda.h"
#include <assert.h>

void cuda_mix(struct device *d, float *x, uint32_t rows, uint32_t n, const struct mix *p)
{
    struct streams_args args = {.x = x,
                                .streams = p->streams,
                                .factors = p->factors,
                                .scale = p->scale,
                                .base = p->base,
                                .rows = rows,
                                .n = n,
                                .kind = p->kind,
                                .streams_n = p->n,
                                .rounds = p->rounds,
                                .count = mix_factors(p),
                                .eps = p->eps,
                                .floor = p->floor,
                                .magnitude = p->magnitude,
                                .result_floor = p->result_floor};
    assert(p->n && p->n <= MIX_MOST);
    if (rows)
        RECORD(d, streams_launch, args);
}
