#include "model-server/quantize/gguf_head.h"
#include "common/gguf/vocab.h"
#include "common/json/json.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_JSON = 256 << 20 };

/* ---------------------------------------------------------------- values */

static void u32(struct buf *b, uint32_t v) { buf_add(b, &v, sizeof(v)); }
static void u64(struct buf *b, uint64_t v) { buf_add(b, &v, sizeof(v)); }
static void text(struct buf *b, const char *s, size_t n)
{
    u64(b, n);
    buf_add(b, s, n);
}
static void key(struct gguf_head *h, const char *k, enum gguf_type type)
{
    text(&h->values, k, strlen(k));
    u32(&h->values, (uint32_t)type);
    h->n_values++;
}

void gguf_head_u32(struct gguf_head *h, const char *k, uint32_t v)
{
    key(h, k, GGUF_T_U32);
    u32(&h->values, v);
}

static void gguf_head_f32(struct gguf_head *h, const char *k, float v)
{
    key(h, k, GGUF_T_F32);
    buf_add(&h->values, &v, sizeof(v));
}

static void gguf_head_bool(struct gguf_head *h, const char *k, bool v)
{
    key(h, k, GGUF_T_BOOL);
    buf_ch(&h->values, (char)v);
}

static void gguf_head_str(struct gguf_head *h, const char *k, const char *v, size_t n)
{
    key(h, k, GGUF_T_STRING);
    text(&h->values, v, n);
}

/* Begins an array; the caller appends its elements to h->values. */
static void gguf_head_list(struct gguf_head *h, const char *k, enum gguf_type of, uint64_t n)
{
    key(h, k, GGUF_T_ARRAY);
    u32(&h->values, (uint32_t)of);
    u64(&h->values, n);
}

void gguf_head_copy(struct gguf_head *h, const struct gguf *g)
{
    for (uint32_t i = 0; i < g->n_values; i++) {
        const struct gguf_value *v = &g->values[i];
        if (strcmp(v->key, "general.file_type") == 0 ||
            strcmp(v->key, "general.quantization_version") == 0 ||
            strcmp(v->key, "general.alignment") == 0 || strncmp(v->key, "split.", 6) == 0)
            continue;
        if (v->list)
            gguf_head_list(h, v->key, v->type, v->n);
        else
            key(h, v->key, v->type);
        buf_add(&h->values, v->data, (size_t)(v->end - v->data));
    }
}

void gguf_head_tensor(struct gguf_head *h, const char *name, enum gguf_packing p, int n_dims,
                      const uint64_t *dims, uint64_t at)
{
    text(&h->tensors, name, strlen(name));
    u32(&h->tensors, (uint32_t)n_dims);
    for (int i = 0; i < n_dims; i++)
        u64(&h->tensors, dims[i]);
    u32(&h->tensors, gguf_packings[p].number);
    u64(&h->tensors, at);
    h->n_tensors++;
}

int gguf_head_finish(struct gguf_head *h, struct buf *out, struct err *e)
{
    buf_str(out, "GGUF");
    u32(out, 3);
    u64(out, h->n_tensors);
    u64(out, h->n_values);
    buf_add(out, h->values.p, h->values.len);
    buf_add(out, h->tensors.p, h->tensors.len);
    while (!out->oom && out->len % GGUF_ALIGN)
        buf_ch(out, 0);
    const bool oom = out->oom || h->values.oom || h->tensors.oom;
    buf_free(&h->values), buf_free(&h->tensors);
    *h = (struct gguf_head){0};
    return oom ? err_nomem(e) : 0;
}

/* ---------------------------------------------------------------- families */

static const struct gguf_made made[] = {
    {"llama", "llama", true},     {"mistral", "llama", true}, {"mixtral", "llama", true},
    {"qwen2", "qwen2", false},    {"qwen3", "qwen3", false},  {"qwen3_moe", "qwen3moe", false},
    {"smollm3", "smollm3", true},
};
enum { N_MADE = sizeof(made) / sizeof(made[0]) };

