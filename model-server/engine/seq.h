/* seq.h - the state of one request on this rank: its tokens, its KV blocks, its sampling
 * parameters and its stop rules.
 *
 * ids[0 .. n) are known: the prompt, then generated tokens. ids[0 .. cached) are in the KV cache.
 * The next forward pass processes ids[cached .. cached + step). Positions are indices into ids.
 * With `drafted` > 0, ids[n .. n + drafted) are drafts. The pass verifies them: it computes a row
 * of logits for the last known token and for each draft. */
#ifndef MODEL_SERVER_ENGINE_SEQ_H
#define MODEL_SERVER_ENGINE_SEQ_H
#include "common/err.h"
#include "common/tokenizer/tokenizer.h"
#include "model-server/engine/grammars.h"
#include "model-server/engine/heads.h"
#include "model-server/engine/media/pictures.h"
#include "model-server/engine/sibling.h"
#include "model-server/engine/state_cells.h"
#include "model-server/sample/bad_words.h"
#include "model-server/sample/sample.h"
#include "model-server/sample/stop.h"
#include "model-server/spec/acceptance.h"
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* A request as sent by the router. Everything is copied. */
struct seq_spec {
    uint64_t id;
    const uint32_t *prompt;
    uint32_t n_prompt;
    /* none: blocks are assigned in sequence (seq_limits.next_block) */
    const uint32_t *blocks, *slots;
    size_t n_blocks, n_slots;
    const uint32_t *windows; /* of the sliding-window cache, for its blocks from window_from on */
    size_t n_windows;
    uint32_t window_from;
    const uint32_t *cells; /* two cells of recurrent state; none: state_cells_take() */
    size_t n_cells;
    const uint32_t *state_from; /* cell with the state after cache_len tokens; NULL: none */
    uint32_t cache_len;         /* prompt tokens that are already in the cache */
    uint32_t n_generated;       /* the last tokens of the prompt that were generated earlier */
    uint32_t chunk_len;         /* prompt tokens of the first forward pass; 0: all */
    struct sampling sampling;
    struct bad_words bad_words;
    char *const *dry_breakers;
    size_t n_dry_breakers;
    struct grammar_spec grammar;
    uint32_t top_n;
    bool prefill_logprobs;
    uint32_t max_new_tokens, min_new_tokens;
    bool ignore_eos;
    const uint32_t *stop_tokens;
    size_t n_stop_tokens;
    char *const *stops;
    size_t n_stops;
    const char *adapter;            /* name; NULL or "": the base model */
    const struct media_spec *media; /* pictures, ascending */
    uint32_t n_media;
    const char *refusal; /* not NULL: why this request cannot be served */
};

struct seq_limits {                       /* known to the engine when a request arrives */
    uint32_t vocab, block_size, n_blocks; /* n_blocks: of the KV cache */
    const uint32_t *eos;
    uint32_t n_eos;
    const struct tokenizer *tok;
    struct grammars *grammars; /* NULL: none are served */
    struct adapters *adapters; /* NULL: the same */
    struct pictures *pictures; /* NULL: no images */
    struct state_cells *cells; /* NULL: the model has no recurrent state */
    uint32_t n_windows;        /* blocks of the sliding-window cache; 0: there is none */
    uint32_t window;           /* window of its layers in tokens */
    uint32_t next_block; /* first unused block, for requests without block numbers; advanced */
};

/* The place of a sequence's result on a device that samples: see draws.h. */
struct draw_place {
    uint32_t row, top, fetched;
    bool fetch; /* returns the logits; the host samples */
};

