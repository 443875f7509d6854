/* Converts a GGUF file's tokenizer to tokenizer.json and tokenizer_config.json. */
#include "common/buf.h"
#include "common/gguf/vocab.h"
#include "common/tokenizer/vocab.h"
#include "common/utf8.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void str(struct buf *b, struct gguf_str s) { buf_json_str(b, s.p, s.n); }
static void text(struct buf *b, const char *s) { buf_json_str(b, s, strlen(s)); }

/* ---------------------------------------------------------------- byte-level tokenizers */

static void put_cut(struct buf *b, const struct gguf_pre_step *s)
{
    switch (s->cut) {
    case GGUF_CUT_REGEX:
        buf_str(b, "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false,"
                   "\"pattern\":{\"Regex\":");
        text(b, s->regex);
        buf_str(b, "}}");
        break;
    case GGUF_CUT_GPT2:
        buf_str(b, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}");
        break;
    case GGUF_CUT_DIGIT:
    case GGUF_CUT_DIGITS:
        buf_fmt(b, "{\"type\":\"Digits\",\"individual_digits\":%s}",
                s->cut == GGUF_CUT_DIGIT ? "true" : "false");
        break;
    case GGUF_CUT_PUNCTUATION:
        buf_str(b, "{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}");
        break;
    case GGUF_CUT_END:
        break;
    }
}

/* The text is converted to byte characters once: at GPT-2's expression, otherwise at the end. */
static void put_pre(struct buf *b, const struct gguf_pre *p)
{
    bool bytes = false;
    buf_fmt(b, "\"normalizer\":%s,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
            p->nfc ? "{\"type\":\"NFC\"}" : "null");
    for (int i = 0; i < GGUF_PRE_STEPS && p->steps[i].cut != GGUF_CUT_END; i++) {
        buf_str(b, i ? "," : "");
        put_cut(b, &p->steps[i]);
        bytes |= p->steps[i].cut == GGUF_CUT_GPT2;
    }
    buf_str(b, bytes ? ""
                     : ",{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}");
    buf_str(b, "]},\"decoder\":{\"type\":\"ByteLevel\"}");
}

/* "left right"; the loader reports merges with unknown parts or results. */
static void put_merges(struct buf *b, const struct gguf_value *merges)
{
    struct gguf_str s;
    const uint8_t *at = merges->data;
    for (bool first = true; gguf_next(merges, &at, &s); first = false) {
        buf_str(b, first ? "" : ",");
        str(b, s);
    }
}

/* ---------------------------------------------------------------- tokenizers with scores */

/* SentencePiece merges the adjacent pair whose token has the highest score. Converted to merge
 * ranks: every split of a token into two tokens, by its score; among equals the longer left part
 * first, then the longer right one, then token order and part ids, as in transformers'
 * converter. */
struct merge {
    float score;
    uint32_t left_chars, right_chars, id, left, right;
    uint32_t cut; /* length of the left part in bytes */
};

static int before(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->left_chars != y->left_chars)
        return x->left_chars > y->left_chars ? -1 : 1;
    if (x->right_chars != y->right_chars)
        return x->right_chars > y->right_chars ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

static bool takes_part(const struct gguf_vocab *v, uint32_t id)
{
    enum gguf_token t = gguf_vocab_type(v, id);
    return v->text[id].n > 0 && t != GGUF_UNUSED && t != GGUF_CONTROL && t != GGUF_UNKNOWN &&
           t != GGUF_BYTE;
}

/* Texts that can be part of a merge. */
static int index_texts(const struct gguf_vocab *v, struct vocab *ids, struct err *e)
{
    int rc = 0;
    for (uint32_t id = 0; id < v->n && rc == 0; id++)
        if (takes_part(v, id) && vocab_find(ids, v->text[id].p, v->text[id].n) == NO_ID)
            rc = vocab_put(ids, v->text[id].p, v->text[id].n, id, e);
    return rc;
}

enum { PIECE_MAX = 256 }; /* bytes: longer ones are never matched, and cost quadratic time */