const struct gguf_made *gguf_made_find(const char *type, struct err *e)
{
    struct buf known = BUF_INIT;
    for (int i = 0; i < N_MADE; i++)
        if (strcmp(made[i].type, type) == 0)
            return &made[i];
    for (int i = 0; i < N_MADE; i++)
        buf_fmt(&known, "%s%s", i ? ", " : "", made[i].type);
    err_set(e, ERR_VALIDATION,
            "a folder of model_type `%.60s` is not written as GGUF (known: %s); a GGUF file of it "
            "can be quantised",
            type, known.p ? known.p : "");
    buf_free(&known);
    return NULL;
}

static void put_u32(struct gguf_head *h, const struct gguf_made *f, const char *k, uint32_t v)
{
    char whole[128];
    snprintf(whole, sizeof(whole), "%s.%s", f->name, k);
    gguf_head_u32(h, whole, v);
}

static void put_f32(struct gguf_head *h, const struct gguf_made *f, const char *k, double v)
{
    char whole[128];
    snprintf(whole, sizeof(whole), "%s.%s", f->name, k);
    gguf_head_f32(h, whole, (float)v);
}

bool gguf_rope_factors(const struct decoder_spec *s, float *out)
{
    const struct rope_spec *r = &s->rope[0];
    if (r->kind != ROPE_LLAMA3)
        return false;
    for (uint32_t i = 0; i < r->dim / 2; i++) {
        const double frequency = pow(r->theta, -2.0 * i / r->dim);
        const double length = 2 * M_PI / frequency;
        const double low = r->original / r->low_freq, high = r->original / r->high_freq;
        double factor = 1;
        if (length > low)
            factor = r->factor;
        else if (length >= high) {
            const double part = (r->original / length - r->low_freq) / (r->high_freq - r->low_freq);
            factor = 1 / ((1 - part) / r->factor + part);
        }
        out[i] = (float)factor;
    }
    return true;
}

/* The factor of attention is stored as its part beyond the usual one. */
static void put_yarn(struct gguf_head *h, const struct gguf_made *f, const struct rope_spec *r)
{
    const double usual = r->factor > 1 ? 0.1 * log(r->factor) + 1 : 1;
    put_u32(h, f, "rope.scaling.original_context_length", r->original);
    put_f32(h, f, "rope.scaling.yarn_beta_fast", r->beta_fast);
    put_f32(h, f, "rope.scaling.yarn_beta_slow", r->beta_slow);
    put_f32(h, f, "rope.scaling.attn_factor", r->attention_factor / usual);
}

static int put_rope(struct gguf_head *h, const struct gguf_made *f, const struct decoder_spec *s,
                    struct err *e)
{
    const struct rope_spec *r = &s->rope[0];
    char whole[128];
    put_f32(h, f, "rope.freq_base", r->theta);
    put_u32(h, f, "rope.dimension_count", r->dim);
    if (r->kind == ROPE_DEFAULT || r->kind == ROPE_LLAMA3)
        return 0;
    if (r->kind != ROPE_LINEAR && (r->kind != ROPE_YARN || !r->truncate))
        return err_set(e, ERR_VALIDATION, "a rope scaling that is not written as GGUF");
    const char *type = r->kind == ROPE_LINEAR ? "linear" : "yarn";
    snprintf(whole, sizeof(whole), "%s.rope.scaling.type", f->name);
    gguf_head_str(h, whole, type, strlen(type));
    put_f32(h, f, "rope.scaling.factor", r->factor);
    if (r->kind == ROPE_YARN)
        put_yarn(h, f, r);
    return 0;
}

/* What the family has in GGUF without a key for it, as readers assume it. */
static int check_assumed(const struct gguf_made *f, const struct decoder_spec *s, struct err *e)
{
    const bool alternate = strcmp(f->name, "smollm3") == 0;
    if (s->moe.n_experts && !s->moe.renormalise)
        return err_set(e, ERR_VALIDATION,
                       "weights of experts that do not add up to 1 are not written as GGUF");
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const bool rotates = s->layers[i].rope != SPEC_NO_ROPE;
        if (rotates != (!alternate || i % 4 != 3))
            return err_set(e, ERR_VALIDATION,
                           "layer %u %s, other than in GGUF files of `%s`: not written as one", i,
                           rotates ? "rotates" : "does not rotate", f->name);
        if (spec_act(s, i) != ACT_SILU)
            return err_set(e, ERR_VALIDATION,
                           "layer %u has another activation than silu: not written as GGUF", i);
        if (s->moe.n_experts && !s->layers[i].moe)
            return err_set(e, ERR_VALIDATION,
                           "layer %u has no experts, other than in GGUF files of `%s`: not written "
                           "as one",
                           i, f->name);
    }
    return 0;
}