/* Owned by its batch (batch.h). Engine thread. */
struct seq {
    uint64_t id;
    uint32_t *ids; /* capacity for the prompt and all new tokens */
    uint32_t n, n_prompt, cached, step;
    uint32_t proposed, drafted; /* see drafts.h; proposed: number of draft candidates, `drafted` of
                                   which are used */
    enum draft_kind draft_kind;
    struct acceptance acceptance;
    struct head_rows head;                         /* for the model's draft head */
    struct sibling sibling;                        /* sibling of the first draft; see sibling.h */
    uint32_t *offer, offer_at, n_offer, cap_offer; /* likely tokens from position offer_at on */
    uint32_t start; /* `cached` plus the tokens of earlier passes of the running step; only valid
                       during a step */
    uint32_t ahead; /* number of the run-ahead that holds its next logits or token; see step.h */
    struct draw_place ahead_at; /* its place there; without draws, `row` of the logits */
    /* With `cells`, recurrent state: cell[0] holds the state after `cell_at` tokens, cell[1]
     * receives the state of the next step. Both are kept until its tokens are accepted
     * (seq_advance()), so a step may fail or be repeated. A step with a rejected draft has
     * produced a wrong state. Then cell_at stays behind `cached`, and the next step starts at
     * cell_at (seq_from()). */
    struct state_cells *cells;
    uint32_t cell[CELLS_EACH], cell_at;
    uint32_t state_from;        /* copy this cell to cell[0] first; NO_CELL: none */
    uint32_t *blocks, n_blocks; /* grows up to max_blocks; see edit.h */
    uint32_t max_blocks;
    /* Of the sliding-window cache [max_blocks]: numbers of blocks [windows_kept, windows_end)
     * there; 0 elsewhere. See windows.h. NULL: there is none. */
    uint32_t *windows, windows_kept, windows_end;
    bool brought_media;  /* its request has pictures */
    struct media *media; /* the images of its prompt; NULL: none */
    /* tokens that the last step left out, because their image is not encoded yet */
    uint32_t stalled;
    struct sampling sampling;
    struct bad_words bad_words;
    struct adapters *adapters;     /* the model's; the sequence holds a reference to its adapter */
    uint32_t adapter;              /* its number; 0: the base model */
    struct grammars *grammars;     /* of the engine */
    struct constraint *constraint; /* NULL: any token may come */
    constraint_state grammar_state;
    struct tally tally;
    struct stop stop;
    struct detok detok;
    uint32_t top_n;
    float *prompt_logprob; /* [n_prompt] NaN if unknown; NULL: not requested */
    uint32_t *prompt_top; /* [n_prompt][top_n] alternatives at each position; with prompt_logprob */
    float *prompt_top_logprob;
    bool done;       /* finished; stays in its batch until the router filters it */
    char error[200]; /* not empty: this request failed by itself and leaves its batch */
    bool starved;    /* with an error: this rank had no memory, others may have had it */
    bool unservable; /* with an error: its media or its constraint is at fault */
};

#define NO_CELL UINT32_MAX

/* Returns a sequence even if the request cannot be served; then `error` is set. NULL: out of
 * memory. */
struct seq *seq_new(const struct seq_spec *spec, struct seq_limits *lim, struct err *e);
void seq_free(struct seq *s); /* with its cells, adapter and pictures; NULL is allowed */
/* Sets `error`, unless there is one: the first reason stays. */
void seq_fail(struct seq *s, const char *why);
/* The same for `why`, which may be a lack of memory. */
void seq_fail_for(struct seq *s, const struct err *why);
void seq_starve(struct seq *s); /* the same for lack of memory */
/* More of its prompt is left after this step, which therefore samples no token of it. */
static inline bool seq_prefilling(const struct seq *s) { return s->cached + s->step < s->n; }
/* The first token of its next step, and the distance from there to `cached`. */
static inline uint32_t seq_from(const struct seq *s) { return s->cells ? s->cell_at : s->cached; }
static inline uint32_t seq_lag(const struct seq *s)
{
    assert(seq_from(s) <= s->cached);
    return s->cached - seq_from(s);
}
/* Capacity of its blocks in tokens. */
static inline uint64_t seq_room(const struct seq *s, uint32_t block_size)
{
    const bool less = s->windows && s->windows_end < s->n_blocks;
    return (uint64_t)(less ? s->windows_end : s->n_blocks) * block_size;
}
static inline bool seq_has_room(const struct seq *s, uint64_t n, uint32_t block_size)
{
    return n <= seq_room(s, block_size);
}
static inline bool seq_live(const struct seq *s) { return !s->done && !s->error[0]; }
/* True if it decodes: only the KV of its last token is missing. */
static inline bool seq_decoding(const struct seq *s)
{
    return seq_live(s) && s->cached + 1 == s->n;
}
/* Sets `cached` after a step. `step` still has the value of that step. */
void seq_advance(struct seq *s, uint32_t cached);
/* Within a step: it is done, with its first `n` tokens. Accepted drafts behind them are dropped. */
void seq_end(struct seq *s, uint32_t n);
/* Stores and counts a sampled token. -1: ERR_SYSTEM, out of memory for its counts or its text. */
int seq_push(struct seq *s, uint32_t id, struct err *e);
#endif
