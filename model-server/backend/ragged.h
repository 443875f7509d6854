/* ragged.h - the tokens of one step: a flat list of rows, in spans of sequences. Part of backend.h.
 *
 * The caller owns all arrays. They stay valid and unchanged from step_begin() to step_end(). */
#ifndef MODEL_SERVER_BACKEND_RAGGED_H
#define MODEL_SERVER_BACKEND_RAGGED_H
#include <stdbool.h>
#include <stdint.h>

/* Tokens of one sequence in this step: rows [first, first + n) of the flat batch. Their positions
 * are kv_len - n .. kv_len - 1. They attend to every earlier position of their own sequence. */
struct span {
    uint32_t first, n;
    uint32_t kv_len;        /* tokens in the cache after this step */
    const uint32_t *blocks; /* block numbers covering [0, kv_len) */
    /* Known tokens of the sequence: all of its prompt, even if only a chunk of it is in the step;
     * 0: kv_len. Only rotary scalings that depend on the length use it. */
    uint32_t seq_len;
    uint32_t adapter; /* number of the low-rank update of its tokens, see lora(); 0: none */
    /* Cells of recurrent state. `state_in` holds the state after position kv_len - n - 1, and is
     * not read if kv_len == n. The state after kv_len - 1 is written to `state_out`. Both may be
     * the same. */
    uint32_t state_in, state_out;
    /* For sliding-window caches (kv_desc.windows): block numbers there, indexed as `blocks`.
     * Entries before the block of the first visible position are not read. */
    const uint32_t *windows;
    /* Block numbers of the pictures' rows that cross-attention layers read; NULL: none. Backends do
     * not look at it. */
    const uint32_t *shown;
};
/* Positions [begin, end) of a sequence that attend to each other: an image, or a window of
 * one. */
struct mutual {
    uint32_t begin, end; /* equal: none */
};
struct ragged {
    uint32_t n_tokens, n_spans, n_out;
    const uint32_t *ids;      /* [n_tokens] */
    const uint32_t *pos;      /* [n_tokens] absolute position */
    const uint32_t *slots;    /* [n_tokens] where K and V go: block * block_size + offset */
    const struct span *spans; /* [n_spans], ascending in `first`, covering all rows */
    const uint32_t *out_rows; /* [n_out] rows with logits, ascending */
    /* [n_tokens] DRAW_KNOWN, or the row of a draw() into set `drawn_set` that samples this token.
     * That draw() may still be running, and ids[i] is not used. NULL: all are known. */
    const uint32_t *drawn;
    int drawn_set;
    const uint32_t *window_slots; /* [n_tokens] as `slots`, in sliding-window caches; NULL: none */
    /* For images; NULL: the step has none. [n_tokens] in host memory: the row that replaces a
     * token's embedding; NULL: the embedding is looked up. spec.n_added further rows follow it:
     * the i-th is added to the residual stream after layer i. */
    const float *const *given;
    const uint32_t (*axes)[3]; /* [n_tokens] positions t, h, w of multimodal rotations */
    /* [n_tokens] the range that contains the token, ascending within a span; see enum
     * attn_mutual. All of its keys are in the cache after this step. */
    const struct mutual *mutual;
    /* [n_tokens] in host memory: tokens that have the experts of pictures (moe_spec.sight_ffn).
     * NULL: the step has none. Backends do not look at it. */
    const bool *sight;
    /* [n_tokens] rows of span.shown that a token sees, ascending within a span; equal: none. NULL:
     * the step shows none. Backends do not look at it. */
    const struct mutual *sees;
};
#endif
