/* embed_windows.h - texts whose answer is about places in them: tokens with their places, in
 * windows where a text is longer than the model's positions.
 *
 * As `return_overflowing_tokens` of Hugging Face's tokenizers cuts them: each window but the last
 * is full, and begins with the last tokens of the one before. */
#ifndef ROUTER_CALL_EMBED_WINDOWS_H
#define ROUTER_CALL_EMBED_WINDOWS_H
#include "router/call/embed.h"

/* Tokens [first, first + n) of a text, which are rows [at, at + n) of the window's result. */
struct text_window {
    uint32_t first, n, at;
};
struct text_windows {
    const char *text; /* [n_text]; not owned */
    size_t n_text;
    /* Of the whole text, without special tokens, in the arena: see struct tok_ids. */
    const uint32_t *ids, *words;
    const struct tok_offset *places;
    uint32_t n_ids;
    struct text_window *v; /* [n] */
    struct text_input *in; /* [n] the windows with special tokens, for struct texts_ask */
    uint32_t n;
};

enum { WINDOWS_WHOLE = UINT32_MAX };
struct text_windows_ask {
    const char *text;
    size_t n;
    const char *before; /* a text of its own before each window; NULL: none */
    size_t n_before;
    uint32_t most_before; /* its tokens; longer ones are cut. 0: unlimited */
    uint32_t most;        /* tokens per window with all around the text; 0: the model's limit */
    /* Tokens that a window shares with the next; WINDOWS_WHOLE: the text must fit into one. */
    uint32_t shared;
};
/* Worker thread. ERR_EMPTY, ERR_TOO_LONG, or ERR_VALIDATION: windows have no room for the text. */
int texts_windows(struct call *c, const struct text_windows_ask *q, struct text_windows *out,
                  struct err *e);
/* The windows of n texts as texts to compute, rows of all tokens: sets in, n and all of *ask. */
int texts_of_windows(struct call *c, const struct text_windows *v, uint32_t n,
                     struct texts_ask *ask, struct err *e);

/* Characters of a text before its byte `at`, a character's first. *p begins as zeros and is the
 * last place, from which it counts. */
struct char_place {
    uint32_t byte, chars;
};
uint32_t text_chars(const char *text, uint32_t at, struct char_place *p);
#endif
