#include "model-server/backend/numbers.h"
#include "model-server/model/loader/loader_impl.h"
#include "model-server/model/loader/random_weights.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void loader_nomem(struct loader *l)
{
    err_nomem(l->e);
    l->failed = true;
}

/* ---------------------------------------------------------------- tensors by role */

const struct tensor *loader_look(const struct loader *l, const char *name)
{
    return checkpoint_find_weight(l->c, l->a, name);
}

/* Writes one name, up to a | or the end, which is returned. One that ends with _ has no point
 * before the suffix (PyTorch's in_proj_weight). */
static const char *name_at(const struct loader *l, const char *p, int layer, int expert,
                           const char *suffix, char out[NAME_MAX_LEN])
{
    int index = (layer - l->first_layer) / (l->paired && layer >= 0 ? 2 : 1);
    size_t n = 0;
    for (; *p && *p != '|' && n < NAME_MAX_LEN - SPEC_WORD; p++) {
        if (*p == '@') {
            n += (size_t)snprintf(out + n, NAME_MAX_LEN - n, "%s", l->d->spec.word);
            continue;
        }
        if (!strchr("*<>", *p)) {
            out[n++] = *p;
            continue;
        }
        const int number = *p == '*' ? index : 2 * index + (*p == '>');
        n += (size_t)snprintf(out + n, NAME_MAX_LEN - n, "%d", number);
        index = expert;
    }
    suffix += suffix[0] == '.' && n && out[n - 1] == '_';
    snprintf(out + n, NAME_MAX_LEN - n, "%s", suffix);
    return p;
}

/* Of tied tensors some tools save one: safetensors' save_model() the first in the alphabet,
 * which is `lm_head.weight`. */
void loader_name(const struct loader *l, enum role role, int layer, int expert, const char *suffix,
                 char out[NAME_MAX_LEN])
{
    const char *p = l->a->names[role];
    char head[NAME_MAX_LEN];
    assert(p); /* the spec has a tensor for which the family has no name */
    p = name_at(l, p, layer, expert, suffix, out);
    while (*p == '|' && (!l->c || !loader_look(l, out)))
        p = name_at(l, p + 1, layer, expert, suffix, out);
    if (role != W_EMBED || !l->c || !l->d->spec.tied || !l->a->names[W_HEAD] || loader_look(l, out))
        return;
    name_at(l, l->a->names[W_HEAD], layer, expert, suffix, head);
    if (loader_look(l, head))
        memcpy(out, head, sizeof(head));
}

bool loader_has(const struct loader *l, enum role role, int layer, int expert)
{
    char name[NAME_MAX_LEN];
    if (!l->c || !l->a->names[role])
        return false;
    loader_name(l, role, layer, expert, ".weight", name);
    return loader_look(l, name);
}

bool loader_has_named(const struct loader *l, enum role role, int layer)
{
    char name[NAME_MAX_LEN];
    if (!l->c || !l->a->names[role])
        return false;
    loader_name(l, role, layer, NO_EXPERT, "", name);
    return loader_look(l, name);
}

uint64_t loader_height(const struct loader *l, enum role role, int layer)
{
    char name[NAME_MAX_LEN];
    if (!l->c || !l->a->names[role])
        return 0;
    loader_name(l, role, layer, NO_EXPERT, ".weight", name);
    const struct tensor *t = loader_look(l, name);
    return t && t->n_dims ? t->dims[0] : 0;
}

void loader_found_all(const struct loader *l, enum role role)
{
    char name[NAME_MAX_LEN];
    for (const char *p = l->a->names[role]; l->c && p && *p; p += *p == '|') {
        p = name_at(l, p, NO_LAYER, NO_EXPERT, "", name);
        loader_look(l, name);
    }
}

