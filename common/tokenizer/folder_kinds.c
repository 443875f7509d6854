/* Readers of the tokenizer formats before tokenizer.json. */
#include "common/cleanup.h"
#include "common/gguf/vocab.h"
#include "common/tokenizer/byte_chars.h"
#include "common/tokenizer/folder_impl.h"
#include "common/tokenizer/gguf_steps.h"
#include "common/tokenizer/scored.h"
#include "common/tokenizer/sentencepiece.h"
#include "common/utf8.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- SentencePiece */

static void blanks(const struct spm *m, const struct tok_folder *f, struct buf *b)
{
    static const char replace[] =
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"▁\"}";
    const bool prefix = m->prefix && json_bool(f->config, "add_prefix_space", true);
    const bool legacy = json_bool(f->config, "legacy", true);
    buf_str(b, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    const size_t start = b->len;
    if (m->n_charsmap) {
        buf_str(b, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
        buf_base64(b, m->charsmap, m->n_charsmap);
        buf_str(b, "\"},");
    }
    if (m->squeeze)
        buf_str(
            b,
            "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},{\"type\":\"Replace\","
            "\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"},");
    if (legacy) {
        buf_str(b, prefix ? "{\"type\":\"Prepend\",\"prepend\":\"▁\"}," : "");
        buf_str(b, replace);
    } else if (b->len > start) {
        b->len--; /* the comma */
    }
    buf_str(b, "]},\"pre_tokenizer\":");
    if (legacy)
        buf_str(b, "null");
    else
        buf_fmt(b,
                "{\"type\":\"Metaspace\",\"replacement\":\"▁\",\"prepend_scheme\":\"%s\","
                "\"split\":false}",
                prefix ? "first" : "never");
    buf_fmt(
        b,
        ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
        "{\"String\":\"▁\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}%s]}",
        prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "");
}

static void put_pieces(const struct spm *m, struct buf *b)
{
    for (uint32_t i = 0; i < m->n; i++) {
        buf_str(b, i ? "," : "");
        if (!m->bpe)
            buf_ch(b, '[');
        buf_json_str(b, m->piece[i].p, m->piece[i].n);
        if (m->bpe) {
            buf_fmt(b, ":%u", i);
        } else {
            /* all digits: sums of scores are compared */
            const double score = m->piece[i].score;
            buf_fmt(b, isfinite(score) ? ",%.17g]" : ",null]", score);
        }
    }
}

static int put_merged(const struct spm *m, struct buf *b, struct err *e)
{
    struct scored_piece *list = calloc(m->n, sizeof(*list));
    if (!list)
        return err_nomem(e);
    for (uint32_t i = 0; i < m->n; i++) {
        const struct spm_piece *p = &m->piece[i];
        const bool part = p->kind == SPM_NORMAL || p->kind == SPM_USER_DEFINED;
        list[i] = (struct scored_piece){p->p, part ? p->n : 0, p->score};
    }
    int rc = scored_merges_json(list, m->n, b, e);
    free(list);
    return rc;
}

static int put_spm_model(const struct spm *m, struct buf *b, struct err *e)
{
    int rc = 0;
    buf_fmt(b, "{\"type\":\"%s\",\"byte_fallback\":%s,", m->bpe ? "BPE" : "Unigram",
            m->bytes ? "true" : "false");
    if (m->bpe && m->unk >= 0) {
        buf_str(b, "\"fuse_unk\":true,\"unk_token\":");
        buf_json_str(b, m->piece[m->unk].p, m->piece[m->unk].n);
        buf_ch(b, ',');
    } else if (m->unk >= 0) {
        buf_fmt(b, "\"unk_id\":%lld,", (long long)m->unk);
    }
    buf_str(b, m->bpe ? "\"vocab\":{" : "\"vocab\":[");
    put_pieces(m, b);
    buf_str(b, m->bpe ? "},\"merges\":[" : "]}");
    if (m->bpe) {
        rc = put_merged(m, b, e);
        buf_str(b, "]}");
    }
    return rc;
}

/* Control tokens (special) and user-defined ones are added tokens. */
static int spm_ids(struct tok_folder *f, const struct spm *m, struct err *e)
{
    for (uint32_t i = 0; i < m->n; i++) {
        const struct spm_piece *p = &m->piece[i];
        if (p->n && vocab_put(&f->ids, p->p, p->n, i, e))
            return -1;
        if (p->n && (p->kind == SPM_CONTROL || p->kind == SPM_USER_DEFINED || (int64_t)i == m->unk))
            folder_add(f, i, p->p, p->n, p->kind != SPM_USER_DEFINED);
    }
    return 0;
}

static const char *text_of(const struct tok_folder *f, int64_t id)
{
    size_t n;
    return id < 0 ? NULL : vocab_text(&f->ids, (uint32_t)id, &n);
}

int folder_sentencepiece(struct tok_folder *f, struct folder_text *t, struct err *e)
{
    size_t n;
    struct spm m;
    CLEANUP(cleanup_free) char *bytes = folder_read(f, "tokenizer.model", &n, e);
    if (!bytes || spm_open(&m, bytes, n, e))
        return -1;
    blanks(&m, f, &t->steps);
    int rc = spm_ids(f, &m, e) || put_spm_model(&m, &t->model, e) ? -1 : 0;
    t->bos = text_of(f, m.bos), t->eos = text_of(f, m.eos);
    t->add_bos = true;
    spm_close(&m);
    return rc;
}

/* ---------------------------------------------------------------- lines */

/* The next line without its end; false: there is none. */
static bool line(const char **at, const char *end, const char **s, size_t *n)
{
    if (*at >= end)
        return false;
    const char *nl = memchr(*at, '\n', (size_t)(end - *at));
    *s = *at;
    *n = (size_t)((nl ? nl : end) - *at);
    *at = nl ? nl + 1 : end;
    if (*n && (*s)[*n - 1] == '\r')
        --*n;
    return true;
}

/* ---------------------------------------------------------------- vocab.json and merges.txt */

static int json_ids(struct tok_folder *f, const char *text, size_t n, struct err *e)
{
    const cJSON *t;
    cJSON *j = json_parse(text, n, e);
    int rc = j ? 0 : err_wrap(e, "vocab.json");
    cJSON_ArrayForEach(t, j) if (rc == 0 && t->string && cJSON_IsNumber(t) && t->valuedouble >= 0 &&
                                 t->valuedouble < VOCAB_MAX_ID) rc =
        vocab_put(&f->ids, t->string, strlen(t->string), (uint32_t)t->valuedouble, e);
    cJSON_Delete(j);
    return rc;
}

static void put_merge_lines(struct buf *b, const char *text, size_t n)
{
    const char *at = text, *s;
    size_t len;
    for (bool first = true; line(&at, text + n, &s, &len);) {
        if (len == 0 || (s == text && strncmp(s, "#version", 8) == 0))
            continue;
        buf_str(b, first ? "" : ",");
        buf_json_str(b, s, len);
        first = false;
    }
}

/* The pre-tokenizer of the class; GPT-2's by default. */
static void byte_steps(const struct tok_folder *f, struct buf *b)
{
    static const struct {
        const char *type, *pre;
    } classes[] = {{"Qwen2Tokenizer", "qwen2"}, {"Qwen3_5Tokenizer", "qwen35"}};
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strcmp(f->type, classes[i].type) == 0) {
            gguf_put_steps(
                b, gguf_pre_find((struct gguf_str){classes[i].pre, strlen(classes[i].pre)}));
            return;
        }
    buf_fmt(b,
            "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,"
            "\"use_regex\":true},\"decoder\":{\"type\":\"ByteLevel\"}",
            json_bool(f->config, "add_prefix_space", false) ? "true" : "false");
}

int folder_merges(struct tok_folder *f, struct folder_text *t, struct err *e)
{
    size_t n_vocab, n_merges;
    CLEANUP(cleanup_free) char *vocab = folder_read(f, "vocab.json", &n_vocab, e);
    CLEANUP(cleanup_free) char *merges = vocab ? folder_read(f, "merges.txt", &n_merges, e) : NULL;
    if (!merges || json_ids(f, vocab, n_vocab, e))
        return -1;
    byte_steps(f, &t->steps);
    buf_str(&t->model, "{\"type\":\"BPE\",\"vocab\":");
    buf_add(&t->model, vocab, n_vocab);
    buf_str(&t->model, ",\"merges\":[");
    put_merge_lines(&t->model, merges, n_merges);
    buf_str(&t->model, "]}");
    const bool roberta = strcmp(f->type, "RobertaTokenizer") == 0;
    const bool gpt2 = strcmp(f->type, "Qwen2Tokenizer") != 0;
    t->bos = roberta ? "<s>" : gpt2 ? "<|endoftext|>" : NULL;
    t->eos = roberta ? "</s>" : gpt2 ? "<|endoftext|>" : NULL;
    t->add_bos = t->add_eos = roberta;
    /* <|endoftext|> is an added token even if no file lists it. */
    const uint32_t end = vocab_find(&f->ids, "<|endoftext|>", 13);
    if (end != NO_ID)
        folder_add(f, end, "<|endoftext|>", 13, true);
    return 0;
}

/* ---------------------------------------------------------------- vocab.txt */

static int word_lines(struct tok_folder *f, struct buf *b, const char *text, size_t n,
                      struct err *e)
{
    const char *at = text, *s;
    size_t len;
    for (uint32_t id = 0; line(&at, text + n, &s, &len); id++) {
        if (!utf8_valid(s, len) || id >= VOCAB_MAX_ID)
            return err_set(e, ERR_VALIDATION, "line %u is not UTF-8", id + 1);
        if (len == 0 || vocab_find(&f->ids, s, len) != NO_ID)
            continue;
        if (vocab_put(&f->ids, s, len, id, e))
            return -1;
        buf_str(b, id ? "," : "");
        buf_json_str(b, s, len);
        buf_fmt(b, ":%u", id);
    }
    return 0;
}

int folder_wordpiece(struct tok_folder *f, struct folder_text *t, struct err *e)
{
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    size_t n;
    CLEANUP(cleanup_free) char *text = folder_read(f, "vocab.txt", &n, e);
    const cJSON *strip = json_get(f->config, "strip_accents");
    if (!text)
        return -1;
    buf_fmt(
        &t->steps,
        "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":%"
        "s,"
        "\"strip_accents\":%s,\"lowercase\":%s},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
        "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}",
        json_bool(f->config, "tokenize_chinese_chars", true) ? "true" : "false",
        !cJSON_IsBool(strip)  ? "null"
        : cJSON_IsTrue(strip) ? "true"
                              : "false",
        json_bool(f->config, "do_lower_case", true) ? "true" : "false");
    buf_str(&t->model, "{\"type\":\"WordPiece\",\"unk_token\":");
    const char *unk = json_str(f->config, "unk_token", "[UNK]");
    buf_json_str(&t->model, unk, strlen(unk));
    buf_str(&t->model, ",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100,"
                       "\"vocab\":{");
    if (word_lines(f, &t->model, text, n, e))
        return -1;
    buf_str(&t->model, "}}");
    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
        const uint32_t id = vocab_find(&f->ids, special[i], strlen(special[i]));
        if (id != NO_ID)
            folder_add(f, id, special[i], strlen(special[i]), true);
    }
    t->bos = "[CLS]", t->eos = "[SEP]";
    t->add_bos = t->add_eos = t->pair_types = true;
    return 0;
}

