/* Writes a GGUF file. From a GGUF file: the same tensors, requantised if the mix says so. From a
 * folder: the tensors under llama.cpp's names, with stacked experts and rows of q and k in
 * rotation pairs. */
#include "common/gguf/set.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/gguf_names.h"
#include "model-server/model/checkpoint/gguf_weights.h"
#include "model-server/quantize/encode.h"
#include "model-server/quantize/gguf_head.h"
#include "model-server/quantize/gguf_mix.h"
#include "model-server/quantize/quantize.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 160, CHUNK_ROWS = 256 };

struct gguf_out {
    char *name; /* owned */
    enum gguf_packing packing;
    int n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* neighbours first */
    uint64_t rows, cols;
    int64_t out;
    uint32_t unit;
    struct tensor raw; /* from a GGUF file: its stored form */
    bool from_raw;
    /* Source tensors: one, or one per expert. */
    const struct source_tensor **pieces; /* owned */
    uint32_t n_pieces;
    uint32_t paired; /* rows of a head, or 0 */
    float *made;     /* owned: numbers that no tensor has */
};
struct gguf_state {
    const struct gguf_mix *mix;
    const struct gguf_made *family;
    struct gguf_out *t;
    uint32_t n;
};

static void release(void *state)
{
    struct gguf_state *s = state;
    for (uint32_t i = 0; i < s->n; i++)
        free(s->t[i].name), free(s->t[i].pieces), free(s->t[i].made);
    free(s->t);
    free(s);
}

static struct gguf_out *more(struct gguf_state *s, const char *name)
{
    struct gguf_out *t = realloc(s->t, (s->n + 1) * sizeof(*t));
    if (!t)
        return NULL;
    s->t = t;
    t = &s->t[s->n];
    *t = (struct gguf_out){.name = strdup(name), .dims = {1, 1, 1, 1}};
    if (!t->name)
        return NULL;
    s->n++;
    return t;
}

static void shape(struct gguf_out *t)
{
    t->cols = t->dims[0];
    t->rows = 1;
    for (int i = 1; i < GGUF_MAX_DIMS; i++)
        t->rows *= t->dims[i];
}

static bool add_piece(struct gguf_out *t, const struct source_tensor *p)
{
    // NOLINTNEXTLINE(bugprone-sizeof-expression): of pointers, indeed
    const struct source_tensor **list = realloc(t->pieces, (t->n_pieces + 1) * sizeof(*list));
    if (!list)
        return false;
    t->pieces = list;
    t->pieces[t->n_pieces++] = p;
    return true;
}

/* ---------------------------------------------------------------- of a GGUF file */

static int of_file(struct run *r, struct gguf_state *s, const struct gguf *file, struct err *e)
{
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        const struct gguf_tensor *g = &file->tensors[i];
        unsigned layer;
        if (gguf_packings[g->packing].elements > 1)
            return err_set(e, ERR_VALIDATION, "%s: it is quantised already (`%s` is %s)",
                           file->path, g->name, gguf_packings[g->packing].name);
        if (g->packing != GGUF_F32 && g->packing != GGUF_F16 && g->packing != GGUF_BF16)
            return err_set(e, ERR_VALIDATION, "%s: tensor `%s` is %s: not read", file->path,
                           g->name, gguf_packings[g->packing].name);
        struct gguf_out *t = more(s, g->name);
        if (!t)
            return err_nomem(e);
        t->raw = (struct tensor){.name = g->name,
                                 .file = file->path,
                                 .type = T_BLOCKS,
                                 .packing = (int)g->packing,
                                 .data = g->data,
                                 .bytes = g->bytes};
        t->from_raw = true;
        t->packing = g->packing;
        t->n_dims = g->n_dims;
        memcpy(t->dims, g->dims, sizeof(t->dims));
        shape(t);
        if (sscanf(g->name, "blk.%u.", &layer) == 1 && layer + 1 < r->source.n_units)
            t->unit = layer + 1;
        for (uint32_t k = 0; k < r->source.n; k++) {
            const struct tensor *x = r->source.tensors[k].t;
            if (strcmp(x->file, file->path) == 0 && x->begin >= g->begin &&
                x->begin < g->begin + g->bytes && !add_piece(t, &r->source.tensors[k]))
                return err_nomem(e);
        }
    }
    return 0;
}

