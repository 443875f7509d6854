#include "model-server/model/loader.h"
#include "model-server/model/half.h"
#include "model-server/model/random_weights.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LEN = 200 };

void loader_nomem(struct loader *l)
{
    err_nomem(l->e);
    l->failed = true;
}

/* ---------------------------------------------------------------- tensors by role */

static void name_of(const struct loader *l, enum role role, int layer, int expert,
                    const char *suffix, char out[NAME_MAX_LEN])
{
    int index = layer;
    size_t n = 0;
    assert(l->a->names[role]); /* the spec asks for what the family has no name for */
    for (const char *p = l->a->names[role]; *p && n < NAME_MAX_LEN - 32; p++) {
        if (*p != '*') {
            out[n++] = *p;
            continue;
        }
        n += (size_t)snprintf(out + n, NAME_MAX_LEN - n, "%d", index);
        index = expert;
    }
    snprintf(out + n, NAME_MAX_LEN - n, "%s", suffix);
}

static const struct tensor *look(const struct loader *l, const char *name)
{
    const char *prefix = l->a->prefix;
    const struct tensor *t = checkpoint_find(l->c, name);
    if (!t && prefix && strncmp(name, prefix, strlen(prefix)) == 0)
        t = checkpoint_find(l->c, name + strlen(prefix));
    return t;
}

bool loader_own_head(const struct loader *l)
{
    char name[NAME_MAX_LEN];
    if (!l->a->names[W_HEAD] || !l->c)
        return false;
    name_of(l, W_HEAD, NO_LAYER, NO_EXPERT, ".weight", name);
    const struct tensor *head = look(l, name);
    name_of(l, W_EMBED, NO_LAYER, NO_EXPERT, ".weight", name);
    const struct tensor *embed = look(l, name);
    return head && embed &&
           (head->type != embed->type || head->bytes != embed->bytes ||
            memcmp(head->data, embed->data, head->bytes) != 0);
}

/* Without a checkpoint every tensor is there and has the shape that is asked for (cols 0: one
 * dimension). The spread keeps rows of activations at their size, as training does. */
static const struct tensor *made_up(struct loader *l, const char *name, int64_t rows, int64_t cols)
{
    bool vector = cols == 0, bias = strcmp(name + strlen(name) - 5, ".bias") == 0;
    size_t n = (size_t)rows * (size_t)(vector ? 1 : cols);
    float mean = vector && !bias ? 1 : 0, spread = vector ? 0.1F : sqrtf(3 / (float)cols);
    struct tensor *t = &l->made[l->n_copies];
    assert(l->n_copies < MAX_SOURCES);
    void *data = random_tensor(l->d->ops, l->d->dev, name, n, mean, spread);
    if (!data) {
        loader_nomem(l);
        return NULL;
    }
    l->copies[l->n_copies++] = data;
    *t = (struct tensor){.name = "random",
                         .file = "random weights",
                         .type = T_BF16,
                         .n_dims = vector ? 1 : 2,
                         .dims = {(uint64_t)rows, (uint64_t)cols},
                         .bytes = n * 2,
                         .data = data};
    return t;
}

static const struct tensor *find(struct loader *l, const char *name, int64_t rows, int64_t cols)
{
    if (!l->c)
        return l->failed ? NULL : made_up(l, name, rows, cols);
    const struct tensor *t = look(l, name);
    if (!t && !l->failed) {
        checkpoint_missing(l->c, name, l->e);
        l->failed = true;
    }
    return t;
}

/* Backends read elements at their natural alignment; the format promises none. */
static const void *source(struct loader *l, const struct tensor *t, size_t size)
{
    if (!l->c)
        return t->data;
    assert(l->n_tensors < MAX_SOURCES);
    l->tensors[l->n_tensors++] = t;
    if ((uintptr_t)t->data % size == 0)
        return t->data;
    void *copy = malloc(t->bytes ? t->bytes : 1);
    if (!copy) {
        loader_nomem(l);
        return t->data;
    }
    l->copies[l->n_copies++] = copy;
    return memcpy(copy, t->data, t->bytes);
}

void loader_drop(struct loader *l)
{
    while (l->n_tensors)
        tensor_release(l->tensors[--l->n_tensors]);
    while (l->n_copies)
        free(l->copies[--l->n_copies]);
}

static int element_type(struct loader *l, const struct tensor *t, enum dtype *out)
{
    if (t->type == T_F32 || t->type == T_F16 || t->type == T_BF16) {
        *out = t->type == T_F32 ? DT_F32 : t->type == T_F16 ? DT_F16 : DT_BF16;
        return 0;
    }
    l->failed = true;
    return err_set(l->e, ERR_VALIDATION,
                   "%s: tensor `%s` has dtype %s; weights must be F32, F16 or BF16", t->file,
                   t->name, tensor_type_name(t->type));
}

static int wrong_shape(struct loader *l, const struct tensor *t, int64_t rows, int64_t cols)
{
    char have[TENSOR_MAX_DIMS * 24] = "", want[64];
    for (int i = 0, n = 0; i < t->n_dims; i++)
        n += snprintf(have + n, sizeof(have) - (size_t)n, "%s%llu", i ? ", " : "",
                      (unsigned long long)t->dims[i]);
    if (cols)
        snprintf(want, sizeof(want), "%lld, %lld", (long long)rows, (long long)cols);
    else
        snprintf(want, sizeof(want), "%lld", (long long)rows);
    l->failed = true;
    return err_set(l->e, ERR_VALIDATION, "%s: tensor `%s` has shape [%s]; config.json means [%s]",
                   t->file, t->name, have, want);
}

