#include "common/gguf/vocab.h"
#include "common/hex.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

enum { VOCAB_MAX = 1 << 23 };
#define KEY(name) "tokenizer.ggml." name

static int64_t id_of(const struct gguf_vocab *v, const char *key, int64_t def)
{
    double id;
    if (!gguf_number(v->g, key, &id))
        return def < (int64_t)v->n ? def : -1;
    return id >= 0 && id < v->n ? (int64_t)id : -1;
}

enum gguf_token gguf_vocab_type(const struct gguf_vocab *v, uint32_t id)
{
    double type = v->types ? gguf_number_at(v->types, id) : GGUF_NORMAL;
    return type >= GGUF_NORMAL && type <= GGUF_BYTE ? (enum gguf_token)(int)type : GGUF_NORMAL;
}

static int read_texts(struct gguf_vocab *v, struct err *e)
{
    const struct gguf_value *list = gguf_strings(v->g, KEY("tokens"));
    if (!list || list->n == 0 || list->n > VOCAB_MAX)
        return err_set(e, ERR_VALIDATION, "%s: `" KEY("tokens") "` is missing, empty or too long",
                       v->g->path);
    v->n = (uint32_t)list->n;
    if (!(v->text = calloc(v->n, sizeof(v->text[0]))))
        return err_nomem(e);
    const uint8_t *at = list->data;
    for (uint32_t i = 0; i < v->n; i++)
        if (!gguf_next(list, &at, &v->text[i]) || !utf8_valid(v->text[i].p, v->text[i].n))
            return err_set(e, ERR_VALIDATION, "%s: token %u is not UTF-8", v->g->path, i);
    return 0;
}

static int read_list(const struct gguf_vocab *v, const char *key, const struct gguf_value **out,
                     struct err *e)
{
    *out = gguf_numbers(v->g, key);
    if (*out && (*out)->n < v->n)
        return err_set(e, ERR_VALIDATION, "%s: `%s` has %llu entries for %u tokens", v->g->path,
                       key, (unsigned long long)(*out)->n, v->n);
    return 0;
}

/* Values of tokenizer.ggml.model, with llama.cpp's defaults for what a file does not specify. */
static const struct vocab_model {
    const char *name;
    int64_t bos, eos, unk, pad;
    enum gguf_vocab_kind kind;
    bool add_bos, add_eos;
} models[] = {
    {"llama", 1, 2, 0, -1, GGUF_PIECES, true, false},
    {"gemma4", 1, 2, 0, -1, GGUF_PIECES, true, false},
    {"gpt2", -1, -1, -1, -1, GGUF_BYTES, false, false},
    {"t5", -1, 1, 2, 0, GGUF_UNIGRAM, false, true},
    {"bert", 101, 102, 100, 0, GGUF_WORDS, true, true},
    {"rwkv", 0, 0, 0, -1, GGUF_LONGEST, false, false},
    {"plamo2", 1, 2, 0, 3, GGUF_LIKELY, false, false},
};

static const struct vocab_model *model_of(const struct gguf_vocab *v, struct err *e)
{
    struct gguf_str name = {"", 0};
    gguf_text(v->g, KEY("model"), &name);
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        if (gguf_str_is(&name, models[i].name))
            return &models[i];
    err_set(e, ERR_VALIDATION,
            "%s: `" KEY("model") "` %.*s is not read here; llama, gemma4, gpt2, t5, bert, "
                                 "rwkv and plamo2 are",
            v->g->path, name.n > 40 ? 40 : (int)name.n, name.p);
    return NULL;
}

static int missing(const struct gguf_vocab *v, const char *key, struct err *e)
{
    return err_set(e, ERR_VALIDATION, "%s: `%s` is missing", v->g->path, key);
}

static int read_pre(struct gguf_vocab *v, struct err *e)
{
    struct gguf_str pre = {"", 0};
    gguf_text(v->g, KEY("pre"), &pre);
    if (pre.n == 0)
        return err_set(e, ERR_VALIDATION,
                       "%s: `" KEY("pre") "` is missing, which says how words are cut: convert the "
                                          "model again with a newer llama.cpp",
                       v->g->path);
    if (!(v->pre = gguf_pre_find(pre)))
        return err_set(e, ERR_VALIDATION, "%s: `" KEY("pre") "` %.*s is not known here", v->g->path,
                       pre.n > 40 ? 40 : (int)pre.n, pre.p);
    return 0;
}

/* ---------------------------------------------------------------- words */

static const char SPACE[] = "▁";
enum { SPACE_BYTES = sizeof(SPACE) - 1 };

static bool in_brackets(struct gguf_str s)
{
    return s.n >= 2 && s.p[0] == '[' && s.p[s.n - 1] == ']';
}

/* Special tokens are stored as they are, older files' unused ones too. */
static bool stored_raw(const struct gguf_vocab *v, uint32_t id)
{
    return gguf_vocab_type(v, id) == GGUF_CONTROL || in_brackets(v->text[id]);
}

/* Tokens are stored with ▁ before a word and without the ## before its further parts: restores
 * the original. */
