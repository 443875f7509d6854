/* Converts a GGUF file's tokenizer to tokenizer.json and tokenizer_config.json. */
#include "common/buf.h"
#include "common/tokenizer/gguf_lists.h"
#include "common/tokenizer/gguf_steps.h"
#include "common/tokenizer/likely.h"
#include "common/tokenizer/longest.h"
#include "common/tokenizer/scored.h"
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
void gguf_put_steps(struct buf *b, const struct gguf_pre *p)
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

static bool takes_part(const struct gguf_vocab *v, uint32_t id)
{
    enum gguf_token t = gguf_vocab_type(v, id);
    return t != GGUF_UNUSED && t != GGUF_CONTROL && t != GGUF_UNKNOWN && t != GGUF_BYTE;
}

static struct scored_piece *pieces(const struct gguf_vocab *v, struct err *e)
{
    struct scored_piece *list = calloc(v->n, sizeof(*list));
    if (!list)
        return err_nomem(e), NULL;
    for (uint32_t id = 0; id < v->n; id++)
        list[id] = (struct scored_piece){v->text[id].p, takes_part(v, id) ? v->text[id].n : 0,
                                         (float)gguf_number_at(v->scores, id)};
    return list;
}

static int put_scored(struct buf *b, const struct gguf_vocab *v, struct err *e)
{
    struct scored_piece *list = pieces(v, e);
    int rc = list ? scored_merges_json(list, v->n, b, e) : -1;
    free(list);
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

void gguf_put_vocab(struct buf *b, const struct gguf_vocab *v)
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
    if (v->kind != GGUF_PIECES || !gguf_text(v->g, "general.architecture", &family) ||
        family.n != 4 || memcmp(family.p, "phi3", 4) != 0)
        return false;
    for (size_t i = 0; i < sizeof(not_these) / sizeof(not_these[0]); i++)
        if (v->text[id].n == strlen(not_these[i]) &&
            memcmp(v->text[id].p, not_these[i], v->text[id].n) == 0)
            return false;
    return true;
}

/* Tokens matched in the text: control tokens, which answers hide, and user-defined ones. */
static void put_added(struct buf *b, const struct gguf_vocab *v, const char *unlisted)
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
    if (!unlisted)
        return;
    buf_fmt(b, "%s{\"id\":%u,\"special\":true,\"normalized\":false,\"content\":", first ? "" : ",",
            v->n);
    text(b, unlisted);
    buf_ch(b, '}');
}

enum { BOS, EOS, SEP, AROUND_N };

static void put_special(struct buf *b, int which, int type)
{
    buf_fmt(b, "{\"SpecialToken\":{\"id\":\"%d\",\"type_id\":%d}}", which, type);
}

static void put_sequence(struct buf *b, char which, int type)
{
    buf_fmt(b, "{\"Sequence\":{\"id\":\"%c\",\"type_id\":%d}}", which, type);
}

/* Two texts, as an encoder compares them. Types are BERT's. */
static void put_pair(struct buf *b, const struct gguf_vocab *v)
{
    const int second = v->kind == GGUF_WORDS;
    buf_str(b, ",\"pair\":[");
    if (v->add_bos) {
        put_special(b, BOS, 0);
        buf_ch(b, ',');
    }
    put_sequence(b, 'A', 0);
    buf_ch(b, ',');
    put_special(b, EOS, 0);
    buf_ch(b, ',');
    if (v->sep >= 0) {
        put_special(b, SEP, 0);
        buf_ch(b, ',');
    }
    put_sequence(b, 'B', second);
    buf_ch(b, ',');
    put_special(b, EOS, second);
    buf_ch(b, ']');
}

static void put_around(struct buf *b, const struct gguf_vocab *v)
{
    const int64_t ids[AROUND_N] = {v->add_bos ? v->bos : -1, v->add_eos ? v->eos : -1,
                                   v->add_eos ? v->sep : -1};
    if (ids[BOS] < 0 && ids[EOS] < 0) {
        buf_str(b, "null");
        return;
    }
    buf_str(b, "{\"type\":\"TemplateProcessing\",\"single\":[");
    if (ids[BOS] >= 0) {
        put_special(b, BOS, 0);
        buf_ch(b, ',');
    }
    put_sequence(b, 'A', 0);
    if (ids[EOS] >= 0) {
        buf_ch(b, ',');
        put_special(b, EOS, 0);
    }
    buf_ch(b, ']');
    if (ids[EOS] >= 0)
        put_pair(b, v);
    buf_str(b, ",\"special_tokens\":{");
    bool first = true;
    for (int i = 0; i < AROUND_N; i++) {
        if (ids[i] < 0)
            continue;
        buf_fmt(b, "%s\"%d\":{\"id\":\"%d\",\"ids\":[%lld]}", first ? "" : ",", i, i,
                (long long)ids[i]);
        first = false;
    }
    buf_str(b, "}}");
}

