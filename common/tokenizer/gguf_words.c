/* Tokenizers without merges in GGUF files: BERT's WordPiece, SentencePiece's unigrams, PLaMo's,
 * RWKV's longest tokens. */
#include "common/tokenizer/gguf_steps.h"
#include "common/tokenizer/likely.h"
#include "common/tokenizer/longest.h"
#include <math.h>
#include <string.h>

static const char *word(bool v) { return v ? "true" : "false"; }

/* BERT strips accents where it lower-cases, unless it is specified. */
static const char *strips_accents(const struct gguf_vocab *v)
{
    static const char key[] = "tokenizer.ggml.normalizer.strip_accents";
    return gguf_find(v->g, key) ? word(gguf_bool(v->g, key, false)) : "null";
}

void gguf_put_word_steps(struct buf *b, const struct gguf_vocab *v)
{
    buf_fmt(b,
            "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"
            "\"handle_chinese_chars\":true,\"strip_accents\":%s,\"lowercase\":%s},"
            "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
            "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}",
            strips_accents(v), word(v->lowercase));
}

void gguf_put_word_model(struct buf *b, const struct gguf_vocab *v)
{
    const struct gguf_str unk = v->unk >= 0 ? v->text[v->unk] : (struct gguf_str){"[UNK]", 5};
    buf_str(b, "{\"type\":\"WordPiece\",\"continuing_subword_prefix\":\"##\","
               "\"max_input_chars_per_word\":100,\"unk_token\":");
    buf_json_str(b, unk.p, unk.n);
    buf_str(b, ",\"vocab\":{");
    gguf_put_vocab(b, v);
    buf_str(b, "}}");
}

/* Runs of white space count as one space, as in the models' own tokenizer.json;
 * remove_extra_whitespaces is not evaluated, since converters fill it from another setting. */
void gguf_put_unigram_steps(struct buf *b, const struct gguf_vocab *v)
{
    static const char space[] = "{\"type\":\"Metaspace\",\"replacement\":\"▁\",";
    const char *prefix = word(v->add_space);
    buf_str(b, "\"normalizer\":");
    if (v->charsmap) {
        buf_str(b, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
        buf_base64(b, (const char *)v->charsmap->data, v->charsmap->n);
        buf_str(b, "\"}");
    } else {
        buf_str(b, "null");
    }
    buf_fmt(b,
            ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
            "\"WhitespaceSplit\"},%s\"add_prefix_space\":%s}]},\"decoder\":%s"
            "\"add_prefix_space\":%s}",
            space, prefix, space, prefix);
}

static bool has_bytes(const struct gguf_vocab *v)
{
    for (uint32_t id = 0; id < v->n; id++)
        if (gguf_vocab_type(v, id) == GGUF_BYTE)
            return true;
    return false;
}

int gguf_put_unigram(struct buf *b, const struct gguf_vocab *v, struct err *e)
{
    buf_fmt(b, "{\"type\":\"Unigram\",\"byte_fallback\":%s,", word(has_bytes(v)));
    if (v->unk >= 0)
        buf_fmt(b, "\"unk_id\":%lld,", (long long)v->unk);
    buf_str(b, "\"vocab\":[");
    for (uint32_t id = 0; id < v->n; id++) {
        const double score = gguf_number_at(v->scores, id);
        if (!isfinite(score))
            return err_set(e, ERR_VALIDATION, "%s: the score of token %u is no number", v->g->path,
                           id);
        buf_str(b, id ? ",[" : "[");
        buf_json_str(b, v->text[id].p, v->text[id].n);
        buf_ch(b, ',');
        buf_fmt(b, "%.17g", score); /* all digits: sums of scores are compared */
        buf_ch(b, ']');
    }
    buf_str(b, "]}");
    return 0;
}

int gguf_put_likely(struct buf *b, const struct gguf_vocab *v, struct err *e)
{
    likely_put_model(b);
    for (uint32_t id = 0; id < v->n; id++) {
        const enum gguf_token type = gguf_vocab_type(v, id);
        const double score = gguf_number_at(v->scores, id);
        if (!isfinite(score))
            return err_set(e, ERR_VALIDATION, "%s: the score of token %u is no number", v->g->path,
                           id);
        likely_put(b, v->text[id].p, v->text[id].n, score, type != GGUF_BYTE && type != GGUF_UNUSED,
                   id == 0);
    }
    buf_str(b, "]}");
    return 0;
}

void gguf_put_longest(struct buf *b, const struct gguf_vocab *v)
{
    const struct gguf_str unk = v->unk >= 0 ? v->text[v->unk] : (struct gguf_str){"<unk>", 5};
    longest_put_model(b, unk.p, unk.n);
    bool first = true;
    for (uint32_t id = 0; id < v->n; id++) {
        const struct gguf_str s = v->text[id];
        if (s.n == 0) /* an unused id */
            continue;
        buf_str(b, first ? "" : ",");
        if (gguf_vocab_type(v, id) == GGUF_NORMAL)
            longest_put_bytes(b, s.p, s.n);
        else
            buf_json_str(b, s.p, s.n);
        buf_fmt(b, ":%u", id);
        first = false;
    }
    buf_str(b, "}}");
}
