#include "common/model/first_module.h"
#include "common/model/model_file.h"
#include "common/model/sentence_impl.h"
#include "common/text.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_JSON = 16 * 1024 * 1024 };

static const char *const names[] = {"auto",        "generate",       "embed",
                                    "rerank",      "fill-mask",      "classify",
                                    "token_embed", "token_classify", "answer"};
const char *const model_task_choices[] = {"auto", "generate", "embed", "rerank", "fill-mask", NULL};
const char *model_task_name(enum model_task t) { return t < TASK_N ? names[t] : "?"; }

int sentence_read_json(const char *dir, const char *name, size_t max, cJSON **out, struct err *e)
{
    char path[PATH_MAX];
    *out = NULL;
    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", dir);
    if (!model_file_exists(path))
        return 0;
    *out = model_file_json(path, max, e);
    return *out ? 0 : -1;
}

/* ---------------------------------------------------------------- modules */

static const struct pooling_mode {
    const char *key;
    unsigned pool;
    const char *word; /* of `pooling_mode`, in files since version 5.4 */
} modes[] = {{"pooling_mode_cls_token", POOL_CLS, "cls"},
             {"pooling_mode_max_tokens", POOL_MAX, "max"},
             {"pooling_mode_mean_tokens", POOL_MEAN, "mean"},
             {"pooling_mode_mean_sqrt_len_tokens", POOL_MEAN_SQRT, "mean_sqrt_len_tokens"},
             {"pooling_mode_weightedmean_tokens", POOL_WEIGHTED, "weightedmean"},
             {"pooling_mode_lasttoken", POOL_LAST, "lasttoken"}};

/* The mode of a word, or 0. */
static unsigned mode_of(const cJSON *word)
{
    for (size_t i = 0; cJSON_IsString(word) && i < sizeof(modes) / sizeof(modes[0]); i++)
        if (strcmp(word->valuestring, modes[i].word) == 0)
            return modes[i].pool;
    return 0;
}

/* A word, or a list without repetition; otherwise 0. */
static unsigned modes_of(struct sentence *s, const cJSON *j)
{
    unsigned all = 0;
    int n = 0;
    const cJSON *word;
    if (!cJSON_IsArray(j))
        return mode_of(j);
    cJSON_ArrayForEach(word, j)
    {
        const unsigned mode = mode_of(word);
        if (!mode || all & mode)
            return 0;
        all |= mode;
        s->order[n++] = mode;
    }
    return all;
}

/* config.json of a module, whose path in `dir` is `name` then. */
static int read_module(const char *dir, const char *folder, char name[PATH_MAX], cJSON **out,
                       struct err *e)
{
    snprintf(name, PATH_MAX, "%s/config.json", folder);
    return sentence_read_json(dir, name, SMALL_JSON, out, e);
}

static int read_pooling(struct sentence *s, const char *dir, const char *folder, struct err *e)
{
    char name[PATH_MAX];
    cJSON *j;
    if (read_module(dir, folder, name, &j, e))
        return -1;
    const cJSON *words = json_get(j, "pooling_mode");
    s->pooling |= words ? modes_of(s, words) : 0;
    for (size_t i = 0, n = 0; !words && i < sizeof(modes) / sizeof(modes[0]); i++)
        if (json_bool(j, modes[i].key, false))
            s->pooling |= s->order[n++] = modes[i].pool;
    s->include_prompt = json_bool(j, "include_prompt", true);
    cJSON_Delete(j);
    return s->pooling
               ? 0
               : err_set(e, ERR_VALIDATION, "%s/%s: no pooling mode that is known", dir, name);
}

