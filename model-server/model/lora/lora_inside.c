#include "model-server/model/lora/lora_inside.h"
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/checkpoint.h"
#include "model-server/model/checkpoint/tensor_parse.h"
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES = 16 * 1024 * 1024, NAME_BYTES = 256, EMBED_PAIR = 2 };
#define INFIX ".parametrizations.weight.0.lora_"

static int read_alpha(const char *dir, double *alpha, struct err *e)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/config.json", dir) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", dir);
    cJSON *j = model_file_json(path, CONFIG_BYTES, e);
    if (!j)
        return -1;
    *alpha = json_num(j, "lora_alpha", 1);
    cJSON_Delete(j);
    return isfinite(*alpha) && fabs(*alpha) <= FLT_MAX
               ? 0
               : err_set(e, ERR_VALIDATION, "%s: `lora_alpha` is no number of float32", path);
}

/* The letters of `t`'s name before INFIX; 0: it is of no adapter, or of the pooler, which vectors
 * do not pass. */
static size_t module_of(const struct tensor *t)
{
    const char *at = strstr(t->name, INFIX);
    if (!at || (strcmp(at + strlen(INFIX), "A") != 0 && strcmp(at + strlen(INFIX), "B") != 0) ||
        strstr(t->name, "pooler."))
        return 0;
    return (size_t)(at - t->name);
}