bool loader_own_head(const struct loader *l)
{
    char name[NAME_MAX_LEN];
    if (!l->a->names[W_HEAD] || !l->c)
        return false;
    loader_name(l, W_HEAD, NO_LAYER, NO_EXPERT, ".weight", name);
    const struct tensor *head = loader_look(l, name);
    loader_name(l, W_EMBED, NO_LAYER, NO_EXPERT, ".weight", name);
    const struct tensor *embed = loader_look(l, name);
    return head && embed &&
           (head->type != embed->type || head->bytes != embed->bytes ||
            memcmp(head->data, embed->data, head->bytes) != 0);
}

/* Without a checkpoint every tensor exists and has the requested shape (cols 0: one dimension).
 * The spread keeps the magnitude of activations, as training does. */
static const struct tensor *made_up(struct loader *l, const char *name, int64_t rows, int64_t cols)
{
    bool vector = cols == 0, bias = strcmp(name + strlen(name) - 4, "bias") == 0;
    size_t n = (size_t)rows * (size_t)(vector ? 1 : cols);
    float mean = vector && !bias ? 1 : 0, spread = vector ? 0.1F : sqrtf(3 / (float)cols);
    struct tensor *t = &l->made[l->n_copies];
    assert(l->n_copies < MAX_SOURCES);
    const struct decoder *d = l->d;
    const struct random_tensor of = l->random[l->n_copies] = random_tensor(name, mean, spread);
    const bool elsewhere = !vector && d->ops->makes_weights && d->quant == QUANT_NONE;
    void *data = elsewhere ? NULL : random_data(d->ops, d->dev, of, n);
    if (!data && !elsewhere) {
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

const struct tensor *loader_find(struct loader *l, const char *name, int64_t rows, int64_t cols)
{
    if (!l->c)
        return l->failed ? NULL : made_up(l, name, rows, cols);
    const struct tensor *t = loader_look(l, name);
    if (!t && !l->failed) {
        checkpoint_missing(l->c, name, l->e);
        l->failed = true;
    }
    return t;
}

const struct tensor *loader_tensor(struct loader *l, enum role role, int layer)
{
    char name[NAME_MAX_LEN];
    loader_name(l, role, layer, NO_EXPERT, "", name);
    return l->c ? loader_find(l, name, 0, 0) : NULL;
}

/* Backends read elements at their natural alignment, which the format does not guarantee. */
const void *loader_source(struct loader *l, const struct tensor *t, size_t size)
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
    if (l->hold)
        return;
    while (l->n_tensors)
        tensor_release(l->tensors[--l->n_tensors]);
    for (; l->n_stored; l->n_stored--)
        for (int i = 0; i < STORED_TENSORS; i++)
            if (l->stored[l->n_stored - 1].t[i])
                tensor_release(l->stored[l->n_stored - 1].t[i]);
    while (l->n_copies)
        free(l->copies[--l->n_copies]);
}

bool loader_is_plain(const struct tensor *t)
{
    return t->type == T_F32 || t->type == T_F16 || t->type == T_BF16;
}

int loader_type(struct loader *l, const struct tensor *t, enum dtype *out)
{
    if (loader_is_plain(t)) {
        *out = t->type == T_F32 ? DT_F32 : t->type == T_F16 ? DT_F16 : DT_BF16;
        return 0;
    }
    l->failed = true;
    return err_set(l->e, ERR_VALIDATION,
                   "%s: tensor `%s` has dtype %s; weights must be F32, F16 or BF16", t->file,
                   t->name, tensor_type_name(t->type));
}

int loader_wrong_shape(struct loader *l, const struct tensor *t, int64_t rows, int64_t cols)
{
    char want[64];
    if (cols)
        snprintf(want, sizeof(want), "%lld, %lld", (long long)rows, (long long)cols);
    else
        snprintf(want, sizeof(want), "%lld", (long long)rows);
    l->failed = true;
    return tensor_wrong_shape(t, want, l->e);
}

/* ---------------------------------------------------------------- stored quantised */

static const struct tensor *look_for(const void *loader, const char *name)
{
    return loader_look(loader, name);
}

static bool is_table(enum role role)
{
    return role == W_EMBED || role == W_POSITIONS || role == W_TOKEN_TYPES ||
           role == W_TOKEN_TASKS || role == W_HEAD || role == W_ROUTER;
}

/* True if a matrix in 16 or 32 bits is of the checkpoint's quantisation: see stored.plain. */
static bool takes_plain(struct loader *l, enum role role, int layer, int expert)
{
    const char *scales = l->how->format->suffix[STORED_SCALES];
    char name[NAME_MAX_LEN];
    if (!l->how->plain || is_table(role))
        return false;
    loader_name(l, role, layer, expert, scales ? scales : "", name);
    return !scales || loader_look(l, name);
}

/* Always an error: with the file, which stored_open() does not know. */
static void codes_missing(struct loader *l, const char *base)
{
    char name[2 * NAME_MAX_LEN];
    snprintf(name, sizeof(name), "%s%s", base, l->how->format->suffix[STORED_CODES]);
    checkpoint_missing(l->c, name, l->e);
}

struct mat_part loader_stored(struct loader *l, const char *base, int64_t rows, int64_t cols,
                              stored_find *look_up, const void *ctx)
{
    assert(l->n_stored < MAX_SOURCES);
    struct stored_matrix *m = &l->stored[l->n_stored];
    struct stored how = *l->how;
    how.turns = l->turns;
    if (stored_open(m, &how, base, rows, cols, look_up, ctx, l->e)) {
        if (!m->t[STORED_CODES])
            codes_missing(l, base);
        l->failed = true;
        return (struct mat_part){0};
    }
    l->n_stored++;
    return (struct mat_part){.rows = rows,
                             .cols = cols,
                             .row_stride = cols,
                             .col_stride = 1,
                             .source = SOURCE_STORED,
                             .stored = m,
                             .name = m->t[STORED_CODES]->name};
}

/* True if linear layers lie [in, out]; in GGUF files none does. */
static bool is_turned(const struct loader *l)
{
    return l->d->spec.transposed && !(l->c && l->c->gguf.n);
}

/* The matrix of a role if it is stored quantised. False: it is plain, or missing. */
static bool stored_part(struct loader *l, enum role role, int layer, int expert, int64_t rows,
                        int64_t cols, struct mat_part *out)
{
    char name[NAME_MAX_LEN];
    if (l->failed || !l->c || !l->how->format)
        return false;
    loader_name(l, role, layer, expert, ".weight", name);
    const struct tensor *plain = loader_look(l, name);
    if (plain && loader_is_plain(plain) && !takes_plain(l, role, layer, expert))
        return false;
    if (!plain && loader_switch_mlp(l, role, layer, expert, rows, cols, out))
        return true;
    if (plain && is_turned(l)) {
        l->failed = true;
        err_set(l->e, ERR_VALIDATION,
                "%s: tensor `%s`: transposed weights stored by %s are not supported", plain->file,
                plain->name, l->how->method);
        return true;
    }
    const struct stored_format *f = l->how->format;
    const char *codes = !plain && f->lone ? f->lone : f->suffix[STORED_CODES];
    loader_name(l, role, layer, expert, codes, name); /* of several the one that has codes */
    name[strlen(name) - strlen(codes)] = '\0';
    *out = loader_stored(l, name, rows, cols, look_for, l);
    return true;
}

/* ---------------------------------------------------------------- parts */

/* The whole matrix [rows, cols] of a role; with `bias` its bias [rows], as one column. An empty
 * part after an error. */
struct mat_part loader_part(struct loader *l, enum role role, int layer, int expert, bool bias,
                            int64_t rows, int64_t cols)
{
    bool turned = is_turned(l) && !bias && !is_table(role);
    uint64_t r = (uint64_t)(turned ? cols : rows), c = (uint64_t)(turned ? rows : cols);
    struct mat_part p = {0};
    char name[NAME_MAX_LEN];
    if (!bias && stored_part(l, role, layer, expert, rows, cols, &p))
        return p;
    if (!bias && l->c && loader_grouped(l, role, layer, rows, cols, &p))
        return p;
    loader_name(l, role, layer, expert, bias ? ".bias" : ".weight", name);
    const struct tensor *t =
        l->failed ? NULL : loader_find(l, name, bias ? rows : (int64_t)r, bias ? 0 : (int64_t)c);
    if (!t || loader_type(l, t, &p.dtype))
        return p;
    bool ok = bias ? t->n_dims == 1 && t->dims[0] == (uint64_t)rows
                   : t->n_dims == 2 && t->dims[0] == r && t->dims[1] == c;
    if (!ok) {
        loader_wrong_shape(l, t, (int64_t)r, bias ? 0 : (int64_t)c);
        return p;
    }
    p.data = loader_source(l, t, dtype_size(p.dtype));
    if (!l->c && !p.data)
        p.source = SOURCE_RANDOM, p.random = &l->random[t - l->made];
    p.name = l->c ? t->name : NULL;
    p.rows = rows;
    p.cols = bias ? 1 : cols;
    p.row_stride = bias || turned ? 1 : cols;
    p.col_stride = bias ? 1 : turned ? rows : 1;
    return p;
}

struct mat_part loader_plain_matrix(struct loader *l, enum role role, int layer, int64_t rows,
                                    int64_t cols)
{
    struct mat_part p = {.rows = rows, .cols = cols, .row_stride = cols, .col_stride = 1};
    char name[NAME_MAX_LEN];
    loader_name(l, role, layer, NO_EXPERT, "", name);
    const struct tensor *t = l->failed ? NULL : loader_find(l, name, rows, cols);
    if (!t || loader_type(l, t, &p.dtype))
        return (struct mat_part){0};
    if (t->n_dims != 2 || t->dims[0] != (uint64_t)rows || t->dims[1] != (uint64_t)cols) {
        loader_wrong_shape(l, t, rows, cols);
        return (struct mat_part){0};
    }
    p.data = loader_source(l, t, dtype_size(p.dtype));
    p.name = l->c ? t->name : NULL;
    if (!l->c && !p.data)
        p.source = SOURCE_RANDOM, p.random = &l->random[t - l->made];
    return p;
}

struct mat_part loader_part_at(struct mat_part p, size_t at)
{
    if (p.data)
        p.data = (const char *)p.data + at * dtype_size(p.dtype);
    p.first += at;
    return p;
}

struct mat_part loader_cut(struct mat_part p, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    p = loader_part_at(p, (size_t)(row * p.row_stride + col * p.col_stride));
    p.rows = rows;
    p.cols = cols;
    return p;
}

struct mat_part loader_rows(struct mat_part p, uint32_t first, uint32_t n)
{
    return loader_cut(p, first, n, 0, p.cols);
}

/* ---------------------------------------------------------------- onto the device */

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
                host[at++] = number_at(parts[i].data, parts[i].dtype, k * parts[i].row_stride);
        v = d->ops->vector_load(d->dev, &(struct mat_part){host, DT_F32, rows, 1, 1, 1}, plus,
                                l->e);
    }
    free(host);
    if (!v)
        l->failed = true;
    loader_count(d, (uint64_t)rows, (uint64_t)rows * sizeof(float));
    loader_drop(l);
    return v;
}

