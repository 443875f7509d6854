#include "model-server/model/lora/lora.h"
#include "common/gguf/set.h"
#include "common/hub/names.h"
#include "common/json/json.h"
#include "model-server/model/lora/lora_gguf.h"
#include "model-server/model/lora/lora_inside.h"
#include "model-server/model/lora/lora_place.h"
#include "model-server/model/lora/lora_recur.h"
#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { SMALL_JSON = 1024 * 1024, NAME_LEN = 256 };
#define PEFT_PREFIX "base_model.model."

/* ---------------------------------------------------------------- adapter_config.json */

struct lora_config {
    const char *path;
    cJSON *root;
    double alpha;
    bool by_one;  /* the scale is 1, whatever the rank: llama.cpp's adapters without alpha */
    bool by_root; /* rsLoRA: scale = alpha / sqrt(rank), arXiv 2312.03732 */
};

static bool is_float(const cJSON *v)
{
    return cJSON_IsNumber(v) && fabs(v->valuedouble) <= FLT_MAX;
}

/* Some methods divide the base's weights between the base and the adapter. PEFT does so again when
 * it loads such an adapter, unless it was converted before. */
static int check_start(const struct lora_config *c, struct err *e)
{
    static const char *const methods[] = {"pissa", "corda", "olora", "lora_ga", "loftq"};
    const char *start = json_str(c->root, "init_lora_weights", "");
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (!strncasecmp(start, methods[i], strlen(methods[i])))
            return err_set(e, ERR_VALIDATION,
                           "%s: `init_lora_weights` is `%.40s`: this adapter changes the base's "
                           "weights. PEFT converts it, with "
                           "`path_initial_model_for_weight_conversion` of save_pretrained()",
                           c->path, start);
    return 0;
}

/* Refuses fields that change the meaning of the tensors, unless they are off. */
static int check_variants(const struct lora_config *c, struct err *e)
{
    static const char *const variants[] = {"use_dora",
                                           "use_qalora",
                                           "use_bdlora",
                                           "lora_bias",
                                           "modules_to_save",
                                           "arrow_config",
                                           "alora_invocation_tokens",
                                           "layer_replication",
                                           "trainable_token_indices",
                                           "kasa_config",
                                           "target_parameters",
                                           NULL};
    for (int i = 0; variants[i]; i++) {
        const cJSON *v = json_get(c->root, variants[i]);
        if (v && !cJSON_IsFalse(v) && !((cJSON_IsArray(v) || cJSON_IsObject(v)) && !v->child))
            return err_set(e, ERR_VALIDATION, "%s: `%s` is not supported", c->path, variants[i]);
    }
    const char *bias = json_str(c->root, "bias", "none");
    if (check_start(c, e))
        return -1;
    if (strcmp(bias, "none") != 0)
        return err_set(e, ERR_VALIDATION, "%s: `bias` is `%.40s`; only none is supported", c->path,
                       bias);
    const cJSON *key, *pattern = json_get(c->root, "alpha_pattern");
    if (pattern && !cJSON_IsObject(pattern)) /* a list's items have no names */
        return err_set(e, ERR_VALIDATION, "%s: `alpha_pattern` is no object", c->path);
    cJSON_ArrayForEach(key, pattern)
    {
        const char *word = key->string + (*key->string == '^');
        if (word[strcspn(word, "^$*+?()[]{}\\|")])
            return err_set(e, ERR_VALIDATION,
                           "%s: `alpha_pattern`: the expression `%.80s` is not supported", c->path,
                           key->string);
        if (!is_float(key))
            return err_set(e, ERR_VALIDATION,
                           "%s: `alpha_pattern` has no number of float32 for `%.80s`", c->path,
                           key->string);
    }
    return 0;
}

static int read_config(struct lora_config *c, struct err *e)
{
    if (!(c->root = json_load(c->path, SMALL_JSON, e)))
        return -1;
    const char *type = json_str(c->root, "peft_type", "LORA");
    if (strcmp(type, "LORA") != 0) /* first of all: others have other keys */
        return err_set(e, ERR_VALIDATION, "%s: `peft_type` is `%.40s`; only LORA is supported",
                       c->path, type);
    const cJSON *alpha = json_get(c->root, "lora_alpha");
    if (!is_float(alpha))
        return err_set(e, ERR_VALIDATION, "%s: `lora_alpha` is no number of float32", c->path);
    c->alpha = alpha->valuedouble;
    c->by_root = cJSON_IsTrue(json_get(c->root, "use_rslora"));
    return check_variants(c, e);
}

