#include "common/gguf/vocab.h"
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

static bool is(struct gguf_str s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
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

/* Tokens with scores (SentencePiece's BPE), or byte-level words with merges. */
static int read_model(struct gguf_vocab *v, struct err *e)
{
    struct gguf_str model = {"", 0}, pre = {"", 0};
    gguf_text(v->g, KEY("model"), &model);
    gguf_text(v->g, KEY("pre"), &pre);
    v->pieces = is(model, "llama") || is(model, "gemma4");
    if (is(model, "gemma4")) {
        v->merges = gguf_strings(v->g, KEY("merges"));
        return v->merges
                   ? 0
                   : err_set(e, ERR_VALIDATION, "%s: `" KEY("merges") "` is missing", v->g->path);
    }
    if (v->pieces) {
        if (read_list(v, KEY("scores"), &v->scores, e))
            return -1;
        return v->scores
                   ? 0
                   : err_set(e, ERR_VALIDATION, "%s: `" KEY("scores") "` is missing", v->g->path);
    }
    if (!is(model, "gpt2"))
        return err_set(e, ERR_VALIDATION,
                       "%s: `" KEY("model") "` %.*s is not read here; llama, gemma4 and gpt2 are",
                       v->g->path, model.n > 40 ? 40 : (int)model.n, model.p);
    if (pre.n == 0)
        return err_set(e, ERR_VALIDATION,
                       "%s: `" KEY("pre") "` is missing, which says how words are cut: convert the "
                                          "model again with a newer llama.cpp",
                       v->g->path);
    if (!(v->pre = gguf_pre_find(pre)))
        return err_set(e, ERR_VALIDATION, "%s: `" KEY("pre") "` %.*s is not known here", v->g->path,
                       pre.n > 40 ? 40 : (int)pre.n, pre.p);
    if (!(v->merges = gguf_strings(v->g, KEY("merges"))))
        return err_set(e, ERR_VALIDATION, "%s: `" KEY("merges") "` is missing", v->g->path);
    return 0;
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
        if (is(v->text[id], text))
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
        "[EOT]",
        "[EOS]",
        "[e~[",
        "<|endoftext|>",
        "<EOT>",
        "_<EOT>",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<｜end▁of▁sentence｜>",
    };
    const bool returns = has_control(v, "<|return|>") && has_control(v, "<|call|>");
    add_end(v, v->eos);
    add_end(v, id_of(v, KEY("eot_token_id"), -1));
    add_end(v, id_of(v, KEY("eom_token_id"), -1));
    for (uint32_t id = 0; id < v->n; id++) {
        enum gguf_token type = gguf_vocab_type(v, id);
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
            if ((type == GGUF_CONTROL || type == GGUF_USER_DEFINED) && is(v->text[id], texts[i]) &&
                !(returns && is(v->text[id], "<|end|>")))
                add_end(v, id);
    }
}

static int read_all(struct gguf_vocab *v, struct err *e)
{
    if (read_texts(v, e) || read_list(v, KEY("token_type"), &v->types, e) || read_model(v, e))
        return -1;
    const bool spm = v->pieces;
    v->bos = id_of(v, KEY("bos_token_id"), spm ? 1 : -1);
    v->eos = id_of(v, KEY("eos_token_id"), spm ? 2 : -1);
    v->unk = id_of(v, KEY("unknown_token_id"), spm ? 0 : -1);
    v->pad = id_of(v, KEY("padding_token_id"), -1);
    v->add_bos = v->bos >= 0 && gguf_bool(v->g, KEY("add_bos_token"), spm || v->pre->add_bos);
    v->add_eos = v->eos >= 0 && gguf_bool(v->g, KEY("add_eos_token"), false);
    v->add_space = gguf_bool(v->g, KEY("add_space_prefix"), true);
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
    *v = (struct gguf_vocab){0};
}