float *loader_bias(struct loader *l, enum role role, int layer, uint32_t n)
{
    struct mat_part p = loader_part(l, role, layer, NO_EXPERT, true, n, 1);
    return loader_vector(l, &p, 1, 0);
}

/* All elements of the tensor with this name, in any dimensions; small ones: without a checkpoint
 * they are generated here. An empty part after an error. */
static struct mat_part named_table(struct loader *l, const char *name, int64_t rows, int64_t cols)
{
    struct mat_part p = {.rows = rows, .cols = cols, .row_stride = cols, .col_stride = 1};
    const struct tensor *t = l->failed ? NULL : loader_find(l, name, rows * cols, 0);
    if (!t || loader_type(l, t, &p.dtype))
        return (struct mat_part){0};
    uint64_t elements = 1; /* [n], or in rows: [1, n], [heads, n / heads] */
    for (int i = 0; i < t->n_dims; i++)
        elements *= t->dims[i];
    if (elements != (uint64_t)(rows * cols)) { /* no dimensions: one number */
        loader_wrong_shape(l, t, rows * cols, 0);
        return (struct mat_part){0};
    }
    p.data = loader_source(l, t, dtype_size(p.dtype));
    return p;
}

struct mat_part loader_table_of(struct loader *l, enum role role, int layer, int expert,
                                const char *suffix, int64_t rows, int64_t cols)
{
    char name[NAME_MAX_LEN];
    loader_name(l, role, layer, expert, suffix, name);
    return named_table(l, name, rows, cols);
}