/* Does an entry of alpha_pattern name the module? Its last components, or with ^ all of them. */
static bool names_module(const char *key, const char *module, size_t n)
{
    const bool whole = *key == '^';
    const size_t k = strlen(key += whole);
    return n >= k && !memcmp(module + n - k, key, k) &&
           (n == k || (!whole && module[n - k - 1] == '.'));
}

/* The rank is that of the tensors; `rank_pattern` must match it. The module's name is the one in
 * the file: the model that PEFT saw may have prefixes that this family's names lack. */
static float scale_of(const struct lora_config *c, const struct tensor *a, uint32_t rank)
{
    const char *module = a->name + strlen(PEFT_PREFIX), *end = strstr(module, ".lora_A.");
    double alpha = c->alpha;
    const cJSON *key;
    assert(end); /* find() has made the name */
    cJSON_ArrayForEach(key, json_get(c->root, "alpha_pattern"))
    {
        if (names_module(key->string, module, (size_t)(end - module))) {
            alpha = key->valuedouble;
            break;
        }
    }
    if (c->by_one)
        return 1;
    return (float)(c->by_root ? alpha / sqrt(rank) : alpha / rank);
}

/* ---------------------------------------------------------------- tensors */

/* State of a search for pairs. */
struct lora_search {
    struct lora_adapter *l;
    const struct lora_base *base;
    const struct lora_config *config;
    bool *used;
    struct err *e;
};

/* PEFT names a module with the prefix "base_model.model."; older versions put the adapter's own
 * name before "weight". Checkpoints of the bare decoder lack the family's prefix. */
static const struct tensor *find(const struct lora_search *s, const char *module, char which)
{
    static const char *const ends[] = {"weight", "default.weight"};
    char name[NAME_LEN], spelling[NAME_LEN / 2];
    const char *in_file;
    for (int i = 0;
         (in_file = arch_name_in_file(s->base->arch, module, i, spelling, sizeof(spelling))); i++)
        for (size_t k = 0; *in_file && k < sizeof(ends) / sizeof(ends[0]); k++) {
            snprintf(name, sizeof(name), PEFT_PREFIX "%s.lora_%c.%s", in_file, which, ends[k]);
            const struct tensor *t = tensor_file_find(&s->l->file, name);
            if (t)
                return t;
        }
    return NULL;
}

static int wrong_shape(const struct lora_search *s, const struct tensor *t, uint64_t rows,
                       uint64_t cols)
{
    return err_set(s->e, ERR_VALIDATION,
                   "%s: tensor `%s` has shape [%llu%s%llu]; this model means [%llu, %llu]", t->file,
                   t->name, (unsigned long long)t->dims[0], t->n_dims == 2 ? ", " : " ... ",
                   (unsigned long long)t->dims[t->n_dims ? t->n_dims - 1 : 0],
                   (unsigned long long)rows, (unsigned long long)cols);
}

static int check_pair(const struct lora_search *s, const struct lora_pair *p, uint32_t inputs,
                      uint32_t outputs)
{
    if (p->a->n_dims != 2 || p->a->dims[1] != inputs || !p->a->dims[0])
        return wrong_shape(s, p->a, p->b->n_dims == 2 ? p->b->dims[1] : 1, inputs);
    if (p->b->n_dims != 2 || p->b->dims[0] != outputs || p->b->dims[1] != p->a->dims[0])
        return wrong_shape(s, p->b, outputs, p->a->dims[0]);
    if (p->a->dims[0] > LORA_MAX_RANK)
        return err_set(s->e, ERR_VALIDATION, "%s: tensor `%s` has rank %llu; at most %d is served",
                       p->a->file, p->a->name, (unsigned long long)p->a->dims[0], LORA_MAX_RANK);
    bool known = p->a->type == T_F32 || p->a->type == T_F16 || p->a->type == T_BF16;
    if (!known || p->a->type != p->b->type)
        return err_set(
            s->e, ERR_VALIDATION,
            "%s: tensors `%s` and its B have dtypes %s and %s; adapters must be F32, F16 "
            "or BF16",
            p->a->file, p->a->name, tensor_type_name(p->a->type), tensor_type_name(p->b->type));
    return 0;
}