static int read_sparse(struct sentence *s, const char *dir, const char *folder, struct err *e)
{
    char name[PATH_MAX];
    cJSON *j;
    if (read_module(dir, folder, name, &j, e))
        return -1;
    const char *over = json_str(j, "pooling_strategy", "max");
    const char *act = json_str(j, "activation_function", "relu");
    s->sparse_twice = strcmp(act, "log1p_relu") == 0;
    s->sparse = strcmp(over, "max") == 0   ? SPARSE_MAX
                : strcmp(over, "sum") == 0 ? SPARSE_SUM
                                           : SPARSE_NONE;
    int rc = 0;
    if (!s->sparse)
        rc = err_set(e, ERR_VALIDATION, "%s/%s: `pooling_strategy` `%.60s` is not supported", dir,
                     name, over);
    else if (!s->sparse_twice && strcmp(act, "relu") != 0)
        rc = err_set(e, ERR_VALIDATION, "%s/%s: `activation_function` `%.60s` is not supported",
                     dir, name, act);
    cJSON_Delete(j);
    return rc;
}

static int add_dense(struct sentence *s, const char *dir, const char *folder, struct err *e)
{
    if (s->n_dense == SENTENCE_MAX_DENSE)
        return err_set(e, ERR_VALIDATION, "%s/modules.json: more than %d modules with weights", dir,
                       SENTENCE_MAX_DENSE);
    if (!(s->dense[s->n_dense] = strdup(folder)))
        return err_nomem(e);
    s->dense_of_unit[s->n_dense++] = s->normalize;
    s->normalize = false;
    return 0;
}

static int add_norm(struct sentence *s, const char *dir, const char *folder, struct err *e)
{
    if (add_dense(s, dir, folder, e))
        return -1;
    s->dense_is_norm[s->n_dense - 1] = true;
    return 0;
}

/* The tokens whose logits are the score. */
static int read_scores(struct sentence *s, const char *dir, const char *folder, struct err *e)
{
    char name[PATH_MAX];
    cJSON *j;
    if (read_module(dir, folder, name, &j, e))
        return -1;
    const double yes = json_num(j, "true_token_id", -1), no = json_num(j, "false_token_id", -1);
    cJSON_Delete(j);
    if (!(yes >= 0 && yes < UINT32_MAX && no < UINT32_MAX))
        return err_set(e, ERR_VALIDATION, "%s/%s: no `true_token_id`", dir, name);
    s->scores = true;
    s->true_token = (uint32_t)yes;
    s->false_token = no >= 0 ? (uint32_t)no : UINT32_MAX;
    return 0;
}

/* Which tokens of late interaction have vectors. */
static int read_mask(struct sentence *s, const char *dir, const char *folder, struct err *e)
{
    char name[PATH_MAX];
    cJSON *j;
    const cJSON *task;
    if (read_module(dir, folder, name, &j, e))
        return -1;
    const cJSON *words = json_get(j, "skiplist_words");
    int rc = cJSON_IsArray(words) ? sentence_skip(s, words, e) : 0;
    cJSON_ArrayForEach(task, json_get(j, "skiplist_tasks"))
    {
        s->late.skips_queries |= cJSON_IsString(task) && strcmp(task->valuestring, "query") == 0;
    }
    if (rc == 0 && cJSON_GetArraySize(json_get(j, "keep_only_token_ids")))
        rc = err_set(e, ERR_VALIDATION, "%s/%s: `keep_only_token_ids` is not supported", dir, name);
    cJSON_Delete(j);
    return rc;
}

static bool plain_folder(const char *p)
{
    return *p && *p != '/' && strlen(p) < 256 && !strstr(p, "..");
}

/* True for the folder of the first module in modules.json, whose files are the model's. */
static bool at_first(const char *dir, const char *folder)
{
    char own[PATH_MAX];
    const size_t n = strlen(dir);
    return first_module_folder(dir, own) && strlen(own) > n && strcmp(own + n + 1, folder) == 0;
}