static int put_shape(struct gguf_head *h, const struct gguf_made *f, const struct decoder_spec *s,
                     struct err *e)
{
    put_u32(h, f, "context_length", s->max_positions);
    put_u32(h, f, "embedding_length", s->hidden);
    put_u32(h, f, "block_count", s->n_layers);
    put_u32(h, f, "feed_forward_length", s->ffn);
    put_u32(h, f, "attention.head_count", s->n_heads);
    put_u32(h, f, "attention.head_count_kv", s->n_kv_heads);
    put_u32(h, f, "attention.key_length", s->head_dim);
    put_u32(h, f, "attention.value_length", s->head_dim);
    put_f32(h, f, "attention.layer_norm_rms_epsilon", (double)s->norm.eps);
    put_u32(h, f, "vocab_size", s->vocab);
    if (s->moe.n_experts) {
        put_u32(h, f, "expert_count", s->moe.n_experts);
        put_u32(h, f, "expert_used_count", s->moe.top_k);
        put_u32(h, f, "expert_feed_forward_length", s->moe.ffn);
    }
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (s->layers[i].window || s->layers[i].n_kv_heads || s->layers[i].head_dim)
            return err_set(e, ERR_VALIDATION,
                           "layer %u has a window or heads of its own: not written as GGUF", i);
    if (check_assumed(f, s, e))
        return -1;
    return put_rope(h, f, s, e);
}

/* ---------------------------------------------------------------- the tokenizer */

static bool is_byte(const char *s) { return strlen(s) == 6 && strncmp(s, "<0x", 3) == 0; }

struct words {
    const char **text;
    uint8_t *kind;
    uint32_t n;
};

static int put_word(struct words *w, const cJSON *id, const char *s, enum gguf_token kind)
{
    const double i = cJSON_IsNumber(id) ? id->valuedouble : -1;
    if (!s || !(i >= 0 && i < w->n))
        return -1;
    w->text[(uint32_t)i] = s;
    w->kind[(uint32_t)i] = (uint8_t)kind;
    return 0;
}

static int read_words(struct words *w, const cJSON *j, bool scored)
{
    const cJSON *model = json_get(j, "model"), *t;
    const char *unk = json_str(model, "unk_token", "");
    cJSON_ArrayForEach(t, json_get(model, "vocab")) if (put_word(w, t, t->string,
                                                                 scored && is_byte(t->string)
                                                                     ? GGUF_BYTE
                                                                     : GGUF_NORMAL)) return -1;
    cJSON_ArrayForEach(t, json_get(j, "added_tokens"))
    {
        const char *s = json_str(t, "content", NULL);
        if (put_word(w, json_get(t, "id"), s,
                     s && strcmp(s, unk) == 0         ? GGUF_UNKNOWN
                     : json_bool(t, "special", false) ? GGUF_CONTROL
                                                      : GGUF_USER_DEFINED))
            return -1;
    }
    return 0;
}

/* "left right", in either form of the file. */
static void merge_text(const cJSON *m, struct buf *b)
{
    if (cJSON_IsString(m)) {
        buf_str(b, m->valuestring);
        return;
    }
    const cJSON *left = m->child, *right = left ? left->next : NULL;
    buf_str(b, left && cJSON_IsString(left) ? left->valuestring : "");
    buf_ch(b, ' ');
    buf_str(b, right && cJSON_IsString(right) ? right->valuestring : "");
}

/* Byte-level: the merges unchanged. */
static void put_merges(struct gguf_head *h, const cJSON *merges)
{
    const cJSON *m;
    gguf_head_list(h, "tokenizer.ggml.merges", GGUF_T_STRING, (uint64_t)cJSON_GetArraySize(merges));
    cJSON_ArrayForEach(m, merges)
    {
        struct buf b = BUF_INIT;
        merge_text(m, &b);
        text(&h->values, b.p ? b.p : "", b.len);
        h->values.oom |= b.oom;
        buf_free(&b);
    }
}