/* Notes the file that a tensor is in: there is one, or those of the checkpoint that the adapter is
 * inside. */
static int note_source(struct lora_adapter *l, const char *path, struct err *e)
{
    for (uint32_t i = 0; i < l->n_sources; i++)
        if (strcmp(l->sources[i].path, path) == 0)
            return 0;
    struct lora_source *v = realloc(l->sources, (l->n_sources + (size_t)1) * sizeof(*v));
    if (!v)
        return err_nomem(e);
    v[l->n_sources++] = (struct lora_source){path, file_stamp_at(path)};
    l->sources = v;
    return 0;
}

static int add_pair(struct lora_search *s, uint32_t layer, enum lora_site site, enum role role)
{
    const struct tensor *a = NULL, *b = NULL;
    char module[NAME_LEN];
    for (const char *name = s->base->arch->names[role]; name && !a && !b;) { /* each spelling */
        const char *end = strchrnul(name, '|'), *star = strchr(name, '*');
        const bool once = site == LORA_EMBED;
        if (!once && (!star || star > end))
            return 0;
        if (once)
            snprintf(module, sizeof(module), "%.*s", (int)(end - name), name);
        else
            snprintf(module, sizeof(module), "%.*s%u%.*s", (int)(star - name), name, layer,
                     (int)(end - star - 1), star + 1);
        a = find(s, module, 'A');
        b = find(s, module, 'B');
        name = *end ? end + 1 : NULL;
    }
    if (!a && !b)
        return 0;
    if (!a || !b)
        return err_set(s->e, ERR_VALIDATION, "%s: `%s` has an A or a B alone", s->l->file.path,
                       module);
    struct lora_pair *p = &s->l->pairs[s->l->n++];
    uint32_t inputs = 0, outputs = 0;
    *p = (struct lora_pair){.a = a, .b = b, .role = role, .site = site, .layer = layer};
    lora_place(s->base, p, &inputs, &outputs);
    if (check_pair(s, p, inputs, outputs))
        return -1;
    p->rank = (uint32_t)a->dims[0];
    p->dtype = a->type == T_F32 ? DT_F32 : a->type == T_F16 ? DT_F16 : DT_BF16;
    p->scale = scale_of(s->config, a, p->rank);
    s->used[a - s->l->file.tensors] = s->used[b - s->l->file.tensors] = true;
    return note_source(s->l, a->file, s->e) ? -1 : note_source(s->l, b->file, s->e);
}

/* The pair of the matrix behind the last layer. */
static int add_head(struct lora_search *s)
{
    const char *name = s->base->head.name;
    const struct tensor *a = name ? find(s, name, 'A') : NULL,
                        *b = name ? find(s, name, 'B') : NULL;
    if (!a && !b)
        return 0;
    if (!a || !b)
        return err_set(s->e, ERR_VALIDATION, "%s: `%s` has an A or a B alone", s->l->file.path,
                       name);
    if (check_pair(s, &(struct lora_pair){.a = a, .b = b}, s->base->head.inputs,
                   s->base->head.outputs))
        return -1;
    s->used[a - s->l->file.tensors] = s->used[b - s->l->file.tensors] = true;
    return lora_head_read(&s->l->head, a, b, scale_of(s->config, a, (uint32_t)a->dims[0]), s->e);
}

/* True if a layer has such a matrix: its own keys and values, and one for these; a recurrent
 * mixer. */
