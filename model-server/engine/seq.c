#include "model-server/engine/seq.h"
#include "model-server/engine/windows.h"
#include "model-server/model/lora/adapters.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DETOK_CONTEXT = 5 }; /* prompt tokens that give context to the first piece of text */

static uint32_t new_tokens(const struct seq_spec *spec)
{
    return spec->max_new_tokens ? spec->max_new_tokens : 1;
}

static int check_tokens(const struct seq_spec *spec, const struct seq_limits *lim, struct err *e)
{
    if (!spec->n_prompt)
        return err_set(e, ERR_VALIDATION, "the prompt has no tokens");
    const uint32_t token =
        spec->n_media && lim->pictures ? pictures_token(lim->pictures) : UINT32_MAX;
    for (uint32_t i = 0; i < spec->n_prompt; i++)
        if (spec->prompt[i] >= lim->vocab && (token == UINT32_MAX || spec->prompt[i] != token))
            return err_set(e, ERR_VALIDATION, "token id %u is not in the vocabulary of %u",
                           spec->prompt[i], lim->vocab);
    if (spec->n_generated &&
        (spec->n_generated >= spec->n_prompt || spec->n_generated >= new_tokens(spec)))
        return err_set(e, ERR_VALIDATION, "%u of %u tokens cannot have been generated before",
                       spec->n_generated, spec->n_prompt);
    if (spec->cache_len >= spec->n_prompt)
        return err_set(e, ERR_VALIDATION, "Prefix %u vs input %u", spec->cache_len, spec->n_prompt);
    return 0;
}

/* Block numbers address memory, so each is checked. */
static int check_blocks(const struct seq_spec *spec, const struct seq_limits *lim, uint64_t need,
                        struct err *e)
{
    uint32_t bs = lim->block_size;
    assert(bs > 0);
    if (spec->n_blocks * bs < need)
        return err_set(e, ERR_VALIDATION, "%zu blocks of %u tokens cannot hold %llu tokens",
                       spec->n_blocks, bs, (unsigned long long)need);
    for (size_t i = 0; i < spec->n_blocks; i++)
        if (spec->blocks[i] >= lim->n_blocks)
            return err_set(e, ERR_VALIDATION, "block %u is outside the KV cache of %u blocks",
                           spec->blocks[i], lim->n_blocks);
    for (size_t i = 0; i < spec->n_slots && i / bs < spec->n_blocks; i++)
        if (spec->slots[i] != (uint64_t)spec->blocks[i / bs] * bs + i % bs)
            return err_set(e, ERR_VALIDATION, "slot %u is not where block %u puts token %zu",
                           spec->slots[i], spec->blocks[i / bs], i);
    return 0;
}

/* The request's blocks hold at least its known tokens; more blocks may be added later. */
static int place(struct seq *s, const struct seq_spec *spec, struct seq_limits *lim, struct err *e)
{
    uint64_t most = (uint64_t)spec->n_prompt - spec->n_generated + new_tokens(spec) -
                    1; /* the last token is never cached */
    uint64_t n = (most + lim->block_size - 1) / lim->block_size;
    uint32_t taken = spec->n_blocks ? 0 : lim->next_block;
    if (n > lim->n_blocks || taken > lim->n_blocks - n)
        return err_set(e, ERR_VALIDATION, "%llu tokens do not fit into the KV cache of %u blocks",
                       (unsigned long long)most, lim->n_blocks);
    if (spec->n_blocks && check_blocks(spec, lim, spec->n_prompt, e))
        return -1;
    s->n_blocks = (uint32_t)(spec->n_blocks ? spec->n_blocks : n);
    s->max_blocks = s->n_blocks > n ? s->n_blocks : (uint32_t)n;
    s->blocks = malloc(s->max_blocks * sizeof(*s->blocks));
    if (!s->blocks)
        return err_nomem(e);
    for (uint32_t i = 0; i < s->n_blocks; i++)
        s->blocks[i] = spec->n_blocks ? spec->blocks[i] : lim->next_block++;
    return 0;
}