/* sentence_transformers.models.Pooling, or its class in newer packages. */
static int add_module(struct sentence *s, const char *dir, const char *type, const char *folder,
                      struct err *e)
{
    const char *dot = strrchr(type, '.'), *class = dot ? dot + 1 : type;
    const bool own = !*folder || strcmp(folder, ".") == 0 || at_first(dir, folder);
    if (strcmp(class, "StaticEmbedding") == 0 && own)
        return s->bare = true, s->pooling = POOL_MEAN, 0;
    if (strcmp(class, "Transformer") == 0 || strcmp(class, "MLMTransformer") == 0 ||
        strcmp(class, "CLIPModel") == 0)
        return !own ? err_set(e, ERR_VALIDATION,
                              "%s/modules.json: a transformer in a folder of its own is not "
                              "supported",
                              dir)
                    : 0;
    if (strcmp(class, "Normalize") == 0)
        return s->normalize = true, 0;
    if (strcmp(class, "Dropout") == 0) /* of training */
        return 0;
    static const struct {
        const char *class;
        int (*read)(struct sentence *s, const char *dir, const char *folder, struct err *e);
    } kinds[] = {{"Pooling", read_pooling},   {"SpladePooling", read_sparse},
                 {"Dense", add_dense},        {"LayerNorm", add_norm},
                 {"LogitScore", read_scores}, {"MultiVectorMask", read_mask}};
    size_t k = 0;
    while (k < sizeof(kinds) / sizeof(kinds[0]) && strcmp(class, kinds[k].class) != 0)
        k++;
    if (k == sizeof(kinds) / sizeof(kinds[0]))
        return err_set(e, ERR_VALIDATION, "%s/modules.json: module `%.120s` is not supported", dir,
                       type);
    if (!plain_folder(folder))
        return err_set(e, ERR_VALIDATION, "%s/modules.json: `%.60s` is not a valid module folder",
                       dir, folder);
    return kinds[k].read(s, dir, folder, e);
}

/* Of modules for queries and others for documents, those that a text without a route passes. */
static int add_route(struct sentence *s, const char *dir, struct err *e)
{
    cJSON *j;
    const cJSON *name;
    if (sentence_read_json(dir, "router_config.json", SMALL_JSON, &j, e))
        return -1;
    const char *route = json_str(json_get(j, "parameters"), "default_route", "document");
    const cJSON *listed = json_get(json_get(j, "structure"), route);
    int rc = 0;
    if (!cJSON_IsArray(listed))
        rc = err_set(e, ERR_VALIDATION, "%s/router_config.json: no modules of `%.60s`", dir, route);
    cJSON_ArrayForEach(name, listed)
    {
        const char *folder = cJSON_IsString(name) ? name->valuestring : "";
        if (rc == 0)
            rc = add_module(s, dir, json_str(json_get(j, "types"), folder, ""), folder, e);
    }
    cJSON_Delete(j);
    return rc;
}

static int add_listed(struct sentence *s, const char *dir, const cJSON *m, struct err *e)
{
    const char *type = json_str(m, "type", ""), *folder = json_str(m, "path", "");
    return ends_with(type, ".Router") && !*folder ? add_route(s, dir, e)
                                                  : add_module(s, dir, type, folder, e);
}

static int read_modules(struct sentence *s, const char *dir, struct err *e)
{
    cJSON *j;
    const cJSON *m;
    int rc = 0;
    if (sentence_read_json(dir, "modules.json", SMALL_JSON, &j, e))
        return -1;
    s->present = j != NULL;
    if (j && !cJSON_IsArray(j))
        rc = err_set(e, ERR_VALIDATION, "%s/modules.json: no list", dir);
    cJSON_ArrayForEach(m, j) if (rc == 0) rc = add_listed(s, dir, m, e);
    s->tokens = s->n_dense && !s->pooling && !s->sparse && !s->scores;
    cJSON_Delete(j);
    return rc;
}

/* ---------------------------------------------------------------- lengths and prompts */

/* Since version 5.4 of sentence-transformers only the tokenizer has the length. Where there is none
 * transformers writes a huge number. */
