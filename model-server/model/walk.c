#include "model-server/model/walk.h"
#include "model-server/model/kv_parts.h"
#include "model-server/model/loader/loader.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 16 };

struct walk {
    struct decoder d;
    struct checkpoint c;
    struct stored how;
    struct loader l;
    const struct arch *arch;
    const char *type;
    uint32_t longest;
    uint32_t *pos, *blocks, *rows;
    bool has_checkpoint;
};

static int check(const struct walk *w, struct err *e)
{
    const struct decoder_spec *s = &w->d.spec;
    if (s->no_head || s->both_ways)
        return err_set(e, ERR_VALIDATION, "a %s model generates no text", w->type);
    if (s->per_layer)
        return err_set(e, ERR_VALIDATION,
                       "a %s model has embeddings of each layer: its layers cannot be walked "
                       "through one by one",
                       w->type);
    if (s->shared.blocks)
        return err_set(
            e, ERR_VALIDATION,
            "layers of a %s model share blocks: they cannot be walked through one by one", w->type);
    if (s->mix.n || s->blend_per)
        return err_set(e, ERR_VALIDATION,
                       "a %s model has several residual streams: its layers cannot be walked "
                       "through one by one",
                       w->type);
    if (s->skip_share != 0)
        return err_set(
            e, ERR_VALIDATION,
            "layers of a %s model read the stream of earlier ones: they cannot be walked "
            "through one by one",
            w->type);
    if (s->moe.router_width)
        return err_set(e, ERR_VALIDATION,
                       "routers of a %s model read those of earlier layers: its layers cannot be "
                       "walked through one by one",
                       w->type);
    if (s->rwkv.decay)
        return err_set(e, ERR_VALIDATION,
                       "layers of a %s model read values of the first one: they cannot be walked "
                       "through one by one",
                       w->type);
    if (s->paired)
        return err_set(e, ERR_VALIDATION,
                       "layers of a %s model are stored in pairs: they cannot be walked through "
                       "one by one",
                       w->type);
    if (spec_repeats(s))
        return err_set(e, ERR_VALIDATION,
                       "layers of a %s model share their weights: they cannot be walked through "
                       "one by one",
                       w->type);
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (s->layers[i].kv_of || s->layers[i].top_of)
            return err_set(e, ERR_VALIDATION,
                           "layer %u of this %s model reads another layer's %s: its layers "
                           "cannot be walked through one by one",
                           i, w->type, s->layers[i].kv_of ? "keys" : "selection of keys");
    return 0;
}

/* Block i of the cache is the i-th of the only sequence. */
static int tables(struct walk *w, struct err *e)
{
    const uint32_t n_blocks = w->longest / BLOCK + 1;
    w->pos = malloc(w->longest * sizeof(uint32_t));
    w->rows = malloc(w->longest * sizeof(uint32_t));
    w->blocks = malloc(n_blocks * sizeof(uint32_t));
    if (!w->pos || !w->rows || !w->blocks)
        return err_nomem(e);
    for (uint32_t i = 0; i < w->longest; i++)
        w->pos[i] = w->rows[i] = i;
    for (uint32_t i = 0; i < n_blocks; i++)
        w->blocks[i] = i;
    kv_parts_number(&w->d, false);
    w->d.kv = kv_part_new(&w->d, KV_ALL, n_blocks, BLOCK, KV_F32, e);
    return w->d.kv ? 0 : -1;
}

static int open_model(struct walk *w, const char *dir, struct err *e)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/config.json", dir) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", dir);
    if (arch_configure(path, NULL, NULL, 1, &w->arch, &w->type, &w->d.spec, e) || check(w, e) ||
        split_make(&w->d.split, &w->d.spec, 0, 1, e) || stored_read(&w->how, dir, e) ||
        checkpoint_open(&w->c, dir, w->arch, e))
        return -1;
    w->has_checkpoint = true;
    w->l = (struct loader){.d = &w->d, .a = w->arch, .c = &w->c, .how = &w->how, .e = e};
    decoder_load_outer(&w->l);
    return w->l.failed ? -1 : tables(w, e);
}

struct walk *walk_open(const char *dir, uint32_t longest, const struct backend_ops *ops,
                       struct device *dev, struct err *e)
{
    struct walk *w = calloc(1, sizeof(*w));
    if (!w) {
        err_nomem(e);
        return NULL;
    }
    w->d.ops = ops;
    w->d.dev = dev;
    w->d.comm = comm_solo();
    w->d.dtype = DT_F32;
    w->longest = longest;
    if (open_model(w, dir, e) == 0)
        return w;
    walk_close(w);
    return NULL;
}

void walk_close(struct walk *w)
{
    if (!w)
        return;
    decoder_free(&w->d);
    if (w->has_checkpoint)
        checkpoint_close(&w->c);
    free(w->pos), free(w->rows), free(w->blocks);
    free(w);
}

const struct decoder_spec *walk_spec(const struct walk *w) { return &w->d.spec; }
const struct arch *walk_arch(const struct walk *w) { return w->arch; }
const char *walk_type(const struct walk *w) { return w->type; }
const struct checkpoint *walk_checkpoint(const struct walk *w) { return &w->c; }
const struct stored *walk_stored(const struct walk *w) { return &w->how; }
void walk_watch(struct walk *w, const struct pack_watch *watch) { w->d.watch = *watch; }

/* The step of a sequence of n tokens. */
static struct ragged step_of(const struct walk *w, const uint32_t *ids, uint32_t n, uint32_t n_out,
                             struct span *span)
{
    *span = (struct span){.n = n, .kv_len = n, .blocks = w->blocks, .seq_len = n};
    return (struct ragged){.n_tokens = n,
                           .n_spans = 1,
                           .n_out = n_out,
                           .ids = ids,
                           .pos = w->pos,
                           .slots = w->pos,
                           .spans = span,
                           .out_rows = w->rows};
}

int walk_embed(struct walk *w, const uint32_t *ids, uint32_t n, float *x, struct err *e)
{
    struct span span;
    const struct ragged b = step_of(w, ids, n, 0, &span);
    return decoder_walk_embed(&w->d, &b, x, e);
}

int walk_load(struct walk *w, uint32_t layer, struct err *e)
{
    struct decoder *d = &w->d;
    d->state_floats = 0; /* a cell holds only the current layer */
    w->l.e = e;
    w->l.failed = false;
    decoder_load_layer(&w->l, layer);
    loader_drop(&w->l);
    if (w->l.failed)
        return -1;
    d->ops->free(d->dev, d->state);
    d->state = NULL;
    d->n_cells = 0;
    if (!d->state_floats)
        return 0;
    d->state = d->ops->alloc(d->dev, d->state_floats * sizeof(float), e);
    d->n_cells = d->state != NULL;
    return d->state ? 0 : -1;
}

void walk_drop(struct walk *w, uint32_t layer) { decoder_free_layer(&w->d, layer); }

int walk_layer(struct walk *w, uint32_t layer, float *x, uint32_t n, struct err *e)
{
    static const uint32_t no_ids;
    struct span span;
    const struct ragged b = step_of(w, &no_ids, n, 0, &span);
    return decoder_walk_layer(&w->d, layer, &b, x, e);
}

int walk_head(struct walk *w, const float *x, uint32_t n, float *logits, struct err *e)
{
    static const uint32_t no_ids;
    struct span span;
    const struct ragged b = step_of(w, &no_ids, n, n, &span);
    return decoder_walk_head(&w->d, &b, x, logits, e);
}
