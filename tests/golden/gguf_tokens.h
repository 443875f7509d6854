/* gguf_tokens.h - converts a tokenizer.json to the metadata that llama.cpp's converters write. */
#ifndef TESTS_GOLDEN_GGUF_TOKENS_H
#define TESTS_GOLDEN_GGUF_TOKENS_H
#include "common/gguf/vocab.h"
#include "common/json/json.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/gguf_write.h"
#include "tests/unit/test.h"

struct gguf_tokens {
    uint32_t n;
    const char **text; /* [n]; NULL: a hole */
    int32_t *type;
    float *score;
};

static inline void gt_set(struct gguf_tokens *t, uint32_t id, const char *text, int type)
{
    if (id >= t->n) {
        t->text = realloc(t->text, (id + 1) * sizeof(*t->text));
        t->type = realloc(t->type, (id + 1) * sizeof(*t->type));
        t->score = realloc(t->score, (id + 1) * sizeof(*t->score));
        assert_true(t->text && t->type && t->score);
    }
    for (; t->n <= id; t->n++)
        t->text[t->n] = NULL, t->type[t->n] = GGUF_UNUSED, t->score[t->n] = -1e6F;
    t->text[id] = text;
    t->type[id] = type;
}

/* SentencePiece's scores of merged tokens decrease with the rank of the first merge that forms
 * them. */
static inline void gt_scores(struct gguf_tokens *t, const cJSON *merges,
                             const struct tokenizer *tok)
{
    const cJSON *j;
    float rank = 0;
    char joined[1024];
    cJSON_ArrayForEach(j, merges)
    {
        const cJSON *pair = cJSON_IsArray(j) ? j->child : NULL;
        const char *s = pair ? pair->valuestring : j->valuestring, *gap = strchr(s, ' ');
        if (pair)
            snprintf(joined, sizeof(joined), "%s%s", s, pair->next->valuestring);
        else
            snprintf(joined, sizeof(joined), "%.*s%s", (int)(gap - s), s, gap + 1);
        int64_t id = tokenizer_id(tok, joined);
        rank--;
        if (id >= 0 && t->score[id] <= -1e6F)
            t->score[id] = rank;
    }
}

static inline void gt_lists(struct gguf_write *w, const struct gguf_tokens *t, const cJSON *merges,
                            bool scored)
{
    char pad[32];
    const cJSON *j;
    gw_put_list(w, "tokenizer.ggml.tokens", GGUF_T_STRING, t->n);
    for (uint32_t i = 0; i < t->n; i++) {
        snprintf(pad, sizeof(pad), "[PAD%u]", i);
        gw_text(&w->values, t->text[i] ? t->text[i] : pad, strlen(t->text[i] ? t->text[i] : pad));
    }
    gw_put_list(w, "tokenizer.ggml.token_type", GGUF_T_I32, t->n);
    buf_add(&w->values, t->type, t->n * sizeof(*t->type));
    if (scored) {
        gw_put_list(w, "tokenizer.ggml.scores", GGUF_T_F32, t->n);
        buf_add(&w->values, t->score, t->n * sizeof(*t->score));
        return;
    }
    gw_put_list(w, "tokenizer.ggml.merges", GGUF_T_STRING, (uint64_t)cJSON_GetArraySize(merges));
    cJSON_ArrayForEach(j, merges)
    {
        char both[2048];
        const char *s = j->valuestring;
        if (cJSON_IsArray(j)) {
            snprintf(both, sizeof(both), "%s %s", j->child->valuestring,
                     j->child->next->valuestring);
            s = both;
        }
        gw_text(&w->values, s, strlen(s));
    }
}

static inline void gt_special(struct gguf_write *w, const struct tokenizer *tok, const char *name,
                              const char *key)
{
    const char *s = tokenizer_special(tok, name);
    int64_t id = s ? tokenizer_id(tok, s) : -1;
    if (id >= 0)
        gw_put_u32(w, key, (uint32_t)id);
}

/* Unigrams are a list of pieces with scores. */
static inline void gt_unigrams(struct gguf_tokens *t, const cJSON *vocab)
{
    const cJSON *j;
    uint32_t id = 0;
    cJSON_ArrayForEach(j, vocab)
    {
        gt_set(t, id, j->child->valuestring, GGUF_NORMAL);
        t->score[id++] = (float)j->child->next->valuedouble;
    }
}