static void cut_token(const struct gguf_vocab *v, const struct vocab *ids, uint32_t id,
                      struct buf *out)
{
    const struct gguf_str s = v->text[id];
    struct merge m = {.score = (float)gguf_number_at(v->scores, id), .id = id};
    const uint32_t chars = (uint32_t)utf8_count(s.p, s.n);
    for (size_t at = utf8_valid_len(s.p, s.n); at < s.n; at += utf8_valid_len(s.p + at, s.n - at)) {
        m.left_chars++;
        m.right_chars = chars - m.left_chars;
        m.cut = (uint32_t)at;
        m.left = vocab_find(ids, s.p, at);
        m.right = vocab_find(ids, s.p + at, s.n - at);
        if (m.left != NO_ID && m.right != NO_ID)
            buf_add(out, &m, sizeof(m));
    }
}

static int put_scored(struct buf *b, const struct gguf_vocab *v, struct err *e)
{
    struct vocab ids = {0};
    struct buf list = BUF_INIT;
    int rc = index_texts(v, &ids, e);
    for (uint32_t id = 0; id < v->n && rc == 0; id++)
        if (takes_part(v, id) && v->text[id].n <= PIECE_MAX)
            cut_token(v, &ids, id, &list);
    struct merge *m = (struct merge *)(void *)list.p;
    const size_t n = list.len / sizeof(*m);
    if (n)
        qsort(m, n, sizeof(*m), before);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct gguf_str s = v->text[m[i].id];
        buf_str(b, i ? ",[" : "[");
        str(b, (struct gguf_str){s.p, m[i].cut});
        buf_ch(b, ',');
        str(b, (struct gguf_str){s.p + m[i].cut, s.n - m[i].cut});
        buf_ch(b, ']');
    }
    if (rc == 0 && list.oom)
        rc = err_nomem(e);
    buf_free(&list);
    vocab_free(&ids);
    return rc;
}

static void put_spaces(struct buf *b, const struct gguf_vocab *v)
{
    static const char replace[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                                  "\"content\":\"▁\"}";
    buf_fmt(b, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s%s]},",
            v->add_space ? "{\"type\":\"Prepend\",\"prepend\":\"▁\"}," : "", replace);
    buf_fmt(b,
            "\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
            "{\"type\":\"Replace\",\"pattern\":{\"String\":\"▁\"},\"content\":\" \"},"
            "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}%s]}",
            v->add_space ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "");
}

/* ---------------------------------------------------------------- common parts */

static void put_vocab(struct buf *b, const struct gguf_vocab *v)
{
    bool first = true;
    for (uint32_t id = 0; id < v->n; id++) {
        if (v->text[id].n == 0) /* an unused id */
            continue;
        buf_str(b, first ? "" : ",");
        str(b, v->text[id]);
        buf_fmt(b, ":%u", id);
        first = false;
    }
}

/* These tokens include the following white space. Files do not say so; llama.cpp too decides by the
 * model. */
static bool swallows(const struct gguf_vocab *v, uint32_t id)
{
    static const char *const not_these[] = {"<unk>", "<s>", "<|endoftext|>"};
    struct gguf_str family;
    if (!v->scores || !gguf_text(v->g, "general.architecture", &family) || family.n != 4 ||
        memcmp(family.p, "phi3", 4) != 0)
        return false;
    for (size_t i = 0; i < sizeof(not_these) / sizeof(not_these[0]); i++)
        if (v->text[id].n == strlen(not_these[i]) &&
            memcmp(v->text[id].p, not_these[i], v->text[id].n) == 0)
            return false;
    return true;
}

/* Tokens matched in the text: control tokens, which answers hide, and user-defined ones. */
static void put_added(struct buf *b, const struct gguf_vocab *v)
{
    bool first = true;
    for (uint32_t id = 0; id < v->n; id++) {
        enum gguf_token t = gguf_vocab_type(v, id);
        const bool control = t == GGUF_CONTROL || (t == GGUF_UNKNOWN && id == v->unk);
        if ((!control && t != GGUF_USER_DEFINED) || v->text[id].n == 0)
            continue;
        buf_fmt(b, "%s{\"id\":%u,\"content\":", first ? "" : ",", id);
        str(b, v->text[id]);
        buf_fmt(b,
                ",\"single_word\":false,\"lstrip\":false,\"rstrip\":%s,\"normalized\":false,"
                "\"special\":%s}",
                control && swallows(v, id) ? "true" : "false", control ? "true" : "false");
        first = false;
    }
}

