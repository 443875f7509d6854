#include "model-server/model/lora/lora_gguf.h"
#include "common/gguf/family.h"
#include "model-server/model/checkpoint/gguf_latent.h"
#include "model-server/model/checkpoint/gguf_names.h"
#include "model-server/model/checkpoint/gguf_order.h"
#include "model-server/model/checkpoint/tensor_parse.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 256 };

/* ---------------------------------------------------------------- metadata */

static int check_kind(const struct gguf *g, double *alpha, struct err *e)
{
    struct gguf_str type = {"", 0}, kind = {"", 0};
    gguf_text(g, "general.type", &type);
    gguf_text(g, "adapter.type", &kind);
    if (!gguf_str_is(&type, "adapter") || !gguf_str_is(&kind, "lora"))
        return err_set(
            e, ERR_VALIDATION,
            "%s: `general.type` and `adapter.type` are `%.*s` and `%.*s`; an adapter has "
            "`adapter` and `lora`",
            g->path, type.n > 40 ? 40 : (int)type.n, type.p, kind.n > 40 ? 40 : (int)kind.n,
            kind.p);
    if (gguf_find(g, "adapter.alora.invocation_tokens"))
        return err_set(e, ERR_VALIDATION, "%s: `adapter.alora.invocation_tokens` is not supported",
                       g->path);
    *alpha = 0;
    gguf_number(g, "adapter.lora.alpha", alpha);
    return isfinite(*alpha)
               ? 0
               : err_set(e, ERR_VALIDATION, "%s: `adapter.lora.alpha` is %g", g->path, *alpha);
}

/* The model's shape: an adapter's file has no sizes. */
static struct gguf_shape shape_of(const struct lora_base *base, const struct gguf_family *f)
{
    const struct decoder_spec *s = base->spec;
    return (struct gguf_shape){.family = f,
                               .heads = s->n_heads,
                               .kv_heads = s->n_kv_heads,
                               .head = s->head_dim,
                               .values = s->recur.heads,
                               .keys = s->recur.key_heads,
                               .key_dim = s->recur.key_dim,
                               .value_dim = s->recur.value_dim};
}

/* ---------------------------------------------------------------- names */

/* "blk.3.attn_q.weight.lora_a" as PEFT's name of the family's module, and its use. False: it is no
 * part of a matrix of one layer, and keeps its name. */
static bool peft_name(const struct arch *a, const char *name, char out[NAME_BYTES],
                      struct gguf_use *u)
{
    char weight[NAME_BYTES];
    const char *dot = strrchr(name, '.');
    if (!dot || (strcmp(dot, ".lora_a") != 0 && strcmp(dot, ".lora_b") != 0) ||
        snprintf(weight, sizeof(weight), "%.*s", (int)(dot - name), name) >= NAME_BYTES ||
        !gguf_use_of(a, weight, 0, u) || !u->of)
        return false;
    const char *spelling = u->of->names[u->role], *end = strchrnul(spelling, '|');
    const char *star = memchr(spelling, '*', (size_t)(end - spelling));
    if (!star || memchr(star + 1, '*', (size_t)(end - star - 1)))
        return false;
    return snprintf(out, NAME_BYTES, "base_model.model.%.*s%d%.*s.lora_%c.weight",
                    (int)(star - spelling), spelling, u->layer, (int)(end - star - 1), star + 1,
                    dot[6] == 'a' ? 'A' : 'B') < NAME_BYTES;
}

/* ---------------------------------------------------------------- numbers */

/* All tensors have one type of numbers that adapters keep. */
static bool all_plain(const struct gguf *g)
{
    const enum gguf_packing p = g->n_tensors ? g->tensors[0].packing : GGUF_F32;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].packing != p)
            return false;
    return p == GGUF_F32 || p == GGUF_F16 || p == GGUF_BF16;
}

/* Copies the rows of `g` to the tensor, in the order `row_at` (NULL: theirs); in fp32 unless
 * `plain`. */