static int read_length(struct sentence *s, const char *dir, struct err *e)
{
    cJSON *j, *t = NULL;
    if (sentence_read_json(dir, "sentence_bert_config.json", SMALL_JSON, &j, e))
        return -1;
    double n = json_num(j, "max_seq_length", 0);
    if (json_str(j, "transformer_task", NULL) && !json_get(j, "max_seq_length")) {
        if (sentence_read_json(dir, "tokenizer_config.json", CONFIG_JSON, &t, e)) {
            cJSON_Delete(j);
            return -1;
        }
        n = json_num(t, "model_max_length", 0);
        cJSON_Delete(t);
    }
    s->max_length = n >= 1 && n < UINT32_MAX ? (uint32_t)n : 0;
    s->opens_answer = json_bool(json_get(json_get(j, "processing_kwargs"), "chat_template"),
                                "add_generation_prompt", false);
    cJSON_Delete(j);
    return 0;
}

bool sentence_add_prompt(struct sentence *s, const char *name, const char *text)
{
    if (!name || !text || s->n_prompts == SENTENCE_MAX_PROMPTS || sentence_prompt(s, name))
        return true;
    struct sentence_prompt *q = &s->prompts[s->n_prompts++];
    *q = (struct sentence_prompt){strdup(name), strdup(text)};
    return q->name && q->text;
}

/* Jina Embeddings 3: of tasks that have no prompt of that name. */
static int add_instructions(struct sentence *s, const char *dir, struct err *e)
{
    cJSON *j;
    const cJSON *p;
    bool whole = true;
    if (sentence_read_json(dir, "config.json", CONFIG_JSON, &j, e))
        return -1;
    cJSON_ArrayForEach(p, json_get(j, "task_instructions"))
    {
        whole &= sentence_add_prompt(s, p->string, p->valuestring);
    }
    cJSON_Delete(j);
    return whole ? 0 : err_nomem(e);
}

static int read_prompts(struct sentence *s, const char *dir, struct err *e)
{
    cJSON *j;
    const cJSON *p;
    bool whole = true;
    if (sentence_read_json(dir, "config_sentence_transformers.json", SMALL_JSON, &j, e))
        return -1;
    cJSON_ArrayForEach(p, json_get(j, "prompts"))
    {
        whole &= sentence_add_prompt(s, p->string, p->valuestring);
    }
    const double kept = json_num(j, "truncate_dim", 0);
    s->dimensions = kept >= 1 && kept < UINT32_MAX ? (uint32_t)kept : 0;
    const char *named = json_str(j, "default_prompt_name", NULL);
    if (named)
        whole &= (s->default_prompt = strdup(named)) != NULL;
    cJSON_Delete(j);
    return whole ? add_instructions(s, dir, e) : err_nomem(e);
}

/* A class of torch. One that is not known changes nothing. */
static enum score_function function_of(const char *class)
{
    const char *dot = strrchr(class, '.'), *name = dot ? dot + 1 : class;
    return strcmp(name, "Identity") == 0  ? SCORE_LOGIT
           : strcmp(name, "Sigmoid") == 0 ? SCORE_SIGMOID
                                          : SCORE_USUAL;
}

static const char *class_of(const cJSON *config)
{
    const cJSON *first = cJSON_GetArrayItem(json_get(config, "architectures"), 0);
    return cJSON_IsString(first) ? first->valuestring : "";
}

/* A CrossEncoder's function is in config.json, under an older key before version 4, or in `own`,
 * its own file, since 5.4. */
static void read_functions(struct sentence *s, const cJSON *config, const cJSON *own)
{
    const char *kind = json_str(config, "problem_type", "");
    s->labels = strcmp(kind, "multi_label_classification") == 0 ? SCORE_SIGMOID
                : strcmp(kind, "regression") == 0               ? SCORE_LOGIT
                                                                : SCORE_USUAL;
    const char *older = json_str(config, "sbert_ce_default_activation_function",
                                 json_str(own, "activation_fn", ""));
    s->pairs =
        function_of(json_str(json_get(config, "sentence_transformers"), "activation_fn", older));
    if (s->labels == SCORE_USUAL &&
        s->pairs == SCORE_SIGMOID) /* several labels of a CrossEncoder */
        s->labels = SCORE_SIGMOID;
}

