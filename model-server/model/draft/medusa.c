/* medusa.c - Medusa heads (arXiv 2401.10774): head i predicts the token i + 2 positions later
 * from the last hidden state alone. A head is some blocks x + silu(W x + b), then a matrix to the
 * vocabulary: its own (the first version) or the model's (the second).
 *
 * Names are those of a folder of heads, or of heads beside the weights of their model:
 * `<head>.<block>.linear.{weight,bias}` and `<head>.<blocks>.weight`, optionally with the prefix
 * "medusa_head.". */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HEADS = 16, MOST_BLOCKS = 8 };

struct names {
    const char *block, *out; /* * is the head, the second the block */
};
static const struct names spellings[] = {{"*.*.linear", "*.*"},
                                         {"medusa_head.*.*.linear", "medusa_head.*.*"}};
enum { N_SPELLINGS = sizeof(spellings) / sizeof(spellings[0]) };

struct head {
    struct weight *block[MOST_BLOCKS]; /* [hidden, hidden] */
    float *bias[MOST_BLOCKS];
    struct weight *out; /* [vocabulary slice, hidden]; NULL: the model's */
};
struct medusa {
    uint32_t n_heads, n_blocks;
    struct head heads[MOST_HEADS];
};

static bool there(const struct checkpoint *c, const char *pattern, uint32_t head, uint32_t block)
{
    char name[TENSOR_NAME_CAP];
    const char *first = strchr(pattern, '*'), *second = strchr(first + 1, '*');
    snprintf(name, sizeof(name), "%.*s%u%.*s%u%s.weight", (int)(first - pattern), pattern, head,
             (int)(second - first - 1), first + 1, block, second + 1);
    return checkpoint_find(c, name) != NULL;
}

/* The spelling of the names in `c`, the number of heads, and of their blocks. NULL: none. */
static const struct names *count(const struct checkpoint *c, uint32_t *heads, uint32_t *blocks)
{
    for (int i = 0; i < N_SPELLINGS; i++) {
        const struct names *s = &spellings[i];
        for (*heads = 0; *heads <= MOST_HEADS && there(c, s->block, *heads, 0);)
            ++*heads;
        for (*blocks = 0; *blocks <= MOST_BLOCKS && there(c, s->block, 0, *blocks);)
            ++*blocks;
        if (*heads)
            return s;
    }
    return NULL;
}

static int find(const struct decoder *d, const struct arch *a, const struct checkpoint *c,
                struct draft_plan *p, struct err *e)
{
    uint32_t heads, blocks;
    (void)a;
    if (!count(c, &heads, &blocks))
        return 0;
    if (heads > MOST_HEADS || blocks > MOST_BLOCKS)
        return err_set(e, ERR_VALIDATION, "%s: more than %d heads or %d blocks in one", c->dir,
                       MOST_HEADS, MOST_BLOCKS);
    *p = (struct draft_plan){.width = d->spec.hidden, .most = heads};
    return 1;
}

static void load_head(struct loader *l, const struct names *s, struct head *h, uint32_t at,
                      uint32_t n_blocks)
{
    struct decoder *d = l->d;
    const int64_t n = d->spec.hidden;
    const int head = (int)at;
    for (uint32_t i = 0; i < n_blocks; i++) {
        struct mat_part p = loader_part(l, W_DRAFT_IN, head, (int)i, false, n, n);
        h->block[i] = loader_pack(l, &p, 1, d->dtype, QUANT_NONE);
        p = loader_part(l, W_DRAFT_IN, head, (int)i, true, n, 1);
        h->bias[i] = loader_vector(l, &p, 1, 0);
    }
    if (!there(l->c, s->out, at, n_blocks))
        return;
    struct mat_part p = loader_part(l, W_DRAFT_HEAD, head, (int)n_blocks, false, d->spec.vocab, n);
    p = loader_rows(p, d->split.vocab.first, d->split.vocab.n);
    h->out = loader_pack(l, &p, 1, d->dtype, loader_head_quant(d->quant));
}

static void *load(struct loader *l)
{
    const struct arch *of = l->a;
    struct medusa *m = calloc(1, sizeof(*m));
    struct arch a = *of;
    if (!m) {
        loader_nomem(l);
        return NULL;
    }
    const struct names *s = count(l->c, &m->n_heads, &m->n_blocks);
    a.names[W_DRAFT_IN] = s->block;
    a.names[W_DRAFT_HEAD] = s->out;
    l->a = &a;
    for (uint32_t i = 0; i < m->n_heads && !l->failed; i++)
        load_head(l, s, &m->heads[i], i, m->n_blocks);
    l->a = of;
    return m;
}

static void release(struct decoder *d, void *self)
{
    struct medusa *m = self;
    for (uint32_t i = 0; i < m->n_heads; i++) {
        for (uint32_t k = 0; k < m->n_blocks; k++) {
            layer_free_weight(d, m->heads[i].block[k]);
            d->ops->free(d->dev, m->heads[i].bias[k]);
        }
        layer_free_weight(d, m->heads[i].out);
    }
    free(m);
}

static int forward(struct decoder *d, const void *self, const struct draft_pass *p,
                   const float **next, struct weight **head, struct err *e)
{
    const struct medusa *m = self;
    const struct head *h = &m->heads[p->depth];
    const uint32_t n = d->spec.hidden;
    struct scratch *s = &d->scratch;
    (void)e, (void)next;
    if (!p->n_out)
        return 0;
    d->ops->gather_out(d->dev, s->out, p->hidden, n);
    for (uint32_t i = 0; i < m->n_blocks; i++) {
        d->ops->linear(d->dev, s->r, s->out, p->n_out, h->block[i], h->bias[i]);
        d->ops->act(d->dev, s->r, p->n_out, n, ACT_SILU);
        d->ops->add_norm(d->dev, s->n, s->out, s->r, 1, p->n_out, n, NULL);
    }
    *head = h->out ? h->out : d->head;
    return 0;
}

const struct draft_ops draft_medusa = {"medusa", find, load, release, forward};