static bool is_bpe(const struct gguf_vocab *v)
{
    return v->kind == GGUF_BYTES || v->kind == GGUF_PIECES;
}

/* `apart`: without the lists of BPE, which are long. */
static int put_model(struct buf *b, const struct gguf_vocab *v, bool apart, struct err *e)
{
    const bool with_pieces = v->kind == GGUF_PIECES;
    int rc = 0;
    buf_str(b, "\"model\":");
    if (v->kind == GGUF_WORDS)
        return gguf_put_word_model(b, v), 0;
    if (v->kind == GGUF_UNIGRAM)
        return gguf_put_unigram(b, v, e);
    if (v->kind == GGUF_LIKELY)
        return gguf_put_likely(b, v, e);
    if (v->kind == GGUF_LONGEST)
        return gguf_put_longest(b, v), 0;
    buf_str(b, "{\"type\":\"BPE\",");
    if (with_pieces)
        buf_str(b, "\"byte_fallback\":true,\"fuse_unk\":true,");
    else
        buf_fmt(b, "\"ignore_merges\":%s,", v->pre->ignore_merges ? "true" : "false");
    if (with_pieces && v->unk >= 0 && v->text[v->unk].n) {
        buf_str(b, "\"unk_token\":");
        str(b, v->text[v->unk]);
        buf_ch(b, ',');
    }
    buf_str(b, "\"vocab\":{");
    if (!apart)
        gguf_put_vocab(b, v);
    buf_str(b, "},\"merges\":[");
    if (apart)
        ;
    else if (v->scores)
        rc = put_scored(b, v, e);
    else
        put_merges(b, v->merges);
    buf_str(b, "]}");
    return rc;
}

static void put_steps(struct buf *b, const struct gguf_vocab *v)
{
    switch (v->kind) {
    case GGUF_BYTES:
        gguf_put_steps(b, v->pre);
        break;
    case GGUF_PIECES:
        put_spaces(b, v);
        break;
    case GGUF_UNIGRAM:
        gguf_put_unigram_steps(b, v);
        break;
    case GGUF_WORDS:
        gguf_put_word_steps(b, v);
        break;
    case GGUF_LIKELY:
        likely_put_steps(b);
        break;
    case GGUF_LONGEST:
        longest_put_steps(b);
        break;
    }
}

static int put_all(struct buf *out, const struct gguf_vocab *v, const char *unlisted, bool apart,
                   struct err *e)
{
    buf_str(out, "{\"version\":\"1.0\",\"added_tokens\":[");
    put_added(out, v, unlisted);
    buf_str(out, "],");
    put_steps(out, v);
    buf_str(out, ",\"post_processor\":");
    put_around(out, v);
    buf_ch(out, ',');
    int rc = put_model(out, v, apart, e);
    buf_ch(out, '}');
    return rc == 0 && out->oom ? err_nomem(e) : rc;
}

int gguf_tokenizer(const struct gguf *g, const char *unlisted, struct buf *out, struct err *e)
{
    struct gguf_vocab v;
    if (gguf_vocab_open(&v, g, e))
        return -1;
    int rc = put_all(out, &v, unlisted, false, e);
    gguf_vocab_close(&v);
    return rc;
}

int gguf_lists_open(struct gguf_lists *l, const struct gguf *g, const char *unlisted, struct err *e)
{
    *l = (struct gguf_lists){.apart = false};
    if (gguf_vocab_open(&l->vocab, g, e))
        return -1;
    l->apart = is_bpe(&l->vocab);
    int rc = put_all(&l->json, &l->vocab, unlisted, l->apart, e);
    if (rc == 0 && l->apart && l->vocab.scores && !(l->pieces = pieces(&l->vocab, e)))
        rc = -1;
    if (rc)
        gguf_lists_close(l);
    return rc;
}

void gguf_lists_close(struct gguf_lists *l)
{
    gguf_vocab_close(&l->vocab);
    buf_free(&l->json);
    free(l->pieces);
    *l = (struct gguf_lists){.apart = false};
}

/* ---------------------------------------------------------------- tokenizer_config.json */

/* A name instead of a template, by which llama.cpp has it. */
static struct gguf_str named_template(struct gguf_str s)
{
    static const char rwkv[] =
        "{% for message in messages %}{% if message['role'] == 'system' %}System: "
        "{{ message['content'] | trim }}\n\n{% elif message['role'] == 'user' %}User: "
        "{{ message['content'] | trim }}\n\n{% if loop.last %}Assistant:{% endif %}"
        "{% elif message['role'] == 'assistant' %}Assistant: {{ message['content'] | trim }}\n\n"
        "{% endif %}{% endfor %}";
    return gguf_str_is(&s, "rwkv-world") ? (struct gguf_str){rwkv, sizeof(rwkv) - 1} : s;
}

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
        str(b, named_template(s));
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
