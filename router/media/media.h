/* media.h - images and videos of a prompt: from the URLs in a body to files, tokens and positions.
 *
 * An image is fetched or decoded from its data URL, and its format is detected. The decoder process
 * decodes it, so that a broken one is refused before it queues. The file, the digest of its pixels
 * and its plan (common/vision) are kept. The markers in the prompt's text become placeholders.
 * After tokenization the images are assigned to these. A video is an image of several frames, in a
 * file of our own (common/image/reel.h). Runs on worker threads, which share the
 * decoder and the count of fetches. */
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

/* Limit for all image files of a request, fetched ones included. */
#define MEDIA_MAX_BYTES ((size_t)256 << 20)

struct media_rules {
    uint32_t max_images; /* per request */
    uint64_t max_pixels; /* over all images of a request */
    bool fetches;        /* http: and https: URLs are allowed, with the options of `fetch` */
    struct media_fetch_options fetch;
    atomic_uint *fetching; /* number of running fetches */
    /* and its limit: some workers must stay free to validate other requests */
    uint32_t most_fetching;
};
/* Shared by all requests to a model. Owns nothing. */
struct media {
    const struct vision *vision; /* NULL: the model takes text only */
    struct image_decoder *decoder;
    const struct media_rules *rules;
    uint32_t max_tokens; /* for all images of a request */
    uint32_t max_whole;  /* tokens of an image that a step must compute whole; 0: unlimited */
};

/* A decoded image. In the call's arena, which frees its bytes. */
struct medium {
    struct medium *next; /* list of a call's images */
    const char *url;     /* of the ask_image; compared by address */
    void *bytes;
    size_t n;
    const char *type; /* of the file: static */
    uint64_t digest;
    struct vision_plan plan;
};
struct media_prompt {
    const char *text; /* with placeholders for each image; owned by the arena or `q` */
    size_t n;
    struct medium **v; /* [n_media] in prompt order */
    uint32_t n_media;
    bool bare;    /* the tokenizer adds no special tokens to it */
    bool guarded; /* it may contain guards: TOK_GUARDED */
};

/* Reads the images of `q` and writes their placeholders. ERR_IMAGE, ERR_IMAGE_URL, ERR_VALIDATION,
 * with the messages of q->style. */
int media_prompt(const struct media *m, const struct ask *q, struct arena *a,
                 struct media_prompt *out, struct err *e);
/* Finds their positions in ids[0 .. n) of p->text, with or without special tokens around it.
 * ERR_VALIDATION: the number of placeholders differs (a client wrote one). */
int media_places(const struct media *m, const struct media_prompt *p, const uint32_t *ids,
                 uint32_t n, struct arena *a, struct gen_request *r, struct err *e);
#endif