/* Experts in storage order. */
static int by_place(const void *a, const void *b)
{
    const struct tensor *x = (*(const struct source_tensor *const *)a)->t;
    const struct tensor *y = (*(const struct source_tensor *const *)b)->t;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* ---------------------------------------------------------------- of a folder */

static bool expert_role(enum role r) { return r == W_MOE_GATE || r == W_MOE_UP || r == W_MOE_DOWN; }

/* The role in the file. A tied head is the embedding, under either name or both; one that differs
 * is a head of its own, as for the loader. W_ROLES: a copy, which is left out. */
static enum role role_of(const struct run *r, const struct source_tensor *x)
{
    if (x->use.role != W_HEAD || !walk_spec(r->walk)->tied)
        return x->use.role;
    const struct source_tensor *of = source_find(&r->source, W_EMBED, -1, -1, ".weight");
    if (!of)
        return W_EMBED;
    const struct tensor *a = x->t, *b = of->t;
    const bool same =
        a->type == b->type && a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
    return same ? W_ROLES : W_HEAD;
}

static int of_tensor(struct run *r, struct gguf_state *s, const struct source_tensor *x,
                     struct err *e)
{
    const struct decoder_spec *d = walk_spec(r->walk);
    const enum role role = role_of(r, x);
    const char *pattern = role == W_ROLES ? NULL : gguf_weights_name(role);
    const char *star = pattern ? strchr(pattern, '*') : NULL;
    char name[NAME];
    struct gguf_out *t = NULL;
    if (role == W_ROLES && x->use.role == W_HEAD)
        return 0;
    if (!pattern)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has no name in GGUF", x->t->file,
                       x->t->name);
    if (star)
        snprintf(name, sizeof(name), "%.*s%d%s%s", (int)(star - pattern), pattern, x->use.layer,
                 star + 1, x->use.suffix);
    else
        snprintf(name, sizeof(name), "%s%s", pattern, x->use.suffix);
    if (x->t->n_dims < 1 || x->t->n_dims > 2)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has %d dimensions: not written as GGUF",
                       x->t->file, x->t->name, x->t->n_dims);
    for (uint32_t i = 0; i < s->n && expert_role(x->use.role); i++)
        if (strcmp(s->t[i].name, name) == 0)
            t = &s->t[i];
    if (!t && !(t = more(s, name)))
        return err_nomem(e);
    if (!add_piece(t, x))
        return err_nomem(e);
    t->packing = x->t->n_dims == 1     ? GGUF_F32
                 : x->t->type == T_F32 ? GGUF_F32
                 : x->t->type == T_F16 ? GGUF_F16
                                       : GGUF_BF16;
    if (!gguf_mix_packs(name, x->t->n_dims))
        t->packing = GGUF_F32;
    t->n_dims = x->t->n_dims;
    for (int i = 0; i < t->n_dims; i++)
        t->dims[i] = x->t->dims[t->n_dims - 1 - i];
    if (expert_role(x->use.role)) {
        t->n_dims = 3;
        t->dims[2] = t->n_pieces;
    }
    t->unit = x->unit;
    if (s->family && s->family->paired && (x->use.role == W_Q || x->use.role == W_K))
        t->paired = d->head_dim;
    shape(t);
    return 0;
}

static int by_expert(const void *a, const void *b)
{
    const struct source_tensor *x = *(const struct source_tensor *const *)a;
    const struct source_tensor *y = *(const struct source_tensor *const *)b;
    return (x->use.expert > y->use.expert) - (x->use.expert < y->use.expert);
}

static int add_factors(struct run *r, struct gguf_state *s, struct err *e)
{
    const struct decoder_spec *d = walk_spec(r->walk);
    float factors[ROPE_MAX_DIM / 2];
    if (!gguf_rope_factors(d, factors))
        return 0;
    struct gguf_out *t = more(s, "rope_freqs.weight");
    const uint32_t n = d->rope[0].dim / 2;
    if (!t || !(t->made = malloc(n * sizeof(float))))
        return err_nomem(e);
    memcpy(t->made, factors, n * sizeof(float));
    t->n_dims = 1;
    t->dims[0] = n;
    t->packing = GGUF_F32;
    shape(t);
    return 0;
}

/* ---------------------------------------------------------------- types */

static const char *kind_of(const char *name)
{
    const char *dot = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
    return dot ? dot + 1 : name;
}

/* The index of the tensor among those of its kind, in the order of layers, and their number. */
static void count_kind(const struct gguf_state *s, const struct gguf_out *t, struct gguf_place *p)
{
    p->layers = p->layer = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (strcmp(kind_of(s->t[i].name), kind_of(t->name)) != 0)
            continue;
        p->layers++;
        p->layer += s->t[i].unit < t->unit;
    }
}