/* A cached prefix cannot be used without its state. */
static int place_state(struct seq *s, const struct seq_spec *spec, const struct seq_limits *lim,
                       struct err *e)
{
    s->state_from = NO_CELL;
    if (!lim->cells)
        return 0;
    if (spec->cache_len && !spec->state_from)
        return err_set(e, ERR_VALIDATION, "%u tokens are cached, and their state is not given",
                       spec->cache_len);
    if (spec->cache_len && state_cells_name(lim->cells, *spec->state_from, e))
        return -1;
    if (spec->n_cells ? state_cells_claim(lim->cells, spec->cells, spec->n_cells, s->cell, e)
                      : state_cells_take(lim->cells, s->cell, e))
        return -1;
    s->cells = lim->cells;
    if (spec->cache_len)
        s->state_from = *spec->state_from;
    return 0;
}

/* Images, which are decoded unless all of their tokens are cached. */
static int see(struct seq *s, const struct seq_spec *spec, const struct seq_limits *lim,
               struct err *e)
{
    if (!spec->n_media)
        return 0;
    if (!lim->pictures)
        return err_set(e, ERR_VALIDATION, "this model reads text only");
    s->media = media_new(lim->pictures, spec->media, spec->n_media, spec->prompt,
                         spec->n_prompt - spec->n_generated, spec->cache_len, e);
    s->unservable = !s->media && e->kind == ERR_VALIDATION;
    return s->media ? 0 : -1;
}

/* Sets the request's constraint. */
static int constrain(struct seq *s, const struct seq_spec *spec, const struct seq_limits *lim,
                     struct err *e)
{
    if (!spec->grammar.text)
        return 0;
    if (!lim->grammars)
        return err_set(e, ERR_VALIDATION, "grammars are not served");
    s->constraint = grammars_get(lim->grammars, &spec->grammar, e);
    if (!s->constraint)
        return -1;
    s->grammars = lim->grammars;
    s->grammar_state = CONSTRAINT_START;
    return 0;
}

/* Loads the adapter to the device, where it stays until the sequence is freed. */
static int adapt(struct seq *s, const struct seq_spec *spec, const struct seq_limits *lim,
                 struct err *e)
{
    if (!spec->adapter || !*spec->adapter)
        return 0;
    uint32_t number = lim->adapters ? adapters_find(lim->adapters, spec->adapter) : 0;
    if (!number)
        return err_set(e, ERR_VALIDATION, "there is no adapter `%.100s`", spec->adapter);
    if (adapters_pin(lim->adapters, number, e))
        return -1;
    s->adapters = lim->adapters;
    s->adapter = number;
    return 0;
}

static void follow(struct seq *s, uint32_t id)
{
    if (s->constraint)
        s->grammar_state = grammars_next(s->grammars, s->constraint, s->grammar_state, id);
}

/* Counts tokens that were generated before, and restores stop matching and text. */
static int replay(struct seq *s, struct err *e)
{
    struct buf piece = BUF_INIT;
    enum stop_reason over = STOP_NOT;
    for (uint32_t i = s->n_prompt; i < s->n && over == STOP_NOT; i++) {
        buf_reset(&piece);
        detok_push(&s->detok, s->ids[i], &piece);
        size_t len = piece.len;
        over = stop_push(&s->stop, s->ids[i], piece.p ? piece.p : "", &len);
        follow(s, s->ids[i]);
    }
    bool oom = piece.oom;
    buf_free(&piece);
    if (oom)
        return err_nomem(e);
    return over == STOP_NOT ? 0 : err_set(e, ERR_VALIDATION, "this request has ended already");
}

