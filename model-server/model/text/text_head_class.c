/* text_head_class.c - the heads of classifiers and of rerankers. */
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "model-server/model/text/text_head_impl.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES = 16 * 1024 * 1024, MAX_LABELS = 4096 };

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
    {"classifier.dense", NULL, "classifier.out_proj", HEAD_GELU_TANH, "nystromformer.",
     "hidden_act"},
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
        return head_named(c, out, ".weight");
    for (int k = 0; (prefix = arch_prefix(a, k, &n)); k++) {
        snprintf(out, TENSOR_NAME_CAP, "%.*s%s", (int)n, prefix, r->first + 1);
        if (head_named(c, out, ".weight"))
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
    if (plain && head_named(c, alone.last, ".weight"))
        return &alone;
    for (size_t i = 0; i < sizeof(recipes) / sizeof(recipes[0]); i++) {
        const struct recipe *r = &recipes[i];
        if (head_named(c, r->last, ".weight") && (!r->first || first_name(r, c, a, first)) &&
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
        rc = head_numbers(t, (uint64_t)o->yes * h->width, h->width, s->w, e) ||
                     (!o->yes_alone && head_numbers(t, (uint64_t)o->no * h->width, h->width, no, e))
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
    s->norm = head_vector(c, name, ".weight", s->out, e);
    return s->norm || !head_named(c, name, ".weight") ? 0 : -1;
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
              (r->first && head_add_stage(h, o->c, first, act, e)) ||
              (r->norm && add_norm(h, o->c, r->norm, config, e)) ||
              head_add_stage(h, o->c, r->last, HEAD_PLAIN, e)))
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

static cJSON *read_config(const struct text_head_options *o, struct err *e)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/config.json", o->dir) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", o->dir), NULL;
    return model_file_json(path, CONFIG_BYTES, e);
}

/* The head behind the last layer of a layerwise reranker. */
static int cut_head(struct text_head *h, const struct text_head_options *o, const cJSON *config,
                    struct err *e)
{
    const struct sentence *s = o->sentence;
    char name[TENSOR_NAME_CAP] = "lm_head.linear_head";
    if (o->n_layers < s->first_cut)
        return err_set(e, ERR_VALIDATION, "%s: `start_layer` is behind its last layer", o->dir);
    if (!s->one_head)
        snprintf(name, sizeof(name), "lm_head.%u.linear_head", o->n_layers - s->first_cut);
    h->pooling = POOL_LAST;
    return head_add_stage(h, o->c, name, HEAD_PLAIN, e) || read_labels(h, config, e) ? -1 : 0;
}

int head_classifier(struct text_head *h, const struct text_head_options *o, struct err *e)
{
    if (!o->c)
        return err_set(e, ERR_VALIDATION, "a classifier needs a checkpoint");
    cJSON *config = read_config(o, e);
    const bool cut = o->sentence->first_cut && o->task == TASK_RERANK;
    const int rc = !config ? -1 : cut ? cut_head(h, o, config, e) : classifier(h, o, config, e);
    cJSON_Delete(config);
    return rc;
}

int head_token_labels(struct text_head *h, const struct text_head_options *o, struct err *e)
{
    const struct checkpoint *c = o->c;
    const bool dense = head_named(c, "head.norm", ".weight") != NULL; /* ModernBERT */
    const char *last = head_named(c, "score", ".weight")        ? "score"
                       : head_named(c, "qa_outputs", ".weight") ? "qa_outputs"
                                                                : "classifier";
    cJSON *config = read_config(o, e);
    enum head_act act;
    const int rc =
        !config ||
                (dense && (named_act(config, "classifier_activation", HEAD_GELU, &act, e) ||
                           head_add_stage(h, c, "head.dense", act, e) ||
                           add_norm(h, c, "head.norm", config, e))) ||
                head_add_stage(h, c, last, HEAD_PLAIN, e) ||
                (h->task != TASK_ANSWER && read_labels(h, config, e))
            ? -1
            : 0;
    cJSON_Delete(config);
    if (rc == 0 && h->task == TASK_ANSWER && h->width != 2)
        return err_set(e, ERR_VALIDATION, "%s: an answer has two scores of each token, not %u",
                       o->dir, h->width);
    return rc;
}
