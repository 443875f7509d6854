/* embed_impl.h - how the texts of one request become ids; private to embed*.c. */
#ifndef ROUTER_CALL_EMBED_IMPL_H
#define ROUTER_CALL_EMBED_IMPL_H
#include "common/tokenizer/frame.h"
#include "router/call/embed.h"

struct encoding {
    struct call *c;
    const struct texts_ask *q;
    uint32_t most; /* tokens per text; 0: unlimited */
    uint32_t index;
    struct err *e;
    uint64_t pixels, bytes; /* of the images so far */
};
/* Tokenizes into the arena. flags: of tokenizer_encode(). */
int embed_ids(const struct encoding *x, const char *text, size_t n, unsigned flags,
              struct tok_part *out);
/* Truncates the texts to what is left beside `around` tokens, or refuses them. b NULL: one text. */
int embed_fit(const struct encoding *x, struct tok_part *a, struct tok_part *b, uint32_t around);

/* A pair of texts or images in the form that the model expects: rendered by a chat template with
 * the roles `query` and `document`, in a form of common/model/pair_form.h, or as two segments. */
int embed_pair(struct encoding *x, const struct text_input *in, struct embed_text *out);
/* embed_shown.c: a prompt with images, which are read here. `prompt` precedes it, unless NULL. */
int embed_shown(struct encoding *x, const struct text_input *in, const char *prompt,
                struct embed_text *out);
/* embed_list.c: a query and its documents, with the rows of their marks. */
int embed_list(const struct encoding *x, const struct text_list *in, struct embed_text *out);
/* Appends the token `word` up to `to` tokens. ERR_VALIDATION, "the tokenizer has no <what>", if it
 * is none, or NULL. In embed.c. */
int embed_fill(const struct encoding *x, struct embed_text *t, uint32_t to, const char *word,
               const char *what);
/* embed_late.c: a text with `late`. */
int embed_late(const struct encoding *x, const struct text_input *in, struct embed_text *out);
/* Tokens of `prompt` that mean pooling excludes. In embed.c. */
int embed_skipped(const struct encoding *x, const char *prompt, uint32_t *out);
/* Ids between the special tokens of the tokenizer, truncated as embed_fit(). In embed.c. */
int embed_frame(const struct encoding *x, struct tok_part *a, struct tok_part *b,
                struct embed_text *out);
/* Two segments, as encoders read them: in embed.c. */
int embed_segments(const struct encoding *x, const struct text_input *in, struct embed_text *out);
#endif