/* ---------------------------------------------------------------- tiktoken */

enum { RANK_BYTES_MAX = 512 };

static int from_base64(const char *s, size_t n, char out[RANK_BYTES_MAX])
{
    uint32_t bits = 0;
    int have = 0, len = 0;
    for (size_t i = 0; i < n && s[i] != '='; i++) {
        const char c = s[i];
        const int v = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
        if (v < 0 || len == RANK_BYTES_MAX)
            return -1;
        bits = bits << 6 | (uint32_t)v;
        if ((have += 6) >= 8)
            out[len++] = (char)(bits >> (have -= 8));
    }
    return len;
}

/* Lines of "base64 rank". */
static int read_ranks(struct vocab *ranks, const char *text, size_t n, struct err *e)
{
    const char *at = text, *s;
    size_t len;
    char bytes[RANK_BYTES_MAX];
    for (unsigned number = 1; line(&at, text + n, &s, &len); number++) {
        const char *gap = memchr(s, ' ', len);
        const int got = gap ? from_base64(s, (size_t)(gap - s), bytes) : -1;
        const unsigned long rank = gap ? strtoul(gap, NULL, 10) : 0;
        if (len == 0)
            continue;
        if (got < 1 || rank >= VOCAB_MAX_ID)
            return err_set(e, ERR_VALIDATION, "line %u is no token with a rank", number);
        if (vocab_put(ranks, bytes, (size_t)got, (uint32_t)rank, e))
            return -1;
    }
    return ranks->count ? 0 : err_set(e, ERR_VALIDATION, "no token");
}

