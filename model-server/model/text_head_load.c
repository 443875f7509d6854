/* text_head_load.c - finds the stages of a head in the files of a checkpoint. */
#include "common/json/json.h"
#include "common/model_file.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/blocks.h"
#include "model-server/model/text_head.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_JSON = 16 * 1024 * 1024, MAX_LABELS = 4096 };

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

/* Reads elements [first, first + n) of a tensor, which may be unaligned. */
static int numbers(const struct tensor *t, uint64_t first, uint64_t n, float *out, struct err *e)
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

static const struct tensor *named(const struct checkpoint *c, const char *name, const char *suffix)
{
    char full[TENSOR_NAME_CAP];
    snprintf(full, sizeof(full), "%s%s", name, suffix);
    return checkpoint_find(c, full);
}

/* A vector [n], or NULL if there is none (which is allowed) or after an error. */
static float *vector(const struct checkpoint *c, const char *name, const char *suffix, uint32_t n,
                     struct err *e)
{
    const struct tensor *t = named(c, name, suffix);
    float *v = t ? malloc(n * sizeof(*v)) : NULL;
    if (!t)
        return NULL;
    if (t->n_dims != 1 || t->dims[0] != n) {
        char want[32];
        snprintf(want, sizeof(want), "%u", n);
        tensor_wrong_shape(t, want, e);
    } else if (!v) {
        err_nomem(e);
    } else if (numbers(t, 0, n, v, e) == 0) {
        return v;
    }
    free(v);
    return NULL;
}

/* The stage with `name`.weight and `name`.bias; its inputs are the previous stage's outputs. */
static int add_stage(struct text_head *h, const struct checkpoint *c, const char *name,
                     enum head_act act, struct err *e)
{
    const struct tensor *t = named(c, name, ".weight");
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
    if (numbers(t, 0, (uint64_t)s->in * s->out, s->w, e))
        return -1;
    s->b = vector(c, name, ".bias", s->out, e);
    return !s->b && named(c, name, ".bias") ? -1 : 0;
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
    return numbers(t, 0, (uint64_t)s->in * s->out, s->r, e);
}

/* A LayerNorm module; torch's eps. */
static int norm_stage(struct text_head *h, const struct checkpoint *c, struct err *e)
{
    struct head_stage *s = &h->stages[h->n_stages++];
    s->in = s->out = h->width;
    s->norm_eps = 1e-5F;
    s->norm = vector(c, "norm", ".weight", s->out, e);
    s->norm_b = s->norm ? vector(c, "norm", ".bias", s->out, e) : NULL;
    if (s->norm && s->norm_b)
        return 0;
    return named(c, "norm", s->norm ? ".bias" : ".weight")
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
        return add_stage(h, o->c, file, act, e);
    }
    if (rc || checkpoint_open(&c, path, NULL, e))
        return -1;
    rc = norm ? norm_stage(h, &c, e) : add_stage(h, &c, "linear", act, e);
    if (rc == 0 && residual && !norm)
        rc = add_residual(s, &c, e);
    checkpoint_close(&c);
    return rc;
}

/* ---------------------------------------------------------------- classifiers */

/* Names of a family's classifier, the first behind one of the family's prefixes if it begins with
 * *. The first row with existing tensors is used. */