/* Fills the context of DRY. */
static int remember(struct seq *s, const struct seq_spec *spec, const struct tokenizer *tok,
                    uint32_t total, struct err *e)
{
    if (s->sampling.dry.multiplier == 0)
        return 0;
    s->sampling.repeats = repeats_new(tok, spec->dry_breakers, spec->n_dry_breakers, total, e);
    for (uint32_t i = 0; s->sampling.repeats && i < s->n; i++)
        if (repeats_push(s->sampling.repeats, s->ids[i], e))
            return -1;
    return s->sampling.repeats ? 0 : -1;
}

/* What penalties read: how often the tokens of prompt and answer occur. */
static int count_tokens(struct seq *s, uint32_t total, uint32_t vocab, struct err *e)
{
    if (!penalties_on(&s->sampling.penalties))
        return 0;
    if (tally_reserve(&s->tally, total < vocab ? total : vocab, e))
        return -1;
    for (uint32_t i = 0; i < s->n; i++)
        if (!(s->media && media_has(s->media, i)) &&
            tally_add(&s->tally, s->ids[i], i >= s->n_prompt, e))
            return -1;
    return 0;
}

/* Log-probabilities of the prompt [n] and alternatives [n, top_n]: NAN until computed. */
static int report_prompt(struct seq *s, const struct seq_spec *spec, struct err *e)
{
    const size_t tops = (size_t)s->n * s->top_n;
    if (!spec->prefill_logprobs || spec->n_generated)
        return 0;
    s->prompt_logprob = malloc(s->n * sizeof(*s->prompt_logprob));
    s->prompt_top = calloc(tops + 1, sizeof(*s->prompt_top));
    s->prompt_top_logprob = malloc((tops + 1) * sizeof(*s->prompt_top_logprob));
    if (!s->prompt_logprob || !s->prompt_top || !s->prompt_top_logprob)
        return err_nomem(e);
    for (uint32_t i = 0; i < s->n; i++)
        s->prompt_logprob[i] = NAN;
    for (size_t i = 0; i < tops; i++)
        s->prompt_top_logprob[i] = NAN;
    return 0;
}

/* Allocates all memory that decoding needs; place() has bounded its size. */
static int fill(struct seq *s, const struct seq_spec *spec, const struct seq_limits *lim,
                struct err *e)
{
    uint32_t total = spec->n_prompt - spec->n_generated + new_tokens(spec);
    assert(spec->n_prompt > 0);
    assert(total >= spec->n_prompt); /* check_tokens() */
    /* zero: a step that is run ahead reads a place before its id is known, and ignores it */
    s->ids = calloc(total, sizeof(*s->ids));
    if (!s->ids)
        return err_nomem(e);
    memcpy(s->ids, spec->prompt, spec->n_prompt * sizeof(*s->ids));
    s->n = spec->n_prompt;
    s->n_prompt = s->n - spec->n_generated;
    s->cached = s->cell_at = s->start = spec->cache_len;
    s->step = s->n - s->cached;
    if (spec->chunk_len && spec->chunk_len < s->step)
        s->step = spec->chunk_len;
    s->top_n = spec->top_n < lim->vocab ? spec->top_n : lim->vocab;
    s->sampling = spec->sampling;
    s->sampling.report = (struct report){0}; /* owns nothing until the copies have succeeded */
    if (bias_copy(&s->sampling.bias, &spec->sampling.bias, lim->vocab, e) ||
        report_copy(&s->sampling.report, &spec->sampling.report, lim->vocab, e) ||
        bad_words_copy(&s->bad_words, &spec->bad_words, lim->vocab, e) ||
        sampling_normalise(&s->sampling, e) || remember(s, spec, lim->tok, total, e))
        return -1;
    if (s->sampling.report.n)
        s->top_n = (uint32_t)s->sampling.report.n;
    if (count_tokens(s, total, lim->vocab, e) || report_prompt(s, spec, e))
        return -1;
    if (constrain(s, spec, lim, e) || adapt(s, spec, lim, e))
        return -1;
    struct stop_rules rules = {spec->max_new_tokens, spec->ignore_eos,     lim->eos,
                               lim->n_eos,           spec->min_new_tokens, spec->stop_tokens,
                               spec->n_stop_tokens};
    if (stop_init(&s->stop, &rules, spec->stops, spec->n_stops, e))
        return -1;
    uint32_t context = s->n_prompt < DETOK_CONTEXT ? s->n_prompt : DETOK_CONTEXT;
    if (detok_init(&s->detok, lim->tok, s->ids + s->n_prompt - context, context, false))
        return err_nomem(e);
    return replay(s, e);
}

