/* seq.h - everything one request is, on this rank: its tokens, where their keys and values lie, how
 * its next token is chosen and when it ends.
 *
 * ids[0 .. n) are known: the prompt, then what was generated. ids[0 .. cached) are in the KV cache.
 * The next forward processes ids[cached .. cached + step). Positions are indices into ids. Where
 * something is `drafted`, ids[n .. n + drafted) are drafts, which that forward verifies: it yields
 * a row of logits for the last known token and for each of them. */
#ifndef MODEL_SERVER_ENGINE_SEQ_H
#define MODEL_SERVER_ENGINE_SEQ_H
#include "common/err.h"
#include "common/tokenizer/tokenizer.h"
#include "model-server/engine/grammars.h"
#include "model-server/engine/heads.h"
#include "model-server/engine/pictures.h"
#include "model-server/engine/sibling.h"
#include "model-server/engine/state_cells.h"
#include "model-server/sample/bad_words.h"
#include "model-server/sample/sample.h"
#include "model-server/sample/stop.h"
#include "model-server/spec/acceptance.h"
#include <stdbool.h>
#include <stdint.h>

/* What the router says about a request. Nothing in it is kept. */
struct seq_spec {
    uint64_t id;
    const uint32_t *prompt;
    uint32_t n_prompt;
    const uint32_t *blocks, *slots; /* none: blocks are taken in sequence (seq_limits.next_block) */
    size_t n_blocks, n_slots;
    const uint32_t *windows; /* in the cache of windows, of its blocks from window_from on */
    size_t n_windows;
    uint32_t window_from;
    const uint32_t *cells; /* two of recurrent state; none: state_cells_take() */
    size_t n_cells;
    const uint32_t *state_from; /* the cell with the state after cache_len tokens; NULL: none */
    uint32_t cache_len;         /* prompt tokens that are in the cache already */
    uint32_t n_generated;       /* of prompt, the last so many were generated before */
    uint32_t chunk_len;         /* prompt tokens of the first forward; 0: all the rest */
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
    const char *adapter;            /* a name, or NULL or "": the model as it is */
    const struct media_spec *media; /* pictures, ascending */
    uint32_t n_media;
    const char *refusal; /* not NULL: this request cannot be served, and why */
};

struct seq_limits {                       /* what the engine knows when a request comes in */
    uint32_t vocab, block_size, n_blocks; /* n_blocks: of the KV cache */
    const uint32_t *eos;
    uint32_t n_eos;
    const struct tokenizer *tok;
    struct grammars *grammars; /* NULL: none are served */
    struct adapters *adapters; /* NULL: the same */
    struct pictures *pictures; /* NULL: the model reads text only */
    struct state_cells *cells; /* NULL: the model has no recurrent state */
    uint32_t n_windows;        /* blocks of the cache of windows; 0: there is none */
    uint32_t window;           /* tokens that its layers see */
    uint32_t next_block; /* first unused one, for requests that bring no block numbers; advanced */
};

/* Where a device that chooses tokens puts a sequence's: see draws.h. */
struct draw_place {
    uint32_t row, top, fetched;
    bool fetch; /* the logits, for the host to choose */
};

struct seq {
    uint64_t id;
    uint32_t *ids; /* room for prompt and all new tokens */
    uint32_t n, n_prompt, cached, step;
    uint32_t proposed, drafted; /* see drafts.h; proposed: of which those were taken */
    enum draft_kind draft_kind;
    struct acceptance acceptance;
    struct head_rows head;                         /* for the model's own draft head */
    struct sibling sibling;                        /* of the first draft; see there */
    uint32_t *offer, offer_at, n_offer, cap_offer; /* tokens that may stand from offer_at on */
    uint32_t start; /* cached, and what passes of the running step have added; no meaning between
                       steps */
    uint32_t ahead; /* the run-ahead that has its next logits, or token; see step.h */
    struct draw_place ahead_at; /* and where; without draws, `row` of the logits */
    /* With `cells`, recurrent state: cell[0] has that after `cell_at` tokens, cell[1] gets what the
     * next step makes. Until its tokens are accepted (seq_advance()) both stay where they are, so
     * that a step may fail, or be repeated. A step whose drafts were not all right has made a state
     * with wrong tokens in it: then cell_at stays behind `cached`, and the next step begins there
     * (seq_from()). */
    struct state_cells *cells;
    uint32_t cell[CELLS_EACH], cell_at;
    uint32_t state_from;        /* this cell is to be copied to cell[0] first; NO_CELL: none */
    uint32_t *blocks, n_blocks; /* more may come, up to max_blocks; see edit.h */
    uint32_t max_blocks;
    /* With a cache of windows [max_blocks]: where blocks [windows_kept, windows_end) lie there; 0
     * elsewhere. See windows.h. NULL: there is none. */
    uint32_t *windows, windows_kept, windows_end;
    bool brought_media;  /* its request has pictures */
    struct media *media; /* the pictures of its prompt; NULL: none */
    uint32_t stalled;    /* tokens that the last step left out: their picture is not encoded yet */
    struct sampling sampling;
    struct bad_words bad_words;
    struct adapters *adapters;       /* of the model; the sequence keeps its own there */
    uint32_t adapter;                /* its number; 0: the model as it is */
    const struct grammars *grammars; /* of the engine */
    struct constraint *constraint;   /* NULL: any token may come */
    constraint_state grammar_state;
    struct tally tally;
    struct stop stop;
    struct detok detok;
    uint32_t top_n;
    float *prompt_logprob; /* [n_prompt] NaN where unknown; NULL: not wanted */
    uint32_t *prompt_top; /* [n_prompt][top_n] the best in the place of each; with prompt_logprob */
    float *prompt_top_logprob;
    bool done;       /* finished; stays in its batch until the router filters it out */
    char error[200]; /* not empty: this request failed alone and leaves its batch */
};

#define NO_CELL UINT32_MAX

/* Always returns a sequence (NULL only without memory): one that cannot be served says so in
 * `error`. */
struct seq *seq_new(const struct seq_spec *spec, struct seq_limits *lim, struct err *e);
void seq_free(struct seq *s);
void seq_fail(struct seq *s, const char *why);
static inline bool seq_prefilling(const struct seq *s) { return s->cached + s->step < s->n; }
/* Where its next step begins, and how many tokens before `cached` that is. */
static inline uint32_t seq_from(const struct seq *s) { return s->cells ? s->cell_at : s->cached; }
static inline uint32_t seq_lag(const struct seq *s) { return s->cached - seq_from(s); }
/* Tokens that its blocks hold. */
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
/* Does it decode: is all that it lacks the KV of its last token? */
static inline bool seq_decoding(const struct seq *s)
{
    return seq_live(s) && s->cached + 1 == s->n;
}
/* The tokens up to `cached` are computed for good; of a step that is over: `step` is still its. */
void seq_advance(struct seq *s, uint32_t cached);
/* A chosen token: remember it and count it. */
int seq_push(struct seq *s, uint32_t id, struct err *e);
#endif