static void put_visible(struct buf *b, const char *s, size_t n)
{
    char utf8[4];
    for (size_t i = 0; i < n; i++) {
        const uint32_t c = byte_to_char((unsigned char)s[i]);
        if (c == '"' || c == '\\')
            buf_ch(b, '\\');
        buf_add(b, utf8, utf8_encode(c, utf8));
    }
}

struct cut {
    uint32_t left, right, at;
};

static int by_ranks(const void *a, const void *b)
{
    const struct cut *x = a, *y = b;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

/* Every split of a token into two tokens is a merge, ordered by their ranks. */
static void put_cuts(const struct vocab *ranks, uint32_t id, struct buf *b, bool *first)
{
    struct cut cuts[RANK_BYTES_MAX];
    size_t n, found = 0;
    const char *s = vocab_text(ranks, id, &n);
    for (size_t i = 1; s && i < n; i++) {
        const struct cut c = {vocab_find(ranks, s, i), vocab_find(ranks, s + i, n - i),
                              (uint32_t)i};
        if (c.left != NO_ID && c.right != NO_ID)
            cuts[found++] = c;
    }
    if (found)
        qsort(cuts, found, sizeof(cuts[0]), by_ranks);
    for (size_t i = 0; i < found; i++) {
        buf_str(b, *first ? "[\"" : ",[\"");
        put_visible(b, s, cuts[i].at);
        buf_str(b, "\",\"");
        put_visible(b, s + cuts[i].at, n - cuts[i].at);
        buf_str(b, "\"]");
        *first = false;
    }
}

static void put_ranks(const struct vocab *ranks, struct buf *b)
{
    bool first = true;
    buf_str(b, "{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{");
    for (uint32_t id = 0; id < ranks->size; id++) {
        size_t n;
        const char *s = vocab_text(ranks, id, &n);
        if (!s)
            continue;
        buf_str(b, first ? "\"" : ",\"");
        put_visible(b, s, n);
        buf_fmt(b, "\":%u", id);
        first = false;
    }
    buf_str(b, "},\"merges\":[");
    first = true;
    for (uint32_t id = 0; id < ranks->size; id++)
        put_cuts(ranks, id, b, &first);
    buf_str(b, "]}");
}

/* Kimi has 256 special tokens after the ranks; its configuration lists some of them. */
static void reserve(struct tok_folder *f, uint32_t from)
{
    char text[48];
    for (uint32_t id = from; id < from + 256; id++) {
        snprintf(text, sizeof(text), "<|reserved_token_%u|>", id);
        folder_add(f, id, text, strlen(text), true);
    }
}

/* The pre-tokenizer is in the code of the repository: selected by the class name. */
int folder_tiktoken(struct tok_folder *f, struct folder_text *t, struct err *e)
{
    const bool kimi = strcmp(f->type, "TikTokenTokenizer") == 0;
    const char *file = kimi ? "tiktoken.model" : "tokenizer.model",
               *pre = kimi ? "kimi-k2" : "llama3";
    struct vocab ranks = {0};
    size_t n;
    if (!kimi && strcmp(f->type, "PreTrainedTokenizer") != 0 &&
        strcmp(f->type, "LlamaTokenizer") != 0)
        return err_set(e, ERR_VALIDATION, "the pre-tokenizer of `%.40s` is not known", f->type);
    CLEANUP(cleanup_free) char *text = folder_read(f, file, &n, e);
    int rc = text ? read_ranks(&ranks, text, n, e) : -1;
    if (rc == 0) {
        gguf_put_steps(&t->steps, gguf_pre_find((struct gguf_str){pre, strlen(pre)}));
        put_ranks(&ranks, &t->model);
        if (kimi)
            reserve(f, ranks.size);
    }
    t->bos = kimi ? NULL : "<|begin_of_text|>";
    t->add_bos = !kimi;
    vocab_free(&ranks);
    return rc;
}