static bool excluded(const struct run *r, const char *name)
{
    for (uint32_t i = 0; i < r->o->n_exclude; i++)
        if (strstr(name, r->o->exclude[i]))
            return true;
    return false;
}

static void choose_types(struct run *r, struct gguf_state *s)
{
    const struct decoder_spec *d = walk_spec(r->walk);
    bool tied = true;
    for (uint32_t i = 0; i < s->n; i++)
        tied &= strcmp(s->t[i].name, "output.weight") != 0;
    for (uint32_t i = 0; i < s->n; i++) {
        struct gguf_out *t = &s->t[i];
        struct gguf_place p = {.name = t->name,
                               .cols = t->cols,
                               .experts = d->moe.n_experts,
                               .heads_of_kv = d->n_heads / (d->n_kv_heads ? d->n_kv_heads : 1),
                               .tied = tied,
                               .weighted = r->calibrated};
        if (!gguf_mix_packs(t->name, t->n_dims) || excluded(r, t->name) || t->made)
            continue;
        count_kind(s, t, &p);
        t->packing = gguf_mix_type(s->mix, &p);
    }
}

/* ---------------------------------------------------------------- the file */

static int list_tensors(struct run *r, struct gguf_state *s, struct err *e)
{
    const struct gguf_set *set = &walk_checkpoint(r->walk)->gguf.set;
    for (uint32_t f = 0; f < set->n; f++)
        if (of_file(r, s, &set->files[f], e))
            return -1;
    if (!set->n && add_factors(r, s, e))
        return -1;
    for (uint32_t i = 0; !set->n && i < r->source.n; i++)
        if (of_tensor(r, s, &r->source.tensors[i], e))
            return -1;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->t[i].n_pieces)
            // NOLINTNEXTLINE(bugprone-sizeof-expression): of pointers, indeed
            qsort(s->t[i].pieces, s->t[i].n_pieces, sizeof(s->t[i].pieces[0]),
                  set->n ? by_place : by_expert);
    return 0;
}

static uint64_t bytes_of(const struct gguf_out *t)
{
    const struct gguf_packing_info *k = &gguf_packings[t->packing];
    return t->rows * (t->cols / k->elements * k->bytes);
}

static int write_head(struct run *r, struct gguf_state *s, struct err *e)
{
    const struct gguf_set *set = &walk_checkpoint(r->walk)->gguf.set;
    struct gguf_head h = {{0}};
    struct buf head = BUF_INIT;
    int rc = 0;
    if (set->n)
        gguf_head_copy(&h, &set->files[0]);
    else
        rc = gguf_head_make(&h, s->family, r->o->model, walk_spec(r->walk), e);
    gguf_head_u32(&h, "general.file_type", s->mix->file_type);
    gguf_head_u32(&h, "general.quantization_version", 2);
    for (uint32_t i = 0; rc == 0 && i < s->n; i++)
        rc = (s->t[i].out = out_add(&r->out, s->t[i].name, gguf_packings[s->t[i].packing].name,
                                    s->t[i].n_dims, s->t[i].dims, bytes_of(&s->t[i]), e)) < 0
                 ? -1
                 : 0;
    if (rc == 0)
        out_place(&r->out, GGUF_ALIGN);
    for (uint32_t i = 0; rc == 0 && i < s->n; i++)
        gguf_head_tensor(&h, s->t[i].name, s->t[i].packing, s->t[i].n_dims, s->t[i].dims,
                         r->out.tensors[s->t[i].out].at);
    if (gguf_head_finish(&h, &head, e))
        rc = -1;
    if (rc == 0)
        rc = out_create_file(&r->out, "model.gguf", &head, GGUF_ALIGN, e);
    buf_free(&head);
    return rc;
}

static int declare(struct run *r, struct err *e)
{
    struct gguf_state *s = calloc(1, sizeof(*s));
    if (!s)
        return err_nomem(e);
    r->state = s;
    r->free_state = release;
    if (!(s->mix = gguf_mix_find(strchr(r->o->method, ':') + 1, e)))
        return -1;
    if (!walk_checkpoint(r->walk)->gguf.n && !(s->family = gguf_made_find(walk_type(r->walk), e)))
        return -1;
    if (list_tensors(r, s, e))
        return -1;
    choose_types(r, s);
    return write_head(r, s, e);
}

