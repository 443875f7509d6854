/* stream.c - how a product of few rows is run (linear_stream.cu): where its rows are, and how many
 * of its weights are in flight. */
#include "model-server/backend/cuda/cuda.h"

/* More rows are rounded to 16 bits once, instead of by each block. */
enum { ROUND_ROWS = 2 };

/* Blocks of a multiprocessor, and slots of a warp's ring: the best first. */
static const struct {
    uint32_t blocks, slots;
} ways[] = {{2, STREAM_SLOTS_MOST}, {2, STREAM_SLOTS}, {2, STREAM_SLOTS_FEW},
            {1, STREAM_SLOTS_MOST}, {1, STREAM_SLOTS}, {1, STREAM_SLOTS_FEW}};

static bool place(const struct device *d, struct stream_args *s)
{
    const size_t reserved = 1 << 10; /* of each block, by CUDA */
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        s->slots = ways[i].slots;
        s->l.blocks = ways[i].blocks * (uint32_t)d->sms;
        const size_t bytes = stream_shared_bytes(s);
        if (bytes <= d->shared_block && bytes + reserved <= d->shared_sm / ways[i].blocks)
            return true;
    }
    return false;
}

/* Each block reads all rows: more of them take longer than they save (by estimate). */
enum { EXPERTS_X_BYTES = 64 << 10 };

bool stream_experts_fit(const struct device *d, const struct stream_args *s)
{
    struct stream_args with = *s;
    with.shared_x = true;
    return s->l.w.quant != QUANT_W8A8 && d->features & CUDA_X_SHARED &&
           stream_x_bytes(&s->l) <= EXPERTS_X_BYTES && place(d, &with);
}

void stream_experts(struct device *d, struct stream_args *s)
{
    s->shared_x = stream_experts_fit(d, s);
    place(d, s);
    RECORD(d, linear_stream_launch, *s);
}

bool stream_linear(struct device *d, struct linear_args *a, bool must)
{
    struct stream_args s = {.l = *a};
    if (a->table) {
        stream_experts(d, &s);
        return true;
    }
    fuse_norm(d, &s);
    s.shared_x = !s.norm.y && a->w.quant != QUANT_W8A8 && d->features & CUDA_X_SHARED;
    if (!place(d, &s)) {
        if (!must)
            return false;
        s.shared_x = false;
        place(d, &s);
    }
    if (s.shared_x && a->rows > ROUND_ROWS) {
        cuda_narrow(d, &s.l, NARROW_PLAIN);
        if (!s.l.narrow)
            return true;
    }
    RECORD(d, linear_stream_launch, s);
    return true;
}