/* The whole matrix [rows, cols] of a role; its bias [rows] where `bias`, as one column. An empty
 * part after a fault. */
struct mat_part loader_part(struct loader *l, enum role role, int layer, int expert, bool bias,
                            int64_t rows, int64_t cols)
{
    bool table = role == W_EMBED || role == W_POSITIONS || role == W_HEAD || role == W_ROUTER;
    bool turned = l->d->spec.transposed && !bias && !table;
    uint64_t r = (uint64_t)(turned ? cols : rows), c = (uint64_t)(turned ? rows : cols);
    struct mat_part p = {0};
    char name[NAME_MAX_LEN];
    name_of(l, role, layer, expert, bias ? ".bias" : ".weight", name);
    const struct tensor *t =
        l->failed ? NULL : find(l, name, bias ? rows : (int64_t)r, bias ? 0 : (int64_t)c);
    if (!t || element_type(l, t, &p.dtype))
        return p;
    bool ok = bias ? t->n_dims == 1 && t->dims[0] == (uint64_t)rows
                   : t->n_dims == 2 && t->dims[0] == r && t->dims[1] == c;
    if (!ok) {
        wrong_shape(l, t, (int64_t)r, bias ? 0 : (int64_t)c);
        return p;
    }
    p.data = source(l, t, dtype_size(p.dtype));
    p.rows = rows;
    p.cols = bias ? 1 : cols;
    p.row_stride = bias || turned ? 1 : cols;
    p.col_stride = bias ? 1 : turned ? rows : 1;
    return p;
}

struct mat_part loader_cut(struct mat_part p, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    size_t at = (size_t)(row * p.row_stride + col * p.col_stride) * dtype_size(p.dtype);
    if (p.data)
        p.data = (const char *)p.data + at;
    p.rows = rows;
    p.cols = cols;
    return p;
}

struct mat_part loader_rows(struct mat_part p, uint32_t first, uint32_t n)
{
    return loader_cut(p, first, n, 0, p.cols);
}

/* ---------------------------------------------------------------- onto the device */

static void count(struct decoder *d, uint64_t elements, uint64_t bytes)
{
    d->weights.elements += elements;
    d->weights.bytes += bytes;
}

struct weight *loader_pack(struct loader *l, const struct mat_part *parts, int n, enum dtype dtype,
                           enum quant quant)
{
    struct decoder *d = l->d;
    const struct mat_desc m = {.parts = parts, .n_parts = n, .dtype = dtype, .quant = quant};
    struct weight *w = l->failed ? NULL : d->ops->weight_load(d->dev, &m, l->e);
    if (!w)
        l->failed = true;
    for (int i = 0; w && i < n; i++)
        count(d, (uint64_t)(parts[i].rows * parts[i].cols), 0);
    if (w)
        count(d, 0, d->ops->weight_bytes(w));
    loader_drop(l);
    return w;
}

static float element(const struct mat_part *p, int64_t i)
{
    const char *at = (const char *)p->data + (size_t)(i * p->row_stride) * dtype_size(p->dtype);
    float v;
    if (p->dtype == DT_F32)
        memcpy(&v, at, 4);
    else {
        uint16_t h;
        memcpy(&h, at, 2);
        v = p->dtype == DT_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
    }
    return v;
}

/* Columns stacked into one fp32 vector: biases of q over k over v, of gate over up. */
float *loader_vector(struct loader *l, const struct mat_part *parts, int n, float plus)
{
    struct decoder *d = l->d;
    int64_t rows = 0, at = 0;
    float *host, *v = NULL;
    for (int i = 0; i < n; i++)
        rows += parts[i].rows;
    if (l->failed)
        return NULL;
    if (!(host = malloc((size_t)rows * sizeof(float))))
        err_nomem(l->e);
    else {
        for (int i = 0; i < n; i++)
            for (int64_t k = 0; k < parts[i].rows; k++)
                host[at++] = element(&parts[i], k);
        v = d->ops->vector_load(d->dev, &(struct mat_part){host, DT_F32, rows, 1, 1, 1}, plus,
                                l->e);
    }
    free(host);
    if (!v)
        l->failed = true;
    count(d, (uint64_t)rows, (uint64_t)rows * sizeof(float));
    loader_drop(l);
    return v;
}

float *loader_bias(struct loader *l, enum role role, int layer, uint32_t n)
{
    struct mat_part p = loader_part(l, role, layer, NO_EXPERT, true, n, 1);
    return loader_vector(l, &p, 1, 0);
}

float *loader_weight_vector(struct loader *l, enum role role, int layer, uint32_t n)
{
    char name[NAME_MAX_LEN];
    struct mat_part p = {.rows = n, .cols = 1, .row_stride = 1, .col_stride = 1};
    name_of(l, role, layer, NO_EXPERT, ".weight", name);
    const struct tensor *t = l->failed ? NULL : find(l, name, n, 0);
    if (!t || element_type(l, t, &p.dtype))
        return NULL;
    if (t->n_dims != 1 || t->dims[0] != n)
        wrong_shape(l, t, n, 0);
    else
        p.data = source(l, t, dtype_size(p.dtype));
    return loader_vector(l, &p, 1, l->d->spec.norm.plus);
}
