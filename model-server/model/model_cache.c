/* The caches of a model: their sizes, copies within them, swap space, export and import of
 * blocks. See model.h. */
#include "common/clock.h"
#include "model-server/model/kv_parts.h"
#include "model-server/model/model_impl.h"
#include <string.h>

void model_swap_free(struct model *m)
{
    if (m->swap)
        m->d.ops->host_free(m->d.dev, m->swap, m->swap_bytes);
    m->swap = NULL;
    m->swap_bytes = 0;
}

enum kv_dtype model_kv_dtype(const struct model *m)
{
    const bool exact = m->d.encodes && !m->d.ops->draw;
    if (m->info.dtype == DT_F32 || exact)
        return KV_F32;
    if (m->d.encodes && m->d.spec.both_ways)
        return decoder_encode_kv(&m->d);
    return m->info.dtype == DT_F16 ? KV_F16 : KV_BF16;
}

uint64_t model_kv_block_bytes(const struct model *m, uint32_t block_size, enum kv_dtype kv_dtype)
{
    return kv_part_bytes(&m->d, KV_ALL, block_size, kv_dtype);
}

struct kv_apart model_kv_apart(const struct model *m, uint32_t block_size, enum kv_dtype kv_dtype)
{
    if (!m->info.kv_window)
        return (struct kv_apart){.blocks = kv_part_bytes(&m->d, KV_ALL, block_size, kv_dtype)};
    return (struct kv_apart){.blocks =
                                 kv_part_bytes(&m->d, KV_WITHOUT_WINDOWS, block_size, kv_dtype),
                             .windows = kv_part_bytes(&m->d, KV_WINDOWS, block_size, kv_dtype)};
}

int model_kv_resize(struct model *m, uint32_t n_blocks, uint32_t block_size, enum kv_dtype kv_dtype,
                    struct err *e)
{
    return model_kv_resize_apart(m, n_blocks, 0, block_size, kv_dtype, e);
}

int model_kv_resize_apart(struct model *m, uint32_t n_blocks, uint32_t n_windows,
                          uint32_t block_size, enum kv_dtype kv_dtype, struct err *e)
{
    struct decoder *d = &m->d;
    const bool apart = n_windows && m->info.kv_window;
    const enum kv_part part = apart ? KV_WITHOUT_WINDOWS : KV_ALL;
    kv_parts_free(d); /* first: memory may not suffice for both */
    kv_parts_number(d, apart);
    m->block_bytes = kv_part_bytes(d, part, block_size, kv_dtype);
    m->window_bytes = apart ? kv_part_bytes(d, KV_WINDOWS, block_size, kv_dtype) : 0;
    d->kv = kv_part_new(d, part, n_blocks, block_size, kv_dtype, e);
    if (d->kv && apart)
        d->windows = kv_part_new(d, KV_WINDOWS, n_windows, block_size, kv_dtype, e);
    return d->kv && (!apart || d->windows) ? 0 : -1;
}

uint64_t model_cross_block_bytes(const struct model *m, enum kv_dtype kv_dtype)
{
    return decoder_cross_block_bytes(&m->d, kv_dtype);
}

int model_cross_resize(struct model *m, uint32_t n_blocks, enum kv_dtype kv_dtype, struct err *e)
{
    return decoder_cross_resize(&m->d, n_blocks, kv_dtype, e);
}

int model_cross_store(struct model *m, const float *rows, const uint32_t *blocks, uint32_t first,
                      uint32_t n, struct err *e)
{
    return decoder_cross_store(&m->d, rows, blocks, first, n, e);
}

uint64_t model_cross_row_cost(const struct model *m)
{
    const struct decoder_spec *s = &m->d.spec;
    uint64_t layers = 0;
    for (uint32_t i = 0; i < s->n_layers; i++)
        layers += s->layers[i].mixer == MIXER_CROSS || s->layers[i].merged;
    return layers * 2 * s->hidden * s->n_kv_heads * s->head_dim;
}

int model_window_copy(struct model *m, const uint32_t *src, const uint32_t *dst, uint32_t n,
                      struct err *e)
{
    return m->d.ops->kv_copy(m->d.dev, m->d.windows, src, dst, n, e);
}

int model_kv_copy(struct model *m, const uint32_t *src, const uint32_t *dst, uint32_t n,
                  struct err *e)
{
    return m->d.ops->kv_copy(m->d.dev, m->d.kv, src, dst, n, e);
}

