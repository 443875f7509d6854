#include "router/generate/suppress.h"
#include "router/generate/bad_words.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_IDS = 1 << 18 };

/* Sequences under construction. */
struct suppress_list {
    uint32_t *ids, *lengths, n_ids, n;
};

static int refuse(const char *where, const char *key, const char *words, struct err *e)
{
    return err_set(e, ERR_VALIDATION,
                   "%s: `%s` must be %s (--generation-config none ignores the model's file)", where,
                   key, words);
}

/* A sequence of the end token alone: transformers drops it, as no answer would end. */
static bool is_end(const cJSON *v, const cJSON *ends)
{
    const cJSON *one = cJSON_IsArray(v) ? v->child : NULL;
    if (!one || one->next || !cJSON_IsNumber(one))
        return false;
    if (cJSON_IsNumber(ends))
        return ends->valuedouble == one->valuedouble;
    for (const cJSON *k = json_first(ends); k; k = k->next)
        if (cJSON_IsNumber(k) && k->valuedouble == one->valuedouble)
            return true;
    return false;
}

/* One sequence: a list of tokens, or a token. False: it is something else. */
static bool add(struct suppress_list *l, const cJSON *v)
{
    const cJSON *first = cJSON_IsArray(v) ? v->child : v;
    const uint32_t from = l->n_ids;
    for (const cJSON *k = first; k; k = cJSON_IsArray(v) ? k->next : NULL) {
        if (!cJSON_IsNumber(k) || !(k->valuedouble >= 0 && k->valuedouble <= INT32_MAX) ||
            k->valuedouble != (double)(uint32_t)k->valuedouble || l->n_ids == MOST_IDS)
            return false;
        l->ids[l->n_ids++] = (uint32_t)k->valuedouble;
    }
    if (l->n == MOST_BAD_WORDS)
        return false;
    if (l->n_ids > from)
        l->lengths[l->n++] = l->n_ids - from;
    return true;
}

int suppress_read(const cJSON *o, const char *where, struct bad_words *out, struct err *e)
{
    static const char *const keys[] = {"suppress_tokens", "bad_words_ids"};
    struct suppress_list l = {.ids = malloc(MOST_IDS * sizeof(*l.ids)),
                              .lengths = malloc(MOST_BAD_WORDS * sizeof(*l.lengths))};
    int rc = l.ids && l.lengths ? 0 : err_nomem(e);
    for (size_t i = 0; rc == 0 && i < sizeof(keys) / sizeof(keys[0]); i++) {
        const cJSON *list = json_get(o, keys[i]);
        if (list && !cJSON_IsArray(list))
            rc = refuse(where, keys[i], "a list", e);
        for (const cJSON *v = json_first(list); v && rc == 0; v = v->next)
            if (!is_end(v, json_get(o, "eos_token_id")) &&
                (cJSON_IsArray(v) == (i == 0) || !add(&l, v)))
                rc = refuse(where, keys[i],
                            i ? "up to 10000 lists of tokens" : "a list of up to 10000 tokens", e);
    }
    if (rc || !l.n) {
        free(l.ids);
        free(l.lengths);
        *out = (struct bad_words){0};
        return rc;
    }
    *out = (struct bad_words){l.ids, l.lengths, l.n_ids, l.n};
    return 0;
}

void suppress_free(struct bad_words *w)
{
    free((void *)(uintptr_t)w->ids);
    free((void *)(uintptr_t)w->lengths);
    *w = (struct bad_words){0};
}

void suppress_ignored(const cJSON *o, char *out, size_t n)
{
    static const struct {
        const char *name;
        double neutral;
    } rows[] = {{"num_beams", 1},
                {"num_beam_groups", 1},
                {"penalty_alpha", 0},
                {"no_repeat_ngram_size", 0},
                {"min_length", 0},
                {"encoder_no_repeat_ngram_size", 0},
                {"guidance_scale", 1},
                {"encoder_repetition_penalty", 1},
                {"epsilon_cutoff", 0},
                {"eta_cutoff", 0},
                {"sequence_bias", 0},
                {"exponential_decay_length_penalty", 0},
                {"stop_strings", 0},
                {"begin_suppress_tokens", 0},
                {"top_h", 0},
                {"forced_decoder_ids", 0},
                {"watermarking_config", 0}};
    size_t at = 0;
    *out = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const cJSON *v = json_get(o, rows[i].name);
        if (!v || json_is_empty(v) || (cJSON_IsNumber(v) && v->valuedouble == rows[i].neutral) ||
            at + strlen(rows[i].name) + 3 > n)
            continue;
        at += (size_t)snprintf(out + at, n - at, "%s%s", at ? ", " : "", rows[i].name);
    }
}

static bool all_below(const uint32_t *ids, uint32_t n, uint32_t vocab_size)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] >= vocab_size)
            return false;
    return true;
}

int suppress_join(const struct bad_words *more, uint32_t vocab_size, struct arena *a,
                  struct bad_words *w, struct err *e)
{
    if (!w->n && all_below(more->ids, more->n_ids, vocab_size)) {
        *w = *more;
        return 0;
    }
    uint32_t *ids = ARENA_NEW(a, uint32_t, w->n_ids + (size_t)more->n_ids);
    uint32_t *lengths = ARENA_NEW(a, uint32_t, w->n + (size_t)more->n);
    if (!ids || !lengths)
        return err_nomem(e);
    if (w->n) {
        memcpy(ids, w->ids, w->n_ids * sizeof(*ids));
        memcpy(lengths, w->lengths, w->n * sizeof(*lengths));
    }
    const uint32_t *from = more->ids;
    for (uint32_t i = 0; i < more->n; from += more->lengths[i++]) {
        if (!all_below(from, more->lengths[i], vocab_size)) /* it cannot be generated */
            continue;
        memcpy(ids + w->n_ids, from, more->lengths[i] * sizeof(*ids));
        w->n_ids += more->lengths[i];
        lengths[w->n++] = more->lengths[i];
    }
    w->ids = ids;
    w->lengths = lengths;
    return 0;
}