/* SigLIP was trained on texts with all of its positions, and the vector is that of the last. */
static void read_padding(struct sentence *s, const cJSON *config)
{
    enum { POSITIONS = 64, MOST = 1 << 16 };
    const char *type = json_str(config, "model_type", "");
    const double n =
        json_num(json_get(config, "text_config"), "max_position_embeddings", POSITIONS);
    if (strcmp(type, "siglip") != 0 && strcmp(type, "siglip2") != 0)
        return;
    s->pooling = s->pooling ? s->pooling : POOL_LAST;
    s->padded = n >= 1 && n <= MOST ? (uint32_t)n : POSITIONS;
}

/* With heads of another type the score is the logit of a word. */
static int read_cuts(struct sentence *s, const cJSON *config, struct err *e)
{
    enum { USUAL = 8, MOST = 1 << 16 };
    const char *type = json_str(config, "head_type", "simple");
    const double first = json_num(config, "start_layer", USUAL);
    if (strcmp(class_of(config), "LayerWiseMiniCPMForCausalLM") != 0)
        return 0;
    if (strcmp(type, "simple") != 0)
        return err_set(e, ERR_VALIDATION, "config.json: `head_type` `%.40s` is not supported",
                       type);
    if (!(first >= 1 && first <= MOST))
        return err_set(e, ERR_VALIDATION, "config.json: `start_layer` must be from 1 to %d", MOST);
    s->first_cut = (uint32_t)first;
    s->one_head = !json_bool(config, "head_multi", true);
    return 0;
}

static int read_config(struct sentence *s, const char *dir, struct err *e)
{
    cJSON *config, *own;
    if (sentence_read_json(dir, "config.json", CONFIG_JSON, &config, e))
        return -1;
    int rc = sentence_read_json(dir, "config_sentence_transformers.json", SMALL_JSON, &own, e);
    if (rc == 0) {
        read_functions(s, config, own);
        read_padding(s, config);
        s->listwise = strcmp(class_of(config), "JinaForRanking") == 0;
        s->late.visual = visual_form_of(class_of(config));
        rc = read_cuts(s, config, e);
    }
    cJSON_Delete(own);
    cJSON_Delete(config);
    return rc;
}

int sentence_load(struct sentence *s, const char *dir, struct err *e)
{
    *s = (struct sentence){.include_prompt = true};
    return read_modules(s, dir, e) || read_length(s, dir, e) || read_prompts(s, dir, e) ||
                   read_config(s, dir, e) || sentence_load_late(s, dir, e)
               ? -1
               : 0;
}

void sentence_free(struct sentence *s)
{
    for (uint32_t i = 0; i < s->n_dense; i++)
        free(s->dense[i]);
    for (uint32_t i = 0; i < s->n_prompts; i++)
        free(s->prompts[i].name), free(s->prompts[i].text);
    for (uint32_t i = 0; i < s->late.n_skipped; i++)
        free(s->late.skipped[i]);
    free(s->late.token);
    free(s->late.page);
    free(s->default_prompt);
    *s = (struct sentence){0};
}

/* Values of --pooling, and what they choose; SPARSE_MAX where the files do not say SPARSE_SUM. */
#define POOLING_CHOICES(ROW)                                                                       \
    ROW("auto", 0, SPARSE_NONE, false)                                                             \
    ROW("cls", POOL_CLS, SPARSE_NONE, false)                                                       \
    ROW("mean", POOL_MEAN, SPARSE_NONE, false)                                                     \
    ROW("last", POOL_LAST, SPARSE_NONE, false)                                                     \
    ROW("last-token", POOL_LAST, SPARSE_NONE, false)                                               \
    ROW("splade", 0, SPARSE_MAX, false)                                                            \
    ROW("lexical", 0, SPARSE_LEXICAL, false)                                                       \
    ROW("colbert", 0, SPARSE_NONE, true)