int model_state_resize(struct model *m, uint32_t n_cells, struct err *e)
{
    struct decoder *d = &m->d;
    size_t bytes;
    d->ops->free(d->dev, d->state); /* first: memory may not suffice for both */
    d->state = NULL;
    d->n_cells = 0;
    if (!n_cells || !d->state_floats)
        return 0;
    if (__builtin_mul_overflow((size_t)m->info.state_bytes, (size_t)n_cells, &bytes))
        return err_nomem(e);
    d->state = d->ops->alloc(d->dev, bytes, e);
    d->n_cells = d->state ? n_cells : 0;
    return d->state ? 0 : -1;
}

int model_state_copy(struct model *m, const uint32_t *src, const uint32_t *dst, uint32_t n,
                     struct err *e)
{
    const struct state_ref all = layer_state(&m->d, 0);
    return m->d.ops->state_copy(m->d.dev, &all, src, dst, n, e);
}

/* Measured the second time, because the first one touches the memory. A download waits for
 * earlier operations. */
static int time_swap(struct model *m, int64_t *block_ns, struct err *e)
{
    const struct backend_ops *ops = m->d.ops;
    const uint32_t zero = 0;
    char here[64], *there = ops->alloc(m->d.dev, sizeof(here), e);
    if (!there)
        return -1;
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        int64_t t0 = clock_ns();
        rc = model_swap_out(m, &zero, &zero, 1, e);
        if (rc == 0)
            rc = ops->download(m->d.dev, here, there, sizeof(here), e);
        *block_ns = clock_ns() - t0;
    }
    ops->free(m->d.dev, there);
    return rc;
}

int model_swap_resize(struct model *m, uint32_t n_slots, int64_t *block_ns, struct err *e)
{
    const struct backend_ops *ops = m->d.ops;
    model_swap_free(m);
    *block_ns = 0;
    if (!n_slots)
        return 0;
    if (!ops->kv_read)
        return err_set(e, ERR_VALIDATION, "the %s backend does not swap", ops->name);
    if (__builtin_mul_overflow((size_t)m->block_bytes, (size_t)n_slots, &m->swap_bytes))
        return err_nomem(e);
    m->swap = ops->host_alloc(m->d.dev, m->swap_bytes, e);
    return m->swap ? time_swap(m, block_ns, e) : -1;
}

int model_swap_out(struct model *m, const uint32_t *blocks, const uint32_t *slots, uint32_t n,
                   struct err *e)
{
    return m->d.ops->kv_read(m->d.dev, m->d.kv, blocks, m->swap, slots, n, e);
}

int model_swap_in(struct model *m, const uint32_t *blocks, const uint32_t *slots, uint32_t n,
                  struct err *e)
{
    return m->d.ops->kv_write(m->d.dev, m->d.kv, blocks, m->swap, slots, n, e);
}

/* ---------------------------------------------------------------- blocks outside of the caches */

void model_cache_bytes(const struct model *m, uint64_t bytes[N_CACHE_KINDS])
{
    const bool copies = m->d.ops->kv_read && m->d.kv;
    bytes[CACHE_BLOCK] = copies ? m->block_bytes : 0;
    bytes[CACHE_WINDOW] = copies && m->d.windows ? m->window_bytes : 0;
    bytes[CACHE_STATE] = copies && m->d.n_cells ? m->info.state_bytes : 0;
}

static float *cell_at(const struct model *m, uint32_t cell)
{
    return (float *)m->d.state + (size_t)cell * m->d.state_floats;
}

int model_export(struct model *m, enum cache_kind kind, uint32_t at, void *host, struct err *e)
{
    const uint32_t here = 0;
    if (kind == CACHE_STATE)
        return m->d.ops->download(m->d.dev, host, cell_at(m, at), m->info.state_bytes, e);
    return m->d.ops->kv_read(m->d.dev, kind == CACHE_WINDOW ? m->d.windows : m->d.kv, &at, host,
                             &here, 1, e);
}

int model_export_wait(struct model *m, struct err *e)
{
    const struct backend_ops *ops = m->d.ops;
    char here[64], *there = ops->alloc(m->d.dev, sizeof(here), e);
    if (!there)
        return -1;
    const int rc = ops->download(m->d.dev, here, there, sizeof(here), e); /* behind all of it */
    ops->free(m->d.dev, there);
    return rc;
}

int model_import(struct model *m, enum cache_kind kind, uint32_t at, const void *host,
                 struct err *e)
{
    const uint32_t here = 0;
    if (kind == CACHE_STATE)
        return m->d.ops->upload(m->d.dev, cell_at(m, at), host, m->info.state_bytes, e);
    return m->d.ops->kv_write(m->d.dev, kind == CACHE_WINDOW ? m->d.windows : m->d.kv, &at, host,
                              &here, 1, e);
}