static bool made(const struct decoder_spec *s, uint32_t layer, enum role role)
{
    const struct layer_spec *l = &s->layers[layer];
    if (lora_is_recur(s, layer, role))
        return lora_recur_has(s, layer, role);
    const bool latent = role == W_Q_A || role == W_Q_B || role == W_KV_A;
    if (l->mixer == MIXER_ENTRIES && !lora_is_mlp(role))
        return latent || role == W_O; /* others make what all heads read, or are several */
    if (l->mixer == MIXER_NARROW)
        return false; /* its matrices are products of several */
    if ((l->mixer == MIXER_RELATIVE || l->mixer == MIXER_SPAN_CONV ||
         l->mixer == MIXER_VALUE_CONV) &&
        !lora_is_mlp(role))
        return false; /* they are no linear layers, or are beside convolutions */
    if (l->mixer == MIXER_SHARED)
        return false; /* PEFT would change the block of all layers that share it */
    if ((l->mixer == MIXER_CCA || l->mixer == MIXER_DIFFERENCE) &&
        (role == W_Q || role == W_K || role == W_V))
        return false; /* convolutions follow; heads are in another order */
    if (l->apart_inputs && (role == W_Q || role == W_K || role == W_V))
        return false; /* they have no common product */
    if (role == W_ATTN_GATE)
        return l->mixer == MIXER_ATTENTION || l->mixer == MIXER_MLA || l->mixer == MIXER_PROFILES;
    if ((role == W_K || role == W_V) && l->mixer == MIXER_CROSS)
        return false; /* their input is a picture, which sequences with other adapters share */
    if (role == W_K && s->kv_interleaved)
        return false;
    if (role == W_KV_A)
        return !l->kv_of;
    return !((role == W_K && l->kv_of) || (role == W_V && (l->kv_of || l->k_is_v)));
}

static int collect(struct lora_search *s)
{
    static const struct {
        enum role role;
        enum lora_site site;
        bool mlp, latent, shared, gated, recurs;
    } rows[] = {{W_QKV, LORA_QKV},
                {W_Q, LORA_QKV},
                {W_Q, LORA_Q_ROPE, .latent = true},
                {W_Q, LORA_Q_GATE, .gated = true},
                {W_ATTN_GATE, LORA_Q_GATE},
                {W_Q, LORA_MIX_IN, .recurs = true},
                {W_K, LORA_MIX_IN, .recurs = true},
                {W_V, LORA_MIX_IN, .recurs = true},
                {W_O, LORA_MIX_OUT, .recurs = true},
                {W_K, LORA_QKV},
                {W_V, LORA_QKV},
                {W_Q_A, LORA_Q_A, .latent = true},
                {W_Q_B, LORA_QKV, .latent = true},
                {W_Q_B, LORA_Q_ROPE, .latent = true},
                {W_KV_A, LORA_KV_A, .latent = true},
                {W_O, LORA_O},
                {W_GATE_UP, LORA_UP, .mlp = true},
                {W_GATE, LORA_UP, .mlp = true},
                {W_UP, LORA_UP, .mlp = true},
                {W_DOWN, LORA_DOWN, .mlp = true},
                {W_SHARED_GATE_UP, LORA_UP, .shared = true},
                {W_SHARED_GATE, LORA_UP, .shared = true},
                {W_SHARED_UP, LORA_UP, .shared = true},
                {W_SHARED_DOWN, LORA_DOWN, .shared = true},
                {W_MIX_IN, LORA_MIX_IN, .recurs = true},
                {W_MIX_Z, LORA_MIX_IN, .recurs = true},
                {W_MIX_BETA, LORA_MIX_GATES, .recurs = true},
                {W_MIX_DECAY, LORA_MIX_GATES, .recurs = true},
                {W_MIX_BETA_DECAY, LORA_MIX_GATES, .recurs = true},
                {W_MIX_OUT, LORA_MIX_OUT, .recurs = true}};
    const struct decoder_spec *spec = s->base->spec;
    if (add_head(s))
        return -1;
    if (spec->inside.n && add_pair(s, 0, LORA_EMBED, W_EMBED))
        return -1;
    for (uint32_t layer = 0; layer < spec->n_layers; layer++)
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
            if (rows[i].recurs == lora_is_recur(spec, layer, rows[i].role) &&
                !(rows[i].latent && !lora_is_latent(s->base, layer) &&
                  !(lora_has_entries(s->base, layer) && rows[i].site != LORA_Q_ROPE)) &&
                !(rows[i].gated && spec->attn_gate != ATTN_GATE_BESIDE_Q) &&
                !(rows[i].shared && !(spec->layers[layer].moe && spec->moe.shared_ffn)) &&
                !(rows[i].mlp && spec->layers[layer].moe && !spec->moe.beside) &&
                made(spec, layer, rows[i].role) &&
                add_pair(s, layer, lora_recur_site(spec, layer, rows[i].role, rows[i].site),
                         rows[i].role))
                return -1;
    for (uint32_t i = 0; i < s->l->file.n; i++)
        if (!s->used[i])
            return err_set(
                s->e, ERR_VALIDATION,
                "%s: tensor `%s` is of no matrix of this model that an adapter can change",
                s->l->file.path, s->l->file.tensors[i].name);
    return s->l->n ? 0
                   : err_set(s->e, ERR_VALIDATION, "%s: no tensors of an adapter", s->l->file.path);
}

