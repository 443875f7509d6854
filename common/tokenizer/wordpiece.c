#include "common/tokenizer/wordpiece.h"
#include "common/utf8.h"
#include <string.h>

int wordpiece_load(struct wordpiece *w, const struct vocab *v, const cJSON *j, bool whole,
                   struct err *e)
{
    const char *unk = json_str(j, "unk_token", whole ? "<unk>" : "[UNK]");
    const char *prefix = json_str(j, "continuing_subword_prefix", "##");
    size_t skip = strlen(prefix);
    w->vocab = v;
    w->whole = whole;
    w->marked = !whole && skip;
    w->unk = vocab_find(v, unk, strlen(unk));
    w->max_chars = json_int(j, "max_input_chars_per_word", 100);
    for (uint32_t id = 0; !whole && id < v->size; id++) {
        size_t n;
        const char *s = vocab_text(v, id, &n);
        /* without a prefix the text of the unknown token may be part of a word: it is only text */
        if (!s || !n || (!skip && id == w->unk))
            continue;
        if (trie_add(&w->trie, s, n, id) != 0)
            return err_nomem(e);
        if (n > skip && memcmp(s, prefix, skip) == 0 &&
            trie_add(&w->inner, s + skip, n - skip, id) != 0)
            return err_nomem(e);
    }
    return 0;
}

void wordpiece_free(struct wordpiece *w)
{
    trie_free(&w->trie);
    trie_free(&w->inner);
    *w = (struct wordpiece){0};
}

static int unknown(const struct wordpiece *w, struct sink *k, uint32_t start, uint32_t end,
                   struct err *e)
{
    if (w->unk == NO_ID)
        return err_set(e, ERR_VALIDATION,
                       "a word is not in the vocabulary and unk_token is missing");
    sink_put(k, w->unk, start, end);
    return 0;
}

int wordpiece_encode(const struct wordpiece *w, struct sink *k, uint32_t start, uint32_t end,
                     struct err *e)
{
    const char *s = k->text->p;
    uint32_t first = k->out->n, len = 0;
    if (w->whole) {
        uint32_t id = vocab_find(w->vocab, s + start, end - start);
        if (id == NO_ID)
            return unknown(w, k, start, end, e);
        sink_put(k, id, start, end);
        return 0;
    }
    if ((int64_t)utf8_count(s + start, end - start) > w->max_chars)
        return unknown(w, k, start, end, e);
    for (uint32_t at = start; at < end; at += len) {
        uint32_t id = trie_longest(at == start ? &w->trie : &w->inner, s + at, end - at, &len);
        if (id == TRIE_NONE) { /* one unknown piece makes the whole word unknown */
            k->out->n = first;
            return unknown(w, k, start, end, e);
        }
        sink_put(k, id, at, at + len);
    }
    return 0;
}