struct scored_word {
    const char *text;
    uint32_t id;
};
static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct scored_word *)a)->text, ((const struct scored_word *)b)->text);
}

/* Scores: the rank of the first merge that forms a token; tokens without a merge get no score. */
static int put_scores(struct gguf_head *h, const struct words *w, const cJSON *merges,
                      struct err *e)
{
    struct scored_word *sorted = malloc((w->n + 1) * sizeof(*sorted));
    float *score = malloc((w->n + 1) * sizeof(*score));
    uint32_t n = 0, rank = 0;
    const cJSON *m;
    for (uint32_t i = 0; sorted && score && i < w->n; i++) {
        score[i] = -1e6F;
        if (w->text[i])
            sorted[n++] = (struct scored_word){w->text[i], i};
    }
    if (sorted && score)
        qsort(sorted, n, sizeof(*sorted), by_text);
    cJSON_ArrayForEach(m, merges)
    {
        struct buf b = BUF_INIT;
        merge_text(m, &b);
        char *space = b.p ? strchr(b.p, ' ') : NULL;
        rank++;
        if (space && sorted && score) {
            memmove(space, space + 1, strlen(space));
            const struct scored_word k = {b.p, 0};
            const struct scored_word *at = bsearch(&k, sorted, n, sizeof(k), by_text);
            if (at && score[at->id] == -1e6F)
                score[at->id] = -(float)rank;
        }
        buf_free(&b);
    }
    const int rc = sorted && score ? 0 : err_nomem(e);
    gguf_head_list(h, "tokenizer.ggml.scores", GGUF_T_F32, w->n);
    if (rc == 0)
        buf_add(&h->values, score, w->n * sizeof(*score));
    free(sorted), free(score);
    return rc;
}

/* The splitting steps of pre_tokenizer, in the form of pre.c. */
static void steps_of(const cJSON *p, struct gguf_pre_step *s, int *n)
{
    const char *type = json_str(p, "type", "");
    const cJSON *inner;
    if (*n == GGUF_PRE_STEPS)
        return;
    if (strcmp(type, "Sequence") == 0) {
        cJSON_ArrayForEach(inner, json_get(p, "pretokenizers")) steps_of(inner, s, n);
        return;
    }
    if (strcmp(type, "Split") == 0)
        s[(*n)++] =
            (struct gguf_pre_step){GGUF_CUT_REGEX, json_str(json_get(p, "pattern"), "Regex", "")};
    else if (strcmp(type, "Digits") == 0)
        s[(*n)++] = (struct gguf_pre_step){
            json_bool(p, "individual_digits", false) ? GGUF_CUT_DIGIT : GGUF_CUT_DIGITS, NULL};
    else if (strcmp(type, "Punctuation") == 0)
        s[(*n)++] = (struct gguf_pre_step){GGUF_CUT_PUNCTUATION, NULL};
    else if (strcmp(type, "ByteLevel") == 0 && json_bool(p, "use_regex", true))
        s[(*n)++] = (struct gguf_pre_step){GGUF_CUT_GPT2, NULL};
}

static int put_pre(struct gguf_head *h, const cJSON *j, struct err *e)
{
    struct gguf_pre_step steps[GGUF_PRE_STEPS] = {{0}};
    int n = 0;
    steps_of(json_get(j, "pre_tokenizer"), steps, &n);
    const struct gguf_pre *pre =
        gguf_pre_like(steps, n, json_bool(json_get(j, "model"), "ignore_merges", false));
    if (!pre)
        return err_set(e, ERR_VALIDATION,
                       "tokenizer.json cuts words as no tokenizer.ggml.pre of GGUF does");
    gguf_head_str(h, "tokenizer.ggml.pre", pre->name, strlen(pre->name));
    return 0;
}

static void put_special(struct gguf_head *h, const struct words *w, const cJSON *config)
{
    static const char *const names[][2] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                           {"eos_token", "tokenizer.ggml.eos_token_id"},
                                           {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                           {"pad_token", "tokenizer.ggml.padding_token_id"}};
    for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
        const cJSON *t = json_get(config, names[k][0]);
        const char *s =
            cJSON_IsObject(t) ? json_str(t, "content", NULL) : json_str(config, names[k][0], NULL);
        for (uint32_t i = 0; s && i < w->n; i++)
            if (w->text[i] && strcmp(w->text[i], s) == 0) {
                gguf_head_u32(h, names[k][1], i);
                break;
            }
    }
}