static void put_around(struct buf *b, const struct gguf_vocab *v)
{
    const int64_t ids[] = {v->add_bos ? v->bos : -1, v->add_eos ? v->eos : -1};
    if (ids[0] < 0 && ids[1] < 0) {
        buf_str(b, "null");
        return;
    }
    buf_str(b, "{\"type\":\"TemplateProcessing\",\"single\":[");
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            buf_fmt(b, "%s{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", ids[0] >= 0 ? "," : "");
        if (ids[i] >= 0)
            buf_fmt(b, "%s{\"SpecialToken\":{\"id\":\"%d\",\"type_id\":0}}", i ? "," : "", i);
    }
    buf_str(b, "],\"special_tokens\":{");
    for (int i = 0; i < 2; i++)
        if (ids[i] >= 0)
            buf_fmt(b, "%s\"%d\":{\"id\":\"%d\",\"ids\":[%lld]}", i && ids[0] >= 0 ? "," : "", i, i,
                    (long long)ids[i]);
    buf_str(b, "}}");
}

static int put_model(struct buf *b, const struct gguf_vocab *v, struct err *e)
{
    int rc = 0;
    buf_str(b, "\"model\":{\"type\":\"BPE\",");
    if (v->scores)
        buf_str(b, "\"byte_fallback\":true,\"fuse_unk\":true,");
    else
        buf_fmt(b, "\"ignore_merges\":%s,", v->pre->ignore_merges ? "true" : "false");
    if (v->scores && v->unk >= 0 && v->text[v->unk].n) {
        buf_str(b, "\"unk_token\":");
        str(b, v->text[v->unk]);
        buf_ch(b, ',');
    }
    buf_str(b, "\"vocab\":{");
    put_vocab(b, v);
    buf_str(b, "},\"merges\":[");
    if (v->scores)
        rc = put_scored(b, v, e);
    else
        put_merges(b, v->merges);
    buf_str(b, "]}");
    return rc;
}

int gguf_tokenizer(const struct gguf *g, struct buf *out, struct err *e)
{
    struct gguf_vocab v;
    if (gguf_vocab_open(&v, g, e))
        return -1;
    buf_str(out, "{\"version\":\"1.0\",\"added_tokens\":[");
    put_added(out, &v);
    buf_str(out, "],");
    if (v.scores)
        put_spaces(out, &v);
    else
        put_pre(out, v.pre);
    buf_str(out, ",\"post_processor\":");
    put_around(out, &v);
    buf_ch(out, ',');
    int rc = put_model(out, &v, e);
    buf_ch(out, '}');
    gguf_vocab_close(&v);
    return rc == 0 && out->oom ? err_nomem(e) : rc;
}

/* ---------------------------------------------------------------- tokenizer_config.json */

/* tokenizer.chat_template is the default; others are tokenizer.chat_template.<name>. */
static void put_templates(struct buf *b, const struct gguf *g)
{
    static const char key[] = "tokenizer.chat_template";
    struct gguf_str s;
    bool first = true;
    buf_str(b, ",\"chat_template\":[");
    for (uint32_t i = 0; i < g->n_values; i++) {
        const char *name = g->values[i].key;
        if (strncmp(name, key, sizeof(key) - 1) != 0 || !gguf_text(g, name, &s))
            continue;
        name += sizeof(key) - 1;
        if (*name && *name != '.')
            continue;
        buf_str(b, first ? "{\"name\":" : ",{\"name\":");
        text(b, *name ? name + 1 : "default");
        buf_str(b, ",\"template\":");
        str(b, s);
        buf_ch(b, '}');
        first = false;
    }
    buf_ch(b, ']');
}

int gguf_tokenizer_config(const struct gguf *g, struct buf *out, struct err *e)
{
    struct gguf_vocab v;
    if (gguf_vocab_open(&v, g, e))
        return -1;
    const struct {
        const char *key;
        int64_t id;
    } tokens[] = {
        {"bos_token", v.bos}, {"eos_token", v.eos}, {"unk_token", v.unk}, {"pad_token", v.pad}};
    buf_fmt(out, "{\"add_bos_token\":%s,\"add_eos_token\":%s", v.add_bos ? "true" : "false",
            v.add_eos ? "true" : "false");
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++) {
        if (tokens[i].id < 0)
            continue;
        buf_fmt(out, ",\"%s\":", tokens[i].key);
        str(out, v.text[tokens[i].id]);
    }
    put_templates(out, g);
    buf_ch(out, '}');
    gguf_vocab_close(&v);
    return out->oom ? err_nomem(e) : 0;
}