/* ---------------------------------------------------------------- rows */

struct pack_job {
    const struct gguf_out *t;
    uint64_t first;
    const struct layer_set *set;
    uint8_t *bytes; /* of rows from `first` on */
    bool failed;
};

/* Row `row` of the tensor in its final order: its numbers, and the cost of errors of its
 * columns. */
static const float *row_of(const struct pack_job *j, uint64_t row, float *x)
{
    const struct gguf_out *t = j->t;
    const uint64_t each = t->n_pieces ? t->rows / t->n_pieces : t->rows;
    const struct source_tensor *piece = t->n_pieces ? t->pieces[row / each] : NULL;
    if (t->made)
        memcpy(x, t->made + row * t->cols, t->cols * sizeof(*x));
    else if (t->from_raw)
        source_numbers(&t->raw, row * t->cols, t->cols, x);
    else if (piece) {
        uint64_t at = row % each;
        if (t->paired) { /* even rows of a head come from its first half */
            const uint64_t i = at % t->paired;
            at = at - i + i / 2 + (i % 2 ? t->paired / 2 : 0);
        }
        source_numbers(piece->t, at * t->cols, t->cols, x);
    }
    for (uint32_t i = 0; piece && j->set && i < j->set->n; i++)
        if (j->set->t[i].s == piece)
            return j->set->t[i].weight;
    return NULL;
}

static void pack_rows(void *arg, int thread, size_t begin, size_t end)
{
    struct pack_job *j = arg;
    const struct gguf_out *t = j->t;
    const struct gguf_packing_info *k = &gguf_packings[t->packing];
    float *x = malloc(t->cols * sizeof(*x));
    (void)thread;
    for (size_t i = begin; x && i < end; i++) {
        const float *weight = row_of(j, j->first + i, x);
        encode_row(t->packing, x, weight, t->cols,
                   j->bytes + i * (t->cols / k->elements * k->bytes));
    }
    if (!x)
        __atomic_store_n(&j->failed, true, __ATOMIC_RELAXED);
    free(x);
}

/* Vectors with one number per row: biases of q and k in pairs. */
static int write_vector(struct run *r, const struct gguf_out *t, struct err *e)
{
    float *x = malloc((t->cols + 1) * sizeof(*x)), *y = malloc((t->cols + 1) * sizeof(*y));
    int rc = x && y ? 0 : err_nomem(e);
    if (rc == 0) {
        source_numbers(t->pieces[0]->t, 0, t->cols, x);
        for (uint64_t k = 0; k < t->cols; k++) {
            const uint64_t i = k % t->paired;
            y[k] = x[k - i + i / 2 + (i % 2 ? t->paired / 2 : 0)];
        }
        rc = out_write(&r->out, (uint32_t)t->out, 0, y, t->cols * sizeof(*y), e);
    }
    free(x), free(y);
    return rc;
}

static int write_tensor(struct run *r, const struct gguf_out *t, const struct layer_set *set,
                        struct err *e)
{
    const struct gguf_packing_info *k = &gguf_packings[t->packing];
    const uint64_t line = t->cols / k->elements * k->bytes;
    if (t->n_dims == 1 && t->paired)
        return write_vector(r, t, e);
    struct pack_job j = {.t = t, .set = set, .bytes = malloc(CHUNK_ROWS * line + 1)};
    int rc = j.bytes ? 0 : err_nomem(e);
    for (; rc == 0 && j.first < t->rows; j.first += CHUNK_ROWS) {
        const uint64_t n = t->rows - j.first < CHUNK_ROWS ? t->rows - j.first : CHUNK_ROWS;
        workers_run(&r->workers, pack_rows, &j, n);
        rc = j.failed ? err_nomem(e)
                      : out_write(&r->out, (uint32_t)t->out, j.first * line, j.bytes, n * line, e);
    }
    free(j.bytes);
    for (uint32_t i = 0; i < t->n_pieces; i++)
        tensor_release(t->pieces[i]->t);
    return rc;
}

static int write_unit(struct run *r, struct layer_set *set, struct err *e)
{
    const struct gguf_state *s = r->state;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->t[i].unit == (uint32_t)(set->layer + 1) && write_tensor(r, &s->t[i], set, e))
            return -1;
    return 0;
}

static int finish(struct run *r, struct err *e)
{
    (void)r, (void)e;
    return 0;
}

const struct target target_gguf = {declare, write_unit, finish};