static int copy(struct lora_adapter *l, const struct gguf_tensor *g, const uint32_t *row_at,
                bool plain, struct tensor *t, struct err *e)
{
    const uint64_t rows = t->dims[0], cols = t->dims[1];
    const size_t each = plain ? g->bytes / rows : cols * sizeof(float);
    char *to = malloc(rows * each);
    if (!to)
        return err_nomem(e);
    l->copies[l->n_copies++] = to;
    for (uint64_t i = 0; i < rows; i++) {
        const uint64_t at = row_at ? row_at[i] : i;
        if (plain)
            memcpy(to + i * each, g->data + at * each, each);
        else
            gguf_read_row(g, at, (float *)(void *)(to + i * each));
    }
    t->data = to;
    t->bytes = rows * each;
    t->in_memory = true;
    return 0;
}

/* Sets shape, type and numbers of a tensor whose use is known. */
static int fill(struct lora_adapter *l, const struct gguf_tensor *g, const struct gguf_use *u,
                const struct gguf_shape *shape, bool plain, struct tensor *t, struct err *e)
{
    const bool b = g->name[strlen(g->name) - 1] == 'b';
    struct gguf_order o = {0};
    if (g->n_dims > 2 || !gguf_row_readable(g->packing) ||
        (u->role == W_MIX_OUT && shape->family->tiled))
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` is not read in adapters", t->file,
                       g->name);
    t->n_dims = 2;
    t->dims[0] = g->dims[1], t->dims[1] = g->dims[0];
    t->bytes = g->bytes;
    t->data = g->data;
    t->type = !plain || g->packing == GGUF_F32 ? T_F32 : g->packing == GGUF_F16 ? T_F16 : T_BF16;
    if (b && gguf_order_make(shape, u->role, t->dims[0], 1, t->file, g->name, &o, e))
        return -1;
    const int rc = plain && !o.row_at ? 0 : copy(l, g, o.row_at, plain, t, e);
    free(o.row_at);
    free(o.col_at);
    return rc;
}

/* ---------------------------------------------------------------- the file */

static int take(struct lora_adapter *l, const struct lora_base *base,
                const struct gguf_family *family, struct err *e)
{
    const struct gguf *g = &l->gguf->files[0];
    const struct gguf_shape shape = shape_of(base, family);
    const bool plain = all_plain(g);
    struct tensor_file *f = &l->file;
    f->path = strdup(g->path);
    f->names = calloc(g->n_tensors + (size_t)1, NAME_BYTES);
    f->tensors = calloc(g->n_tensors + (size_t)1, sizeof(*f->tensors));
    l->copies = calloc(g->n_tensors + (size_t)1, sizeof(*l->copies));
    if (!f->path || !f->names || !f->tensors || !l->copies)
        return err_nomem(e);
    for (; f->n < g->n_tensors; f->n++) {
        const struct gguf_tensor *of = &g->tensors[f->n];
        char *name = f->names + (size_t)f->n * NAME_BYTES;
        struct tensor *t = &f->tensors[f->n];
        struct gguf_use u;
        const bool known = peft_name(base->arch, of->name, name, &u);
        *t = (struct tensor){.name = known ? name : of->name, .file = f->path};
        if (known && fill(l, of, &u, &shape, plain, t, e))
            return -1;
    }
    return tensor_file_sort(f, e);
}

int lora_gguf_open(struct lora_adapter *l, const char *path, const struct lora_base *base,
                   double *alpha, struct err *e)
{
    struct gguf_set *set = calloc(1, sizeof(*set));
    if (!set)
        return err_nomem(e);
    if (gguf_set_open(set, path, e)) {
        free(set);
        return -1;
    }
    l->gguf = set;
    if (check_kind(&set->files[0], alpha, e))
        return -1;
    const struct gguf_family *family = gguf_family(set, e);
    return family ? take(l, base, family, e) : -1;
}

void lora_gguf_close(struct lora_adapter *l)
{
    while (l->n_copies)
        free(l->copies[--l->n_copies]);
    free(l->copies);
    if (l->gguf)
        gguf_set_close(l->gguf);
    free(l->gguf);
}
