#include "common/gguf/pooling.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values of pooling_type. */
enum { POOLING_NONE, POOLING_MEAN, POOLING_FIRST, POOLING_LAST, POOLING_RANK };
enum { LABELS_MAX = 4096 };

static int pooling(const struct gguf_meta *m, const char *key)
{
    const double v = meta_number_or(m, key, POOLING_NONE);
    return v >= POOLING_NONE && v <= POOLING_RANK ? (int)v : POOLING_NONE;
}

static bool pools(const struct gguf_meta *m)
{
    const int p = pooling(m, "pooling_type");
    return p == POOLING_MEAN || p == POOLING_FIRST || p == POOLING_LAST;
}

bool gguf_pools(const struct gguf_set *s)
{
    struct err ignored = ERR_INIT;
    const struct gguf_meta m = {s, gguf_family(s, &ignored), NULL};
    return m.f && pools(&m);
}

static void add_module(cJSON *list, const char *kind, const char *folder)
{
    char type[64];
    cJSON *o = cJSON_CreateObject();
    snprintf(type, sizeof(type), "sentence_transformers.models.%s", kind);
    cJSON_AddNumberToObject(o, "idx", cJSON_GetArraySize(list));
    cJSON_AddStringToObject(o, "path", folder);
    cJSON_AddStringToObject(o, "type", type);
    cJSON_AddItemToArray(list, o);
}

static cJSON *or_nomem(cJSON *j, struct err *e)
{
    if (!j)
        err_nomem(e);
    return j;
}

cJSON *gguf_modules(const struct gguf_set *s, struct err *e)
{
    cJSON *list = cJSON_CreateArray();
    add_module(list, "Transformer", "");
    add_module(list, "Pooling", "1_Pooling");
    if (gguf_set_tensor(s, "dense_2.weight"))
        add_module(list, "Dense", "2_Dense");
    if (gguf_set_tensor(s, "dense_3.weight"))
        add_module(list, "Dense", "3_Dense");
    add_module(list, "Normalize", "4_Normalize");
    return or_nomem(list, e);
}

cJSON *gguf_pooling(const struct gguf_set *s, struct err *e)
{
    static const char *const modes[] = {[POOLING_MEAN] = "pooling_mode_mean_tokens",
                                        [POOLING_FIRST] = "pooling_mode_cls_token",
                                        [POOLING_LAST] = "pooling_mode_lasttoken"};
    const struct gguf_meta m = {s, gguf_family(s, e), NULL};
    if (!m.f)
        return NULL;
    cJSON *o = cJSON_CreateObject();
    if (pools(&m))
        cJSON_AddBoolToObject(o, modes[pooling(&m, "pooling_type")], true);
    return or_nomem(o, e);
}

/* Both modules of EmbeddingGemma, the only model that has them. */
cJSON *gguf_dense(const struct gguf_set *s, struct err *e)
{
    (void)s;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "activation_function", "torch.nn.modules.linear.Identity");
    return or_nomem(o, e);
}

/* ---------------------------------------------------------------- classifiers */

static void add_label(cJSON *labels, uint64_t i, const char *text, size_t n)
{
    char key[24], *word = malloc(n + 1);
    if (!word)
        return;
    memcpy(word, text, n);
    word[n] = 0;
    snprintf(key, sizeof(key), "%llu", (unsigned long long)i);
    cJSON_AddStringToObject(labels, key, word);
    free(word);
}

/* The file's own labels, or those that transformers invents. */
static void add_labels(const struct gguf_meta *m, uint64_t n)
{
    char key[GGUF_KEY_MAX];
    struct gguf_str s;
    cJSON *labels = cJSON_AddObjectToObject(m->config, "id2label");
    snprintf(key, sizeof(key), "%s.classifier.output_labels", m->f->name);
    const struct gguf_value *own = gguf_strings(&m->s->files[0], key);
    const uint8_t *at = own ? own->data : NULL;
    for (uint64_t i = 0; i < n && i < LABELS_MAX; i++) {
        char word[32];
        if (own && gguf_next(own, &at, &s)) {
            add_label(labels, i, s.p, s.n);
            continue;
        }
        snprintf(word, sizeof(word), "LABEL_%llu", (unsigned long long)i);
        add_label(labels, i, word, strlen(word));
    }
}

void gguf_classifier(const struct gguf_meta *m)
{
    char class[96];
    const struct gguf_tensor *last = gguf_set_tensor(m->s, "cls.output.weight");
    if (!last)
        return;
    /* The name before the suffix is not evaluated. */
    snprintf(class, sizeof(class), "%.40sForSequenceClassification", m->f->type);
    cJSON *classes = cJSON_AddArrayToObject(m->config, "architectures");
    cJSON_AddItemToArray(classes, cJSON_CreateString(class));
    add_labels(m, last->n_dims == 1 ? 1 : last->dims[1]);
    /* llama.cpp's default is the mean, which ModernBERT alone can have */
    if (pooling(m, "classifier.pooling_type") != POOLING_FIRST)
        cJSON_AddStringToObject(m->config, "classifier_pooling",
                                strcmp(m->f->name, "modern-bert") == 0 ? "mean" : "cls");
}