struct mat_part loader_table(struct loader *l, enum role role, int layer, const char *suffix,
                             int64_t rows, int64_t cols)
{
    return loader_table_of(l, role, layer, NO_EXPERT, suffix, rows, cols);
}

/* Elements `s` of the vector [n] with this name, plus a constant. */
static float *named_vector(struct loader *l, const char *name, uint32_t n, struct slice s,
                           float plus)
{
    struct mat_part p = named_table(l, name, n, 1);
    p = loader_rows(p, s.first, s.n);
    return loader_vector(l, &p, 1, plus);
}

float *loader_weight_slice(struct loader *l, enum role role, int layer, uint32_t n, struct slice s)
{
    char name[NAME_MAX_LEN];
    loader_name(l, role, layer, NO_EXPERT, ".weight", name);
    return named_vector(l, name, n, s, l->d->spec.norm.plus);
}

float *loader_norm_vector(struct loader *l, enum role role, int layer, uint32_t n, float plus)
{
    char name[NAME_MAX_LEN];
    loader_name(l, role, layer, NO_EXPERT, ".weight", name);
    return named_vector(l, name, n, (struct slice){0, n}, plus);
}

float *loader_weight_vector(struct loader *l, enum role role, int layer, uint32_t n)
{
    return loader_norm_vector(l, role, layer, n, l->d->spec.norm.plus);
}