#define WORD(word, pool, sparse, colbert)   word,
#define CHOSEN(word, pool, sparse, colbert) {pool, sparse, colbert},
const char *const sentence_pooling_choices[] = {POOLING_CHOICES(WORD) NULL};
static const struct {
    unsigned pool;
    enum sparse_pooling sparse;
    bool colbert;
} chosen[] = {POOLING_CHOICES(CHOSEN)};

void sentence_set_pooling(struct sentence *s, uint32_t choice)
{
    if (!choice)
        return;
    const enum sparse_pooling sparse = chosen[choice].sparse;
    s->pooling = chosen[choice].pool;
    s->colbert = chosen[choice].colbert;
    s->sparse = sparse == SPARSE_MAX && s->sparse ? s->sparse : sparse;
}

const char *sentence_prompt(const struct sentence *s, const char *name)
{
    name = name ? name : s->default_prompt;
    for (uint32_t i = 0; name && i < s->n_prompts; i++)
        if (s->prompts[i].name && strcmp(s->prompts[i].name, name) == 0)
            return s->prompts[i].text;
    return NULL;
}

/* Names of queries and of documents, in prompts of files and in requests: those of
 * sentence-transformers, Jina, Cohere and Nomic, NVIDIA and Snowflake. The usual one first. */
enum { KINDS = 2, KIND_NAMES = 6 };
static const char *const kinds[KINDS][KIND_NAMES] = {
    {"query", "search_query", "retrieval.query", "retrieval_query", "Retrieval-query", "s2p_query"},
    {"document", "passage", "search_document", "retrieval.passage", "retrieval_document",
     "Retrieval-document"}};

/* The row of `word`; KINDS: none. */
static int kind_of(const char *word)
{
    int k = 0;
    for (; k < KINDS; k++)
        for (int i = 0; i < KIND_NAMES; i++)
            if (strcmp(kinds[k][i], word) == 0)
                return k;
    return k;
}

bool sentence_kind_known(const char *word) { return kind_of(word) < KINDS; }

const char *sentence_prompt_for(const struct sentence *s, const char *word)
{
    const int kind = kind_of(word);
    if (sentence_prompt(s, word))
        return word;
    for (int i = 0; kind < KINDS && i < KIND_NAMES; i++)
        if (sentence_prompt(s, kinds[kind][i]))
            return kinds[kind][i];
    return NULL;
}

/* ---------------------------------------------------------------- tasks */

/* Number of labels; without id2label the default of transformers. */
static int labels(const cJSON *config)
{
    const cJSON *map = json_get(config, "id2label");
    return cJSON_IsObject(map) ? cJSON_GetArraySize(map) : (int)json_num(config, "num_labels", 2);
}

bool sentence_asks(const cJSON *config)
{
    const cJSON *map = json_get(config, "id2label");
    return labels(config) == 2 && strcmp(json_str(map, "0", ""), "yes") == 0 &&
           strcmp(json_str(map, "1", ""), "no") == 0;
}

int model_task_of(const char *dir, const struct sentence *s, enum model_task *out, struct err *e)
{
    cJSON *j;
    *out = s->scores || s->first_cut ? TASK_RERANK
           : s->tokens               ? TASK_TOKEN_EMBED
           : s->present              ? TASK_EMBED
                                     : TASK_GENERATE;
    if (sentence_read_json(dir, "config.json", CONFIG_JSON, &j, e))
        return -1;
    const char *class = class_of(j);
    if (ends_with(class, "ForSequenceClassification"))
        *out = labels(j) == 1 || sentence_asks(j) ? TASK_RERANK : TASK_CLASSIFY;
    if (ends_with(class, "ForTokenClassification"))
        *out = TASK_TOKEN_CLASSIFY;
    if (ends_with(class, "ForQuestionAnswering") || ends_with(class, "ForQuestionAnsweringSimple"))
        *out = TASK_ANSWER;
    if (strcmp(class, "HF_ColBERT") == 0 || s->listwise || s->late.visual)
        *out = TASK_TOKEN_EMBED;
    cJSON_Delete(j);
    return 0;
}
