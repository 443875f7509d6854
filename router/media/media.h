/* media.h - pictures of a prompt: from what a body names to files, tokens and places.
 *
 * A picture is fetched or taken out of its URL, sniffed, and decoded in the decoder's process, so
 * that a broken one is refused before it waits. What is kept is the file, the digest of its pixels
 * and its plan (common/vision). Then the markers in the prompt's text become placeholders, and
 * after tokenization the pictures find their places among them. Runs on worker threads; shares
 * the decoder and the count of fetches. */
#ifndef ROUTER_MEDIA_MEDIA_H
#define ROUTER_MEDIA_MEDIA_H
#include "common/arena.h"
#include "common/err.h"
#include "common/image/decoder.h"
#include "common/vision/vision.h"
#include "router/media/fetch.h"
#include "router/request/ask.h"
#include "router/request/request.h"
#include <stdatomic.h>

/* Of all pictures of a request, with those that are fetched. */
#define MEDIA_MAX_BYTES ((size_t)256 << 20)

struct media_rules {
    uint32_t max_images; /* of a request */
    uint64_t max_pixels; /* of all of them */
    bool fetches;        /* http: and https: URLs, as `fetch` says */
    struct media_fetch_options fetch;
    atomic_uint *fetching;  /* how many are fetched now, */
    uint32_t most_fetching; /* and may be: those who validate other requests must not all wait */
};
/* What a model's requests share; it owns none of it. */
struct media {
    const struct vision *vision; /* NULL: the model takes text only */
    struct image_decoder *decoder;
    const struct media_rules *rules;
    uint32_t max_tokens; /* of all pictures of a request */
    uint32_t max_whole;  /* of one that a step must compute whole; 0: any number */
};

/* A picture that was read. In the call's arena; its bytes are freed with that. */
struct medium {
    struct medium *next; /* in a list of those of a call */
    const char *url;     /* of the ask_image: compared by address */
    void *bytes;
    size_t n;
    enum image_format format;
    uint64_t digest;
    struct vision_plan plan;
};
struct media_prompt {
    const char *text; /* with placeholders for each picture; the arena's or q's own */
    size_t n;
    struct medium **v; /* [n_media] in the order of the prompt */
    uint32_t n_media;
    bool bare; /* the tokenizer adds no special tokens to it */
};

/* Are there pictures in what was asked for? TGI's ![](URL) in `inputs`, or images beside it. */
bool media_wanted(const struct media *m, const struct ask *q);
/* Read the pictures of `q` and write their placeholders. ERR_IMAGE, ERR_IMAGE_URL, ERR_VALIDATION:
 * in the words of q->style. */
int media_prompt(const struct media *m, const struct ask *q, struct arena *a,
                 struct media_prompt *out, struct err *e);
/* Where they stand among ids[0 .. n) of p->text, with or without special tokens around it.
 * ERR_VALIDATION: the prompt has other placeholders than those (a client wrote one). */
int media_places(const struct media *m, const struct media_prompt *p, const uint32_t *ids,
                 uint32_t n, struct arena *a, struct gen_request *r, struct err *e);
#endif