float *loader_host_vector(struct loader *l, const float *x, uint32_t n)
{
    struct mat_part p = {
        .data = x, .dtype = DT_F32, .rows = n, .cols = 1, .row_stride = 1, .col_stride = 1};
    return loader_vector(l, &p, 1, 0);
}

struct weight *loader_host_matrix(struct loader *l, const float *x, int64_t rows, int64_t cols)
{
    struct mat_part p = {.data = x,
                         .dtype = DT_F32,
                         .rows = rows,
                         .cols = cols,
                         .row_stride = cols,
                         .col_stride = 1};
    return l->failed ? NULL : loader_pack(l, &p, 1, DT_F32, QUANT_NONE);
}

float *loader_constants(struct loader *l, uint32_t n, float value)
{
    float *host = malloc(n * sizeof(*host));
    if (!host) {
        loader_nomem(l);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++)
        host[i] = value;
    float *v = loader_host_vector(l, host, n);
    free(host);
    return v;
}

float *loader_plain_vector(struct loader *l, enum role role, int layer, uint32_t n, struct slice s)
{
    char name[NAME_MAX_LEN];
    loader_name(l, role, layer, NO_EXPERT, "", name);
    return named_vector(l, name, n, s, 0);
}

float loader_number(struct loader *l, enum role role, int layer)
{
    char name[NAME_MAX_LEN];
    enum dtype type;
    float x = 0;
    loader_name(l, role, layer, NO_EXPERT, "", name);
    const struct tensor *t = l->failed ? NULL : loader_find(l, name, 1, 0);
    if (!t || loader_type(l, t, &type))
        return 0;
    if (t->bytes != dtype_size(type))
        loader_wrong_shape(l, t, 1, 0);
    else
        x = number_at(loader_source(l, t, dtype_size(type)), type, 0);
    if (!l->failed && (x == 0 || !isfinite(x))) {
        l->failed = true;
        err_set(l->e, ERR_VALIDATION, "%s: tensor `%s` is %g", t->file, t->name, (double)x);
    }
    loader_drop(l);
    return x;
}