/* The tensor's part of one adapter. */
static int part_of(const struct tensor *t, const struct decoder_spec *s, uint32_t index,
                   struct tensor *out, struct err *e)
{
    char want[48];
    *out = *t;
    if (t->n_dims != 3 || t->dims[0] != s->inside.n) {
        snprintf(want, sizeof(want), "%u, rows, columns", s->inside.n);
        return tensor_wrong_shape(t, want, e);
    }
    if (t->type != T_F32 && t->type != T_F16 && t->type != T_BF16)
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s` has dtype %s; adapters must be F32, F16 or BF16", t->file,
                       t->name, tensor_type_name(t->type));
    out->n_dims = 2;
    out->dims[0] = t->dims[1], out->dims[1] = t->dims[2];
    out->bytes = t->bytes / s->inside.n;
    out->data = (const char *)t->data + index * out->bytes;
    return 0;
}

static float number(const struct tensor *t, uint64_t i)
{
    const enum dtype as = t->type == T_F32 ? DT_F32 : t->type == T_F16 ? DT_F16 : DT_BF16;
    union {
        float f;
        uint16_t h;
    } one = {0}; /* the file does not align */
    memcpy(&one, (const char *)t->data + i * dtype_size(as), dtype_size(as));
    return number_at(&one, as, 0);
}

static int next(struct lora_adapter *l, const char *module, size_t n, char which, struct tensor t)
{
    struct tensor_file *f = &l->file;
    char *name = f->names + (size_t)f->n * NAME_BYTES;
    snprintf(name, NAME_BYTES, "base_model.model.%.*s.lora_%c.weight", (int)n, module, which);
    t.name = name;
    t.file = f->path;
    f->tensors[f->n++] = t;
    return 0;
}

/* ---------------------------------------------------------------- embeddings */

/* Both halves of a table's update; NULL: there are none. */
struct update {
    const struct tensor *a, *b;
    struct tensor own_a, own_b;
};

static int find_update(const struct checkpoint *c, const struct lora_base *base, enum role role,
                       uint32_t index, struct update *u, struct err *e)
{
    char name[NAME_BYTES];
    for (int i = 0; i < 2; i++) {
        const struct tensor **t = i ? &u->b : &u->a;
        snprintf(name, sizeof(name), "%s" INFIX "%c", base->arch->names[role], i ? 'B' : 'A');
        if (!(*t = checkpoint_find_weight(c, base->arch, name)))
            return 0;
        struct tensor *own = i ? &u->own_b : &u->own_a;
        if (part_of(*t, base->spec, index, own, e))
            return -1;
        *t = own;
    }
    const uint32_t rank = base->spec->inside.rank;
    if (u->a->dims[1] != rank || u->b->dims[0] != rank || u->b->dims[1] != base->spec->hidden)
        return tensor_wrong_shape(u->b, "adapters, `lora_rank`, `hidden_size`", e);
    return 0;
}

/* A selects this adapter's columns of the narrow table, and its ones; B has the update's rows as
 * columns, and in the last one what the first token type adds. Both pairs of the checkpoint have
 * one scale, so B makes up for the rank, which is one more. */
static int make_embed(struct lora_adapter *l, const struct lora_base *base, uint32_t index,
                      const struct update *word, const struct update *type, struct err *e)
{
    const uint32_t rank = base->spec->inside.rank, ranks = rank + 1, n = base->spec->hidden;
    const uint32_t width = spec_inside_width(base->spec);
    const char *module = base->arch->names[W_EMBED];
    float *a = calloc((size_t)ranks * width, sizeof(*a));
    float *b = calloc((size_t)n * ranks, sizeof(*b));
    l->copies[l->n_copies++] = a;
    l->copies[l->n_copies++] = b;
    if (!a || !b)
        return err_nomem(e);
    for (uint32_t r = 0; r < rank; r++)
        a[(size_t)r * width + (size_t)index * rank + r] = 1;
    a[(size_t)rank * width + (size_t)base->spec->inside.n * rank] = 1;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < rank; r++) {
            const float by = (float)ranks / (float)rank;
            b[(size_t)i * ranks + r] = by * number(word->b, (uint64_t)r * n + i);
            if (type->b)
                b[(size_t)i * ranks + rank] +=
                    by * number(type->a, r) * number(type->b, (uint64_t)r * n + i);
        }
    const struct tensor t = {.type = T_F32, .n_dims = 2, .in_memory = true};
    struct tensor of_a = t, of_b = t;
    of_a.dims[0] = ranks, of_a.dims[1] = width, of_a.data = a;
    of_b.dims[0] = n, of_b.dims[1] = ranks, of_b.data = b;
    of_a.bytes = (size_t)ranks * width * sizeof(*a);
    of_b.bytes = (size_t)n * ranks * sizeof(*b);
    next(l, module, strlen(module), 'A', of_a);
    return next(l, module, strlen(module), 'B', of_b);
}

static int embeddings(struct lora_adapter *l, const struct lora_base *base, uint32_t index,
                      struct err *e)
{
    struct update word = {0}, type = {0};
    if (find_update(l->inside, base, W_EMBED, index, &word, e) ||
        find_update(l->inside, base, W_TOKEN_TYPES, index, &type, e))
        return -1;
    return word.b ? make_embed(l, base, index, &word, &type, e) : 0;
}

/* ---------------------------------------------------------------- all of it */

static bool is_table(const struct lora_base *base, const struct tensor *t, size_t n)
{
    static const enum role roles[] = {W_EMBED, W_TOKEN_TYPES};
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        const char *name = base->arch->names[roles[i]], *dot = strrchr(name, '.');
        const size_t k = strlen(dot);
        if (n >= k && memcmp(t->name + n - k, dot, k) == 0)
            return true;
    }
    return false;
}

static int matrices(struct lora_adapter *l, const struct lora_base *base, uint32_t index,
                    struct err *e)
{
    const struct checkpoint *c = l->inside;
    for (uint32_t f = 0; f < c->n_files; f++)
        for (uint32_t i = 0; i < c->files[f].n; i++) {
            const struct tensor *t = &c->files[f].tensors[i];
            const size_t n = module_of(t);
            struct tensor part;
            if (!n || is_table(base, t, n))
                continue;
            if (part_of(t, base->spec, index, &part, e))
                return -1;
            next(l, t->name, n, t->name[strlen(t->name) - 1], part);
        }
    return 0;
}

int lora_inside_read(struct lora_adapter *l, const char *dir, uint32_t index,
                     const struct lora_base *base, double *alpha, struct err *e)
{
    size_t most = EMBED_PAIR;
    struct checkpoint *c = calloc(1, sizeof(*c));
    if (!c)
        return err_nomem(e);
    if (checkpoint_open(c, dir, base->arch, e)) {
        free(c);
        return -1;
    }
    l->inside = c;
    for (uint32_t f = 0; f < c->n_files; f++)
        most += c->files[f].n;
    l->file.path = strdup(dir);
    l->file.names = calloc(most, NAME_BYTES);
    l->file.tensors = calloc(most, sizeof(*l->file.tensors));
    l->copies = calloc(EMBED_PAIR, sizeof(*l->copies));
    if (!l->file.path || !l->file.names || !l->file.tensors || !l->copies)
        return err_nomem(e);
    return read_alpha(dir, alpha, e) || embeddings(l, base, index, e) ||
                   matrices(l, base, index, e) || tensor_file_sort(&l->file, e)
               ? -1
               : 0;
}

void lora_inside_close(struct lora_adapter *l)
{
    if (l->inside)
        checkpoint_close(l->inside);
    free(l->inside);
}