static int restore_words(struct gguf_vocab *v, struct err *e)
{
    size_t bytes = 1, at = 0;
    for (uint32_t id = 0; id < v->n; id++)
        bytes += v->text[id].n + 2;
    if (!(v->words = malloc(bytes)))
        return err_nomem(e);
    for (uint32_t id = 0; id < v->n; id++) {
        struct gguf_str *s = &v->text[id];
        if (stored_raw(v, id))
            continue;
        if (s->n >= SPACE_BYTES && memcmp(s->p, SPACE, SPACE_BYTES) == 0) {
            *s = (struct gguf_str){s->p + SPACE_BYTES, s->n - SPACE_BYTES};
            continue;
        }
        char *to = v->words + at;
        to[0] = to[1] = '#';
        memcpy(to + 2, s->p, s->n);
        *s = (struct gguf_str){to, s->n + 2};
        at += s->n;
    }
    return 0;
}

/* Files before 2025 do not specify whether texts are lower-cased; a vocabulary with capital letters
 * is for texts that keep them. */
static bool has_capitals(const struct gguf_vocab *v)
{
    for (uint32_t id = 0; id < v->n; id++) {
        const struct gguf_str s = v->text[id];
        if (stored_raw(v, id) || in_brackets(s) || gguf_vocab_type(v, id) != GGUF_NORMAL)
            continue;
        for (size_t i = 0; i < s.n; i++)
            if (s.p[i] >= 'A' && s.p[i] <= 'Z')
                return true;
    }
    return false;
}

/* ---------------------------------------------------------------- bytes with escapes */

/* repr() writes lower case only. */
static int lower_hex(char c) { return c >= 'A' && c <= 'F' ? -1 : hex_digit(c); }

/* The byte at *at of a literal of Python without its quotes; -1: an escape that repr() does not
 * write. */