static const struct recipe {
    const char *first, *norm, *last; /* first NULL: none */
    enum head_act act;               /* of the first */
    const char *of;                  /* first prefix of the only family that has it, or NULL */
    const char *key; /* of config.json, which may name another activation; or NULL */
} recipes[] = {
    {"*pooler.dense", NULL, "classifier", HEAD_TANH, NULL, NULL},
    {"*pooler", NULL, "classifier", HEAD_TANH, "albert.", NULL},
    {"pre_classifier", NULL, "classifier", HEAD_RELU, NULL, NULL}, /* DistilBERT */
    {"classifier.dense", NULL, "classifier.out_proj", HEAD_GELU, "electra.", NULL},
    {"classifier.dense", NULL, "classifier.out_proj", HEAD_GELU, "roformer.", "hidden_act"},
    {"classifier.dense", NULL, "classifier.out_proj", HEAD_GELU, "convbert.", "hidden_act"},
    {"classifier.dense", NULL, "classifier.out_proj", HEAD_GELU_TANH, "bert.",
     "hidden_act"}, /* BigBird */
    {"classifier.dense", NULL, "classifier.out_proj", HEAD_TANH, NULL, NULL},
    {"pooler.dense", NULL, "classifier", HEAD_GELU, "deberta.", NULL},
    {"dense", NULL, "classifier", HEAD_TANH, NULL, NULL}, /* NeoBERT */
    {"classification_head.dense", NULL, "classification_head.out_proj", HEAD_TANH, NULL,
     NULL}, /* BART */
    {"head.dense", "head.norm", "classifier", HEAD_GELU, NULL, "classifier_activation"},
    {NULL, NULL, "score", HEAD_PLAIN, NULL, NULL},
    {"sequence_summary.summary", NULL, "logits_proj", HEAD_TANH, NULL,
     "summary_activation"},                                                     /* XLNet */
    {NULL, NULL, "sequence_summary.summary", HEAD_PLAIN, "transformer.", NULL}, /* XLM */
    {"cls", "cls.norm", "cls.output", HEAD_GELU, "model.", NULL}, /* in GGUF: ModernBERT */
    {"cls", NULL, "cls.output", HEAD_RELU, "distilbert.", NULL},
    {"cls", NULL, "cls.output", HEAD_TANH, NULL, NULL},
    {NULL, NULL, "cls.output", HEAD_PLAIN, NULL, NULL}};

/* The activation that config.json names under `key`, which may be NULL, or `usual`. */
static int named_act(const cJSON *config, const char *key, enum head_act usual, enum head_act *out,
                     struct err *e)
{
    static const struct {
        const char *name;
        enum head_act act;
    } acts[] = {{"gelu", HEAD_GELU}, {"gelu_new", HEAD_GELU_TANH},
                {"relu", HEAD_RELU}, {"gelu_pytorch_tanh", HEAD_GELU_TANH},
                {"silu", HEAD_SILU}, {"swish", HEAD_SILU},
                {"tanh", HEAD_TANH}, {"sigmoid", HEAD_SIGMOID}};
    const char *name = key ? json_str(config, key, NULL) : NULL;
    *out = usual;
    for (size_t i = 0; name && i < sizeof(acts) / sizeof(acts[0]); i++)
        if (strcmp(name, acts[i].name) == 0) {
            *out = acts[i].act;
            return 0;
        }
    return name ? err_set(e, ERR_VALIDATION, "config.json: `%s`: `%.40s` is not supported", key,
                          name)
                : 0;
}

/* Writes the name of a recipe's first matrix in this checkpoint. False: it has none. */
static bool first_name(const struct recipe *r, const struct checkpoint *c, const struct arch *a,
                       char out[TENSOR_NAME_CAP])
{
    const char *prefix;
    size_t n;
    snprintf(out, TENSOR_NAME_CAP, "%s", r->first);
    if (*r->first != '*')
        return named(c, out, ".weight");
    for (int k = 0; (prefix = arch_prefix(a, k, &n)); k++) {
        snprintf(out, TENSOR_NAME_CAP, "%.*s%s", (int)n, prefix, r->first + 1);
        if (named(c, out, ".weight"))
            return true;
    }
    return false;
}

/* plain: the classifier is its last matrix alone (MobileBERT). */
static const struct recipe *recipe_of(const struct checkpoint *c, const struct arch *a, bool plain,
                                      char first[TENSOR_NAME_CAP])
{
    static const struct recipe alone = {NULL, NULL, "classifier", HEAD_PLAIN, NULL, NULL};
    size_t n;
    const char *own = arch_prefix(a, 0, &n);
    if (plain && named(c, alone.last, ".weight"))
        return &alone;
    for (size_t i = 0; i < sizeof(recipes) / sizeof(recipes[0]); i++) {
        const struct recipe *r = &recipes[i];
        if (named(c, r->last, ".weight") && (!r->first || first_name(r, c, a, first)) &&
            (!r->of || (own && strlen(r->of) == n && strncmp(own, r->of, n) == 0)))
            return r;
    }
    return NULL;
}