static bool adds(const cJSON *post, const char *token)
{
    char *s = post ? cJSON_PrintUnformatted(post) : NULL;
    const bool has = s && token && strstr(s, "SpecialToken") && strstr(s, token);
    cJSON_free(s);
    return has;
}

static int put_tokens(struct gguf_head *h, const cJSON *j, const cJSON *config, uint32_t vocab,
                      struct err *e)
{
    const cJSON *model = json_get(j, "model"), *merges = json_get(model, "merges");
    const bool scored = json_bool(model, "byte_fallback", false);
    const cJSON *bos = json_get(config, "bos_token");
    const char *bos_text =
        cJSON_IsObject(bos) ? json_str(bos, "content", NULL) : json_str(config, "bos_token", NULL);
    struct words w = {.n = vocab};
    char hole[32];
    if (strcmp(json_str(model, "type", "BPE"), "BPE") != 0 ||
        !cJSON_IsObject(json_get(model, "vocab")))
        return err_set(e, ERR_VALIDATION, "tokenizer.json: only BPE is written as GGUF");
    w.text = calloc(vocab, sizeof(*w.text));
    w.kind = calloc(vocab, 1);
    int rc = !w.text || !w.kind ? err_nomem(e) : 0;
    if (rc == 0 && read_words(&w, j, scored))
        rc = err_set(e, ERR_VALIDATION, "tokenizer.json: a token has no id below %u", vocab);
    const char *kind = scored ? "llama" : "gpt2";
    gguf_head_str(h, "tokenizer.ggml.model", kind, strlen(kind));
    gguf_head_list(h, "tokenizer.ggml.tokens", GGUF_T_STRING, vocab);
    for (uint32_t i = 0; rc == 0 && i < vocab; i++) {
        snprintf(hole, sizeof(hole), "[PAD%u]", i);
        const char *s = w.text[i] ? w.text[i] : hole;
        text(&h->values, s, strlen(s));
    }
    gguf_head_list(h, "tokenizer.ggml.token_type", GGUF_T_I32, vocab);
    for (uint32_t i = 0; rc == 0 && i < vocab; i++)
        u32(&h->values, w.kind[i] ? w.kind[i] : GGUF_UNUSED);
    if (rc == 0 && scored)
        rc = put_scores(h, &w, merges, e);
    else if (rc == 0) {
        put_merges(h, merges);
        rc = put_pre(h, j, e);
    }
    if (rc == 0) {
        put_special(h, &w, config);
        gguf_head_bool(h, "tokenizer.ggml.add_bos_token",
                       adds(json_get(j, "post_processor"), bos_text));
        const char *template = json_str(config, "chat_template", NULL);
        if (template)
            gguf_head_str(h, "tokenizer.chat_template", template, strlen(template));
    }
    free(w.text), free(w.kind);
    return rc;
}

static cJSON *load(const char *dir, const char *name, bool optional, struct err *e)
{
    char path[PATH_MAX];
    struct err ignored = ERR_INIT;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    cJSON *j = json_load(path, SMALL_JSON, optional ? &ignored : e);
    return !j && optional ? cJSON_CreateObject() : j;
}

int gguf_head_make(struct gguf_head *h, const struct gguf_made *f, const char *dir,
                   const struct decoder_spec *s, struct err *e)
{
    const char *name = strrchr(dir, '/') && strrchr(dir, '/')[1] ? strrchr(dir, '/') + 1 : dir;
    gguf_head_str(h, "general.architecture", f->name, strlen(f->name));
    gguf_head_str(h, "general.name", name, strlen(name));
    if (put_shape(h, f, s, e))
        return err_wrap(e, "%s", dir);
    cJSON *j = load(dir, "tokenizer.json", false, e);
    cJSON *config = j ? load(dir, "tokenizer_config.json", true, e) : NULL;
    int rc = j && config ? put_tokens(h, j, config, s->vocab, e) : -1;
    cJSON_Delete(j), cJSON_Delete(config);
    return rc ? err_wrap(e, "%s", dir) : 0;
}