static int next_byte(struct gguf_str s, size_t *at)
{
    static const char letters[] = "ntr\\'\"", means[] = "\n\t\r\\'\"";
    const char c = s.p[(*at)++];
    if (c != '\\')
        return (unsigned char)c;
    const char escape = *at < s.n ? s.p[(*at)++] : 0, *simple = strchr(letters, escape);
    if (escape && simple)
        return means[simple - letters];
    if (escape != 'x' || s.n - *at < 2)
        return -1;
    const int high = lower_hex(s.p[*at]), low = lower_hex(s.p[*at + 1]);
    *at += 2;
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* A text with a byte that no token has would be no tokens. */
static int check_bytes(const struct gguf_vocab *v, struct err *e)
{
    bool has[256] = {false};
    for (uint32_t id = 0; id < v->n; id++)
        if (v->text[id].n == 1)
            has[(unsigned char)v->text[id].p[0]] = true;
    for (unsigned byte = 0; byte < 256; byte++)
        if (!has[byte])
            return err_set(e, ERR_VALIDATION, "%s: no token is the byte 0x%02x", v->g->path, byte);
    return 0;
}

/* Normal tokens are bytes, stored with Python's escapes: restores them. Others are no part of a
 * text. */
static int restore_bytes(struct gguf_vocab *v, struct err *e)
{
    size_t bytes = 1, n = 0;
    for (uint32_t id = 0; id < v->n; id++)
        bytes += v->text[id].n;
    if (!(v->words = malloc(bytes)))
        return err_nomem(e);
    for (uint32_t id = 0; id < v->n; id++) {
        struct gguf_str *s = &v->text[id];
        const enum gguf_token type = gguf_vocab_type(v, id);
        char *to = v->words + n;
        for (size_t at = 0; type == GGUF_NORMAL && at < s->n;) {
            const int byte = next_byte(*s, &at);
            if (byte < 0)
                return err_set(e, ERR_VALIDATION, "%s: token %u is no literal of bytes", v->g->path,
                               id);
            v->words[n++] = (char)byte;
        }
        if (type == GGUF_NORMAL)
            *s = (struct gguf_str){to, (size_t)(v->words + n - to)};
        else if (type == GGUF_UNUSED)
            s->n = 0;
    }
    return check_bytes(v, e);
}

/* ---------------------------------------------------------------- lists of a model */

static int read_charsmap(struct gguf_vocab *v, struct err *e)
{
    const struct gguf_value *m = gguf_find(v->g, KEY("precompiled_charsmap"));
    if (m && (!m->list || (m->type != GGUF_T_U8 && m->type != GGUF_T_I8)))
        return err_set(e, ERR_VALIDATION,
                       "%s: `" KEY("precompiled_charsmap") "` is no list of bytes", v->g->path);
    v->charsmap = m && m->n ? m : NULL;
    return 0;
}

static int read_model(struct gguf_vocab *v, const struct vocab_model *m, struct err *e)
{
    v->kind = m->kind;
    if (v->kind == GGUF_WORDS)
        return restore_words(v, e);
    if (v->kind == GGUF_LONGEST)
        return restore_bytes(v, e);
    if (v->kind == GGUF_UNIGRAM && read_charsmap(v, e))
        return -1;
    if (v->kind == GGUF_UNIGRAM || v->kind == GGUF_LIKELY || strcmp(m->name, "llama") == 0) {
        if (read_list(v, KEY("scores"), &v->scores, e))
            return -1;
        return v->scores ? 0 : missing(v, KEY("scores"), e);
    }
    if (v->kind == GGUF_BYTES && read_pre(v, e))
        return -1;
    v->merges = gguf_strings(v->g, KEY("merges"));
    return v->merges ? 0 : missing(v, KEY("merges"), e);
}

/* ---------------------------------------------------------------- end tokens */

static void add_end(struct gguf_vocab *v, int64_t id)
{
    for (uint32_t i = 0; i < v->n_ends; i++)
        if (v->ends[i] == id)
            return;
    if (id >= 0 && v->n_ends < GGUF_ENDS_MAX)
        v->ends[v->n_ends++] = (uint32_t)id;
}

static bool has_control(const struct gguf_vocab *v, const char *text)
{
    for (uint32_t id = 0; id < v->n; id++)
        if (gguf_str_is(&v->text[id], text))
            return gguf_vocab_type(v, id) == GGUF_CONTROL ||
                   gguf_vocab_type(v, id) == GGUF_USER_DEFINED;
    return false;
}

/* The file contains one end-of-text token, but seldom the end of a turn, which an instruction-tuned
 * model emits (generation_config.json would list it). As llama.cpp, we find it by its text. With
 * <|return|> and <|call|>, <|end|> ends a message within a turn (gpt-oss). */
static void find_ends(struct gguf_vocab *v)
{
    static const char *const texts[] = {
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|return|>",
        "<|call|>",
        "<turn|>",
        "<|tool_response>", /* Gemma's result of a call, which follows the turn */
        "<start_function_response>",
        "[EOT]",
        "[EOS]",
        "[e~[",
        "<|endoftext|>",
        "<EOT>",
        "_<EOT>",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<｜end▁of▁sentence｜>",
        "<|plamo:eos|>",
    };
    const bool returns = has_control(v, "<|return|>") && has_control(v, "<|call|>");
    add_end(v, v->eos);
    add_end(v, id_of(v, KEY("eot_token_id"), -1));
    add_end(v, id_of(v, KEY("eom_token_id"), -1));
    for (uint32_t id = 0; id < v->n; id++) {
        enum gguf_token type = gguf_vocab_type(v, id);
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
            if ((type == GGUF_CONTROL || type == GGUF_USER_DEFINED) &&
                gguf_str_is(&v->text[id], texts[i]) &&
                !(returns && gguf_str_is(&v->text[id], "<|end|>")))
                add_end(v, id);
    }
}

/* Encoders may have other words for the tokens around a text: [CLS], [SEP]. WordPiece has no ends
 * but those. */
static void read_around(struct gguf_vocab *v, const struct vocab_model *m)
{
    const bool words = v->kind == GGUF_WORDS;
    const bool add_bos =
        gguf_bool(v->g, KEY("add_bos_token"), v->pre ? v->pre->add_bos : m->add_bos);
    const bool add_eos = gguf_bool(v->g, KEY("add_eos_token"), m->add_eos);
    const int64_t cls = id_of(v, KEY("cls_token_id"), -1);
    const int64_t sep = id_of(v, KEY("seperator_token_id"), -1); /* the format's spelling */
    v->add_bos = add_bos || words;
    v->add_eos = add_eos || words;
    v->bos = id_of(v, KEY("bos_token_id"), v->add_bos && cls >= 0 ? cls : m->bos);
    v->eos = id_of(v, KEY("eos_token_id"), v->add_eos && sep >= 0 ? sep : m->eos);
    if (words && sep >= 0)
        v->eos = sep;
    v->add_bos &= v->bos >= 0;
    v->add_eos &= v->eos >= 0;
    /* XLM-RoBERTa has two separators between texts, T5 one. */
    v->sep = -1;
    if (!words && gguf_bool(v->g, KEY("add_sep_token"), v->kind == GGUF_UNIGRAM && v->add_bos))
        v->sep = sep >= 0 ? sep : v->eos;
}

static int read_all(struct gguf_vocab *v, struct err *e)
{
    const struct vocab_model *m = model_of(v, e);
    if (!m || read_texts(v, e) || read_list(v, KEY("token_type"), &v->types, e) ||
        read_model(v, m, e))
        return -1;
    read_around(v, m);
    v->unk = id_of(v, KEY("unknown_token_id"), m->unk);
    v->pad = id_of(v, KEY("padding_token_id"), m->pad);
    v->add_space = gguf_bool(v->g, KEY("add_space_prefix"), true);
    if (v->kind == GGUF_WORDS)
        v->lowercase = gguf_bool(v->g, KEY("normalizer.lowercase"), !has_capitals(v));
    find_ends(v);
    return 0;
}

int gguf_vocab_open(struct gguf_vocab *v, const struct gguf *g, struct err *e)
{
    *v = (struct gguf_vocab){.g = g};
    if (read_all(v, e) == 0)
        return 0;
    gguf_vocab_close(v);
    return -1;
}

void gguf_vocab_close(struct gguf_vocab *v)
{
    free(v->text);
    free(v->words);
    *v = (struct gguf_vocab){0};
}
