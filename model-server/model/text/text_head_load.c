/* text_head_load.c - finds the stages of a head in the files of a checkpoint. */
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/blocks.h"
#include "model-server/model/text/text_head_impl.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_JSON = 16 * 1024 * 1024 };

/* ---------------------------------------------------------------- tensors */

/* The same of packed blocks. */
static void block_elements(const struct tensor *t, uint64_t first, uint64_t n, float *out)
{
    const struct gguf_packing_info *k = &gguf_packings[t->packing];
    float block[BLOCK_MAX];
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at = first + i;
        if (i == 0 || at % k->elements == 0)
            block_numbers((enum gguf_packing)t->packing,
                          (const uint8_t *)t->data + at / k->elements * k->bytes, block);
        out[i] = block[at % k->elements];
    }
}

int head_numbers(const struct tensor *t, uint64_t first, uint64_t n, float *out, struct err *e)
{
    const char *p = t->data;
    if (t->type == T_BLOCKS && !t->row_at && !t->col_at)
        return block_elements(t, first, n, out), 0;
    if (t->type != T_F32 && t->type != T_F16 && t->type != T_BF16)
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s` has dtype %s; weights must be F32, F16 or BF16", t->file,
                       t->name, tensor_type_name(t->type));
    const size_t size = t->type == T_F32 ? 4 : 2;
    for (uint64_t i = 0; i < n; i++) {
        uint16_t h = 0;
        if (t->type == T_F32)
            memcpy(&out[i], p + (first + i) * size, sizeof(float));
        else
            memcpy(&h, p + (first + i) * size, sizeof(h));
        if (t->type != T_F32)
            out[i] = t->type == T_F16 ? f32_of_f16(h) : f32_of_bf16(h);
    }
    return 0;
}

const struct tensor *head_named(const struct checkpoint *c, const char *name, const char *suffix)
{
    char full[TENSOR_NAME_CAP];
    snprintf(full, sizeof(full), "%s%s", name, suffix);
    return checkpoint_find(c, full);
}

float *head_vector(const struct checkpoint *c, const char *name, const char *suffix, uint32_t n,
                   struct err *e)
{
    const struct tensor *t = head_named(c, name, suffix);
    float *v = t ? malloc(n * sizeof(*v)) : NULL;
    if (!t)
        return NULL;
    if (t->n_dims != 1 || t->dims[0] != n) {
        char want[32];
        snprintf(want, sizeof(want), "%u", n);
        tensor_wrong_shape(t, want, e);
    } else if (!v) {
        err_nomem(e);
    } else if (head_numbers(t, 0, n, v, e) == 0) {
        return v;
    }
    free(v);
    return NULL;
}

int head_add_stage(struct text_head *h, const struct checkpoint *c, const char *name,
                   enum head_act act, struct err *e)
{
    const struct tensor *t = head_named(c, name, ".weight");
    const uint32_t in = h->width;
    struct head_stage *s = &h->stages[h->n_stages];
    if (!t) {
        char full[TENSOR_NAME_CAP];
        snprintf(full, sizeof(full), "%s.weight", name);
        return checkpoint_missing(c, full, e);
    }
    if (t->n_dims != 2 || t->dims[1] != in || !t->dims[0] || t->dims[0] > 1u << 20) {
        char want[64];
        snprintf(want, sizeof(want), "outputs, %u", in);
        return tensor_wrong_shape(t, want, e);
    }
    h->n_stages++;
    *s = (struct head_stage){.in = in, .out = (uint32_t)t->dims[0], .act = act, .unit = s->unit};
    h->width = s->out;
    if (!(s->w = calloc((size_t)s->in * s->out, sizeof(*s->w))))
        return err_nomem(e);
    if (head_numbers(t, 0, (uint64_t)s->in * s->out, s->w, e))
        return -1;
    s->b = head_vector(c, name, ".bias", s->out, e);
    return !s->b && head_named(c, name, ".bias") ? -1 : 0;
}

/* ---------------------------------------------------------------- Dense modules */

static int dense_act(const cJSON *j, const char *folder, enum head_act *out, struct err *e)
{
    static const struct {
        const char *class;
        enum head_act act;
    } acts[] = {{"Tanh", HEAD_TANH}, {"Identity", HEAD_PLAIN},  {"GELU", HEAD_GELU},
                {"ReLU", HEAD_RELU}, {"Sigmoid", HEAD_SIGMOID}, {"SiLU", HEAD_SILU},
                {"ELU", HEAD_ELU}};
    const char *name = json_str(j, "activation_function", "Tanh"), *dot = strrchr(name, '.');
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
        if (strcmp(dot ? dot + 1 : name, acts[i].class) == 0) {
            *out = acts[i].act;
            return 0;
        }
    return err_set(e, ERR_VALIDATION, "%s: activation `%.60s` is not supported", folder, name);
}

/* Modules that work on something else give other vectors. */
static int dense_of_sentence(const struct sentence *s, const cJSON *j, const char *folder,
                             enum head_act *act, struct err *e)
{
    const char *usual = s->tokens ? "token_embeddings" : "sentence_embedding";
    static const char *const keys[] = {"module_input_name", "module_output_name"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const char *on = json_str(j, keys[i], usual);
        if (strcmp(on, usual) != 0)
            return err_set(e, ERR_VALIDATION, "%s: `%s` %.60s is not supported", folder, keys[i],
                           on);
    }
    return dense_act(j, folder, act, e);
}

/* A Dense module with `use_residual` adds its input, by a matrix where the widths differ. */
static int add_residual(struct head_stage *s, const struct checkpoint *c, struct err *e)
{
    const struct tensor *t = checkpoint_find(c, "residual.weight");
    s->residual = true;
    if (!t && s->in == s->out)
        return 0;
    if (!t)
        return checkpoint_missing(c, "residual.weight", e);
    if (t->n_dims != 2 || t->dims[0] != s->out || t->dims[1] != s->in) {
        char want[64];
        snprintf(want, sizeof(want), "%u, %u", s->out, s->in);
        return tensor_wrong_shape(t, want, e);
    }
    if (!(s->r = malloc((size_t)s->in * s->out * sizeof(*s->r))))
        return err_nomem(e);
    return head_numbers(t, 0, (uint64_t)s->in * s->out, s->r, e);
}

/* A LayerNorm module; torch's eps. */
static int norm_stage(struct text_head *h, const struct checkpoint *c, struct err *e)
{
    struct head_stage *s = &h->stages[h->n_stages++];
    s->in = s->out = h->width;
    s->norm_eps = 1e-5F;
    s->norm = head_vector(c, "norm", ".weight", s->out, e);
    s->norm_b = s->norm ? head_vector(c, "norm", ".bias", s->out, e) : NULL;
    if (s->norm && s->norm_b)
        return 0;
    return head_named(c, "norm", s->norm ? ".bias" : ".weight")
               ? -1
               : checkpoint_missing(c, "norm.weight, norm.bias", e);
}

/* In a GGUF file the matrix of the folder "2_Dense" is the tensor dense_2. */
static int add_dense(struct text_head *h, const struct text_head_options *o, uint32_t which,
                     struct err *e)
{
    const char *folder = o->sentence->dense[which];
    const char *dir = o->dir;
    const bool norm = o->sentence->dense_is_norm[which];
    char path[PATH_MAX], file[PATH_MAX];
    struct checkpoint c;
    enum head_act act = HEAD_TANH;
    struct head_stage *s = &h->stages[h->n_stages];
    if (snprintf(path, sizeof(path), "%s/%s", dir, folder) >= PATH_MAX ||
        snprintf(file, sizeof(file), "%s/config.json", path) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", dir);
    cJSON *j = model_file_json(file, SMALL_JSON, e);
    if (!j)
        return -1;
    int rc = norm ? 0 : dense_of_sentence(o->sentence, j, path, &act, e);
    const bool residual = json_bool(j, "use_residual", false);
    s->unit = o->sentence->dense_of_unit[which];
    cJSON_Delete(j);
    if (rc == 0 && o->c && o->c->gguf.set.n) {
        snprintf(file, sizeof(file), "dense_%d", atoi(folder));
        return head_add_stage(h, o->c, file, act, e);
    }
    if (rc || checkpoint_open(&c, path, NULL, e))
        return -1;
    rc = norm ? norm_stage(h, &c, e) : head_add_stage(h, &c, "linear", act, e);
    if (rc == 0 && residual && !norm)
        rc = add_residual(s, &c, e);
    checkpoint_close(&c);
    return rc;
}

/* ---------------------------------------------------------------- tokens */

/* Stages of each token: of its labels, or a narrower vector. */
static int token_stages(struct text_head *h, const struct text_head_options *o, struct err *e)
{
    const struct checkpoint *c = o->c;
    const struct sentence *s = o->sentence;
    for (uint32_t i = 0; i < s->n_dense; i++)
        if (add_dense(h, o, i, e))
            return -1;
    if (s->listwise)
        return head_add_stage(h, c, "projector.0", HEAD_RELU, e) ||
                       head_add_stage(h, c, "projector.2", HEAD_PLAIN, e)
                   ? -1
                   : 0;
    if (s->late.visual)
        return head_add_stage(h, c, s->late.visual->matrix, HEAD_PLAIN, e);
    if (h->task == TASK_TOKEN_EMBED)
        return s->n_dense ? 0 : head_add_stage(h, c, "linear", HEAD_PLAIN, e);
    return head_token_labels(h, o, e);
}

/* ---------------------------------------------------------------- loading */

/* The matrix of rows of hidden states. A mean of its results is its result of the mean, but the
 * greatest of them are not. */
static int vector_stage(struct text_head *h, const struct text_head_options *o, struct err *e)
{
    char name[TENSOR_NAME_CAP], weight[TENSOR_NAME_CAP];
    if (!o->vector || !o->c)
        return 0;
    if (h->pooling & POOL_MAX || __builtin_popcount(h->pooling) > 1)
        return err_set(e, ERR_VALIDATION, "%s: the greatest numbers of rows are not supported",
                       o->dir);
    snprintf(weight, sizeof(weight), "%s.weight", o->vector);
    const struct tensor *t = checkpoint_find_weight(o->c, o->arch, weight);
    if (!t)
        return checkpoint_missing(o->c, weight, e);
    snprintf(name, sizeof(name), "%.*s", (int)(strlen(t->name) - strlen(".weight")), t->name);
    if (head_add_stage(h, o->c, name, HEAD_PLAIN, e))
        return -1;
    h->row_stages = h->n_stages;
    return 0;
}

/* Of models that compare texts with images. */
static int read_cosines(struct text_head *h, const struct checkpoint *c, struct err *e)
{
    const struct tensor *scale = checkpoint_find(c, "logit_scale");
    const struct tensor *plus = checkpoint_find(c, "logit_bias");
    if (!scale)
        return 0;
    for (uint32_t i = 0; i < 2; i++) {
        const struct tensor *t = i ? plus : scale;
        if (t && (t->n_dims > 1 || (t->n_dims == 1 && t->dims[0] != 1)))
            return tensor_wrong_shape(t, "1", e);
        if (t && head_numbers(t, 0, 1, i ? &h->cosines.plus : &h->cosines.scale, e))
            return -1;
    }
    h->cosines.scale = expf(h->cosines.scale);
    h->cosines.each = plus != NULL;
    return 0;
}

/* The only stage: `weight` [out, hidden] and `bias` [out] of a file of BGE-M3. */
static int stage_of_file(struct text_head *h, const struct text_head_options *o, const char *choice,
                         const char *file, uint32_t out, struct err *e)
{
    char path[PATH_MAX], want[32], want_bias[16];
    struct tensor_file t;
    struct head_stage *s = &h->stages[0];
    if (!o->dir)
        return err_set(e, ERR_VALIDATION, "--pooling %s needs a checkpoint", choice);
    if (snprintf(path, sizeof(path), "%s/%s", o->dir, file) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", o->dir);
    if (tensor_file_open(&t, path, e))
        return err_wrap(e, "--pooling %s needs %s", choice, file);
    const struct tensor *w = tensor_file_find(&t, "weight"), *b = tensor_file_find(&t, "bias");
    const uint64_t n = (uint64_t)out * h->hidden;
    int rc = 0;
    *s = (struct head_stage){.in = h->hidden, .out = out};
    h->n_stages = 1;
    snprintf(want, sizeof(want), "%u, %u", out, h->hidden);
    snprintf(want_bias, sizeof(want_bias), "%u", out);
    if (!w || !b)
        rc = err_set(e, ERR_VALIDATION, "%s: no `weight` and `bias`", path);
    else if (w->n_dims != 2 || w->dims[0] != out || w->dims[1] != h->hidden)
        rc = tensor_wrong_shape(w, want, e);
    else if (b->n_dims != 1 || b->dims[0] != out)
        rc = tensor_wrong_shape(b, want_bias, e);
    else if (!(s->w = malloc(n * sizeof(*s->w))) || !(s->b = malloc(out * sizeof(*s->b))))
        rc = err_nomem(e);
    else
        rc = head_numbers(w, 0, n, s->w, e) || head_numbers(b, 0, out, s->b, e) ? -1 : 0;
    tensor_file_close(&t);
    return rc;
}

static int lexical_stage(struct text_head *h, const struct text_head_options *o, struct err *e)
{
    h->n_special = o->n_special;
    memcpy(h->special, o->special, sizeof(h->special));
    return stage_of_file(h, o, "lexical", "sparse_linear.pt", 1, e);
}

static int load_stages(struct text_head *h, const struct text_head_options *o, struct err *e)
{
    const struct sentence *s = o->sentence;
    if (model_task_of_tokens(o->task)) {
        const int rc = s->colbert
                           ? stage_of_file(h, o, "colbert", "colbert_linear.pt", h->hidden, e)
                       : o->c ? token_stages(h, o, e)
                              : err_set(e, ERR_VALIDATION, "rows of tokens need a checkpoint");
        h->row_stages = h->n_stages;
        return rc;
    }
    if (o->task != TASK_EMBED && o->task != TASK_FILL_MASK)
        return head_classifier(h, o, e);
    if (s->sparse) {
        h->sparse = s->sparse;
        h->sparse_twice = s->sparse_twice;
        h->width = o->vocab;
        if (s->n_dense)
            return err_set(e, ERR_VALIDATION,
                           "%s: Dense modules of sparse vectors are not supported", o->dir);
        return s->sparse == SPARSE_LEXICAL ? lexical_stage(h, o, e) : 0;
    }
    h->pooling = s->pooling ? s->pooling : o->both_ways ? POOL_MEAN : POOL_LAST;
    if (__builtin_popcount(h->pooling) > 1)
        memcpy(h->order, s->order, sizeof(h->order));
    if (vector_stage(h, o, e) || (o->c && o->vector && read_cosines(h, o->c, e)))
        return -1;
    h->width *= (uint32_t)__builtin_popcount(h->pooling);
    for (uint32_t i = 0; i < s->n_dense; i++)
        if (add_dense(h, o, i, e))
            return -1;
    return 0;
}

int text_head_load(struct text_head *h, const struct text_head_options *o, struct err *e)
{
    *h = (struct text_head){.task = o->task, .hidden = o->hidden, .width = o->hidden};
    const int rc = load_stages(h, o, e);
    h->row_width = h->row_stages ? h->stages[h->row_stages - 1].out : h->hidden;
    return rc;
}

void text_head_free(struct text_head *h)
{
    for (uint32_t i = 0; i < h->n_stages; i++) {
        const struct head_stage *s = &h->stages[i];
        free(s->w), free(s->b), free(s->r), free(s->norm), free(s->norm_b);
    }
    for (uint32_t i = 0; h->labels && i < h->width; i++)
        free(h->labels[i]);
    free(h->labels);
    *h = (struct text_head){0};
}