static inline void gt_charsmap(struct gguf_write *w, const char *base64)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct buf b = BUF_INIT;
    uint32_t bits = 0, n = 0;
    for (; *base64 && *base64 != '='; base64++) {
        bits = bits << 6 | (uint32_t)(strchr(digits, *base64) - digits);
        if ((n += 6) >= 8)
            buf_ch(&b, (char)(bits >> (n -= 8)));
    }
    gw_put_list(w, "tokenizer.ggml.precompiled_charsmap", GGUF_T_U8, b.len);
    buf_add(&w->values, b.p, b.len);
    buf_free(&b);
}

/* From the folder `dir`; `pre`: the value of tokenizer.ggml.pre, NULL: a tokenizer with scores,
 * "gemma4": pieces with merges, "t5": unigrams. */
static inline void gguf_tokens(struct gguf_write *w, const char *dir, const char *pre)
{
    char path[2048];
    struct err e = ERR_INIT;
    const bool merged = pre && strcmp(pre, "gemma4") == 0, pieces = !pre || merged;
    const bool unigram = pre && strcmp(pre, "t5") == 0;
    struct gguf_tokens t = {0};
    struct tok_scratch *scratch = NULL;
    struct tok_ids ids = {0};
    const cJSON *j;
    snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
    cJSON *root = json_load(path, 64 << 20, &e);
    struct tokenizer *tok = tokenizer_load(dir, &e);
    if (!root || !tok)
        fail_msg("%s", e.msg);
    const cJSON *model = json_get(root, "model"), *merges = json_get(model, "merges");
    const cJSON *vocab = json_get(model, "vocab");
    if (unigram) {
        gt_unigrams(&t, vocab);
        vocab = NULL;
    }
    cJSON_ArrayForEach(j, vocab)
    {
        const bool byte = pieces && strlen(j->string) == 6 && !strncmp(j->string, "<0x", 3);
        gt_set(&t, (uint32_t)j->valuedouble, j->string, byte ? GGUF_BYTE : GGUF_NORMAL);
    }
    cJSON_ArrayForEach(j, json_get(root, "added_tokens"))
    {
        const char *s = json_str(j, "content", "");
        const uint32_t id = (uint32_t)tokenizer_id(tok, s);
        const bool unk = unigram ? id == json_num(model, "unk_id", -1)
                                 : !strcmp(s, json_str(model, "unk_token", ""));
        gt_set(&t, id, s,
               unk                              ? GGUF_UNKNOWN
               : json_bool(j, "special", false) ? GGUF_CONTROL
                                                : GGUF_USER_DEFINED);
        if (unk)
            gw_put_u32(w, "tokenizer.ggml.unknown_token_id", id);
        if (unigram)
            t.score[id] = 0;
    }
    gw_put_str(w, "tokenizer.ggml.model", merged || unigram ? pre : pre ? "gpt2" : "llama");
    if (unigram)
        gt_charsmap(w, json_str(json_get(root, "normalizer"), "precompiled_charsmap", ""));
    else if (pre && !merged)
        gw_put_str(w, "tokenizer.ggml.pre", pre);
    else if (!pre)
        gt_scores(&t, merges, tok);
    gt_lists(w, &t, merges, !pre || unigram);
    /* The ids around an empty text show the special tokens and the switches. */
    assert_int_equal(tokenizer_encode(tok, "", 0, TOK_ADD_SPECIAL, &scratch, &ids, &e), 0);
    gw_put_bool(w, "tokenizer.ggml.add_bos_token", ids.n > 0 && !unigram);
    gw_put_bool(w, "tokenizer.ggml.add_eos_token", ids.n > 1 || unigram);
    if (ids.n && !unigram)
        gw_put_u32(w, "tokenizer.ggml.bos_token_id", ids.id[0]);
    else
        gt_special(w, tok, "bos_token", "tokenizer.ggml.bos_token_id");
    if (ids.n > 1)
        gw_put_u32(w, "tokenizer.ggml.eos_token_id", ids.id[1]);
    else
        gt_special(w, tok, "eos_token", "tokenizer.ggml.eos_token_id");
    const char *normalizer = json_str(json_get(root, "normalizer"), "type", "");
    if (pieces)
        gw_put_bool(w, "tokenizer.ggml.add_space_prefix", strcmp(normalizer, "Replace") != 0);
    tok_ids_free(&ids);
    tok_scratch_free(scratch);
    tokenizer_free(tok);
    cJSON_Delete(root);
    free(t.text), free(t.type), free(t.score);
}
#endif