static int match(struct lora_adapter *l, const struct lora_base *base, const struct lora_config *c,
                 struct err *e)
{
    struct lora_search s = {.l = l, .base = base, .config = c, .e = e};
    s.used = calloc(l->file.n + (size_t)1, sizeof(*s.used));
    l->pairs = calloc(l->file.n + (size_t)1, sizeof(*l->pairs)); /* q's may be two */
    const int rc = s.used && l->pairs ? collect(&s) : err_nomem(e);
    free(s.used);
    return rc;
}

static int open_tensors(struct lora_adapter *l, const char *dir, struct err *e)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/" HUB_ADAPTER_WEIGHTS, dir);
    if (access(path, F_OK) != 0)
        snprintf(path, sizeof(path), "%s/" HUB_TORCH_ADAPTER, dir);
    if (access(path, F_OK) != 0)
        return err_set(e, ERR_VALIDATION, "%s/" HUB_ADAPTER_WEIGHTS " is missing", dir);
    return tensor_file_open(&l->file, path, e);
}

static int open_file(struct lora_adapter *l, const char *path, const struct lora_base *base,
                     struct err *e)
{
    struct lora_config c = {.path = path};
    if (lora_gguf_open(l, path, base, &c.alpha, e))
        return -1;
    c.by_one = c.alpha == 0;
    return match(l, base, &c, e);
}

static int open_folder(struct lora_adapter *l, const char *dir, const struct lora_base *base,
                       struct err *e)
{
    char path[PATH_MAX];
    struct lora_config c = {.path = path};
    if (snprintf(path, sizeof(path), "%s/adapter_config.json", dir) >= PATH_MAX - 40)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", dir);
    const int rc = read_config(&c, e) || open_tensors(l, dir, e) || match(l, base, &c, e) ? -1 : 0;
    cJSON_Delete(c.root);
    return rc;
}

int lora_open_inside(struct lora_adapter *l, const char *dir, uint32_t index,
                     const struct lora_base *base, struct err *e)
{
    struct lora_config c = {.path = dir};
    *l = (struct lora_adapter){.n = 0};
    if (lora_inside_read(l, dir, index, base, &c.alpha, e) == 0 && match(l, base, &c, e) == 0)
        return 0;
    lora_close(l);
    return -1;
}

int lora_open(struct lora_adapter *l, const char *dir, const struct lora_base *base, struct err *e)
{
    *l = (struct lora_adapter){.n = 0};
    if ((gguf_is_file(dir) ? open_file : open_folder)(l, dir, base, e) == 0)
        return 0;
    lora_close(l);
    return -1;
}

int lora_check(const struct lora_adapter *l, struct err *e)
{
    for (uint32_t i = 0; i < l->n_sources; i++) {
        const struct file_stamp now = file_stamp_at(l->sources[i].path);
        if (file_stamp_spoilt(&l->sources[i].stamp, &now))
            return err_set(e, ERR_SYSTEM, "%s was overwritten while in use", l->sources[i].path);
    }
    return 0;
}

void lora_close(struct lora_adapter *l)
{
    free(l->pairs);
    free(l->sources);
    lora_head_free(&l->head);
    lora_gguf_close(l);
    lora_inside_close(l);
    tensor_file_close(&l->file);
    *l = (struct lora_adapter){.n = 0};
}

/* ---------------------------------------------------------------- this rank's numbers */

void lora_copy_a(const struct lora_pair *p, uint32_t r, void *dst)
{
    const size_t size = dtype_size(p->dtype);
    const size_t at = (size_t)r * p->a->dims[1] + p->column;
    memcpy(dst, (const char *)p->a->data + at * size, p->columns * size);
}

void lora_copy_b(const struct lora_pair *p, const struct lora_base *base, uint32_t r, void *dst)
{
    const size_t size = dtype_size(p->dtype);
    for (uint32_t i = 0; i < p->n; i++) {
        const size_t at = (size_t)lora_row_of_b(p, base, i) * p->rank + r;
        memcpy((char *)dst + i * size, (const char *)p->b->data + at * size, size);
    }
}