static int read_labels(struct text_head *h, const cJSON *config, struct err *e)
{
    const cJSON *map = json_get(config, "id2label"), *j;
    if (h->width > MAX_LABELS)
        return err_set(e, ERR_VALIDATION, "a classifier with %u labels", h->width);
    if (!(h->labels = calloc(h->width, sizeof(*h->labels))))
        return err_nomem(e);
    for (uint32_t i = 0; i < h->width; i++) {
        char key[24], def[32];
        snprintf(key, sizeof(key), "%u", i);
        snprintf(def, sizeof(def), "LABEL_%u", i);
        j = json_get(map, key);
        if (!(h->labels[i] = strdup(cJSON_IsString(j) ? j->valuestring : def)))
            return err_nomem(e);
    }
    return 0;
}

/* The logit of "yes" minus that of "no" is the logit of their softmax. Some models' score is
 * the first logit. */
static int yes_or_no(struct text_head *h, const struct text_head_options *o, struct err *e)
{
    const struct tensor *t = checkpoint_find_weight(o->c, o->arch, o->lm_head);
    struct head_stage *s = &h->stages[h->n_stages];
    float *no = calloc(h->width, sizeof(*no));
    if (!t)
        t = checkpoint_find_weight(o->c, o->arch, o->embed);
    *s = (struct head_stage){.in = h->width, .out = 1, .w = malloc(h->width * sizeof(*s->w))};
    h->n_stages++;
    int rc = 0;
    if (!s->w || !no)
        rc = err_nomem(e);
    else if (!t || t->n_dims != 2 || t->dims[1] != h->width || o->yes >= t->dims[0] ||
             (!o->yes_alone && o->no >= t->dims[0]))
        rc = err_set(e, ERR_VALIDATION, "%s: no head with rows for the answers of a reranker",
                     o->dir);
    else
        rc = numbers(t, (uint64_t)o->yes * h->width, h->width, s->w, e) ||
                     (!o->yes_alone && numbers(t, (uint64_t)o->no * h->width, h->width, no, e))
                 ? -1
                 : 0;
    for (uint32_t i = 0; rc == 0 && i < h->width; i++)
        s->w[i] -= no[i];
    h->width = 1;
    h->asks_yes_no = true;
    free(no);
    return rc;
}

static int add_norm(struct text_head *h, const struct checkpoint *c, const char *name,
                    const cJSON *config, struct err *e)
{
    struct head_stage *s = &h->stages[h->n_stages - 1];
    s->norm_eps = (float)json_num(config, "norm_eps", 1e-5);
    s->norm = vector(c, name, ".weight", s->out, e);
    return s->norm || !named(c, name, ".weight") ? 0 : -1;
}

/* The logit of the first of two labels, "yes", minus that of "no". */
static void join_answers(struct text_head *h)
{
    struct head_stage *s = &h->stages[h->n_stages - 1];
    for (uint32_t i = 0; i < s->in; i++)
        s->w[i] -= s->w[s->in + i];
    if (s->b)
        s->b[0] -= s->b[1];
    s->out = h->width = 1;
    h->asks_yes_no = true;
}

/* Llama Nemotron Rerank: logits are divided by a number of the file. */
static int by_temperature(struct text_head *h, const struct text_head_options *o,
                          const cJSON *config, struct err *e)
{
    const double by = json_num(config, "temperature", 1);
    const struct head_stage *s = &h->stages[h->n_stages - 1];
    if (!(by > 0))
        return err_set(e, ERR_VALIDATION, "%s: `temperature` must be above 0", o->dir);
    for (size_t i = 0; by != 1 && i < (size_t)s->out * s->in; i++)
        s->w[i] = (float)(s->w[i] / by);
    for (uint32_t i = 0; by != 1 && s->b && i < s->out; i++)
        s->b[i] = (float)(s->b[i] / by);
    return 0;
}

/* XLNet: the row that its summary is made of. */
static unsigned summary_pooling(const cJSON *config)
{
    const char *of = json_str(config, "summary_type", "last");
    return strcmp(of, "first") == 0 ? POOL_CLS : strcmp(of, "mean") == 0 ? POOL_MEAN : POOL_LAST;
}