struct seq *seq_new(const struct seq_spec *spec, struct seq_limits *lim, struct err *e)
{
    struct err why = ERR_INIT;
    struct seq *s = calloc(1, sizeof(*s));
    if (!s)
        return err_nomem(e), NULL;
    s->id = spec->id;
    s->acceptance = acceptance_new();
    s->brought_media = spec->n_media > 0;
    if (spec->refusal)
        err_set(&why, ERR_VALIDATION, "%s", spec->refusal);
    else if (!check_tokens(spec, lim, &why) && !place(s, spec, lim, &why) &&
             !place_state(s, spec, lim, &why) && !windows_place(s, spec, lim, &why) &&
             !see(s, spec, lim, &why) && !fill(s, spec, lim, &why))
        return s;
    seq_fail_for(s, &why);
    return s;
}

void seq_fail(struct seq *s, const char *why)
{
    if (!s->error[0])
        snprintf(s->error, sizeof(s->error), "%.*s", (int)sizeof(s->error) - 1, why);
}

void seq_fail_for(struct seq *s, const struct err *why)
{
    seq_fail(s, why->msg);
    s->starved |= why->kind == ERR_SYSTEM;
}

void seq_starve(struct seq *s)
{
    seq_fail(s, "out of memory");
    s->starved = true;
}

void seq_free(struct seq *s)
{
    if (!s)
        return;
    if (s->cells)
        state_cells_give(s->cells, s->cell);
    media_free(s->media);
    free(s->ids);
    free(s->blocks);
    free(s->windows);
    free(s->offer);
    head_rows_free(&s->head);
    sibling_free(&s->sibling);
    tally_free(&s->tally);
    stop_free(&s->stop);
    bias_free(&s->sampling.bias);
    report_free(&s->sampling.report);
    repeats_free(s->sampling.repeats);
    bad_words_free(&s->bad_words);
    detok_free(&s->detok);
    if (s->constraint)
        grammars_put(s->grammars, s->constraint);
    if (s->adapter)
        adapters_unpin(s->adapters, s->adapter);
    free(s->prompt_logprob);
    free(s->prompt_top);
    free(s->prompt_top_logprob);
    free(s);
}

void seq_advance(struct seq *s, uint32_t cached)
{
    const uint32_t now = s->cell[1];
    const bool whole = cached == s->cached + s->step;
    if (cached == s->cached)
        return;
    s->cached = cached;
    if (!whole)
        return;
    s->cell_at = cached;
    s->cell[1] = s->cell[0];
    s->cell[0] = now;
}

void seq_end(struct seq *s, uint32_t n)
{
    s->done = true;
    s->n = n;
    if (s->cells && s->cell_at > n - 1) { /* the state before the step is in the other cell */
        const uint32_t past = s->cell[0];
        s->cell[0] = s->cell[1];
        s->cell[1] = past;
        s->cell_at = s->start;
    }
    seq_advance(s, n - 1);
}

int seq_push(struct seq *s, uint32_t id, struct err *e)
{
    assert(s->n - s->n_prompt < (s->stop.rules.max_new_tokens ? s->stop.rules.max_new_tokens : 1));
    s->ids[s->n++] = id;
    follow(s, id);
    if (s->sampling.repeats && repeats_push(s->sampling.repeats, id, e))
        return -1;
    return penalties_on(&s->sampling.penalties) ? tally_add(&s->tally, id, true, e) : 0;
}