static int classifier(struct text_head *h, const struct text_head_options *o, const cJSON *config,
                      struct err *e)
{
    char first[TENSOR_NAME_CAP];
    const bool plain = cJSON_IsFalse(json_get(config, "classifier_activation"));
    const struct recipe *r = o->sentence->scores ? NULL : recipe_of(o->c, o->arch, plain, first);
    const bool nemotron = strcmp(json_str(config, "model_type", ""), "llama_bidirec") == 0;
    const bool mean =
        nemotron || strcmp(json_str(config, "classifier_pooling", "cls"), "mean") == 0;
    const bool decoder = !o->both_ways || !json_bool(config, "is_causal", true);
    h->pooling = decoder ? POOL_LAST : mean ? POOL_MEAN : POOL_CLS;
    if (r && strcmp(r->last, "logits_proj") == 0)
        h->pooling = summary_pooling(config);
    enum head_act act = HEAD_PLAIN;
    if (r && (named_act(config, r->key, r->act, &act, e) ||
              (r->first && add_stage(h, o->c, first, act, e)) ||
              (r->norm && add_norm(h, o->c, r->norm, config, e)) ||
              add_stage(h, o->c, r->last, HEAD_PLAIN, e)))
        return -1;
    if (!r && o->both_ways)
        return err_set(e, ERR_VALIDATION, "%s: there is no classifier", o->dir);
    if (!r && yes_or_no(h, o, e))
        return -1;
    if (r && nemotron && by_temperature(h, o, config, e))
        return -1;
    if (r && h->width == 2 && sentence_asks(config))
        join_answers(h);
    if (h->width == 1)
        h->task = TASK_RERANK;
    else if (o->task == TASK_RERANK)
        return err_set(e, ERR_VALIDATION, "%s: a reranker has one label, this model has %u", o->dir,
                       h->width);
    return read_labels(h, config, e);
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
        return add_stage(h, c, "projector.0", HEAD_RELU, e) ||
                       add_stage(h, c, "projector.2", HEAD_PLAIN, e)
                   ? -1
                   : 0;
    if (h->task == TASK_TOKEN_EMBED)
        return s->n_dense ? 0 : add_stage(h, c, "linear", HEAD_PLAIN, e);
    const bool dense = named(c, "head.norm", ".weight") != NULL; /* ModernBERT */
    const char *last = named(c, "score", ".weight")        ? "score"
                       : named(c, "qa_outputs", ".weight") ? "qa_outputs"
                                                           : "classifier";
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/config.json", o->dir);
    cJSON *config = model_file_json(path, SMALL_JSON, e);
    enum head_act act;
    const int rc =
        !config ||
                (dense && (named_act(config, "classifier_activation", HEAD_GELU, &act, e) ||
                           add_stage(h, c, "head.dense", act, e) ||
                           add_norm(h, c, "head.norm", config, e))) ||
                add_stage(h, c, last, HEAD_PLAIN, e) ||
                (h->task != TASK_ANSWER && read_labels(h, config, e))
            ? -1
            : 0;
    cJSON_Delete(config);
    if (rc == 0 && h->task == TASK_ANSWER && h->width != 2)
        return err_set(e, ERR_VALIDATION, "%s: an answer has two scores of each token, not %u",
                       o->dir, h->width);
    return rc;
}

/* ---------------------------------------------------------------- loading */

static int load_classifier(struct text_head *h, const struct text_head_options *o, struct err *e)
{
    char path[PATH_MAX];
    if (!o->c)
        return err_set(e, ERR_VALIDATION, "a classifier needs a checkpoint");
    if (snprintf(path, sizeof(path), "%s/config.json", o->dir) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", o->dir);
    cJSON *config = model_file_json(path, SMALL_JSON, e);
    if (!config)
        return -1;
    int rc = classifier(h, o, config, e);
    cJSON_Delete(config);
    return rc;
}

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
    if (add_stage(h, o->c, name, HEAD_PLAIN, e))
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
        if (t && numbers(t, 0, 1, i ? &h->cosines.plus : &h->cosines.scale, e))
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
        rc = numbers(w, 0, n, s->w, e) || numbers(b, 0, out, s->b, e) ? -1 : 0;
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
        return load_classifier(h, o, e);
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
