/* pictures.h - the media of requests: decodes and encodes them, and caches their features by
 * content.
 *
 * A medium is an image, or in models of an encoder and a decoder a text, whose features are the
 * encoder's rows. It is one or the other in all requests to a model.
 *
 * An image is decoded when a request arrives, and encoded before the first step that needs
 * its features. It is released when its tokens are in the KV cache. If no stream is running, all
 * images of a step are encoded together; otherwise one after the other, in parts. The cache of
 * features is bounded; the least recently used features are evicted. Every rank gets the same calls
 * in the same order. One thread. */
#ifndef MODEL_SERVER_ENGINE_PICTURES_H
#define MODEL_SERVER_ENGINE_PICTURES_H
#include "common/image/image.h"
#include "common/vision/vision.h"
#include "model-server/backend/backend.h"

struct pictures;
struct tower;        /* encoder/tower.h */
struct text_encoder; /* model/text_encoder.h */
struct pictures_options {
    const struct vision *vision; /* both outlive it */
    struct tower *tower;
    /* Instead of both: media are texts of at most this many ids, until pictures_reserve(). Outlives
     * it. */
    struct text_encoder *texts;
    uint32_t most_ids;
    /* Decodes a file: image_decode() of common/image/decoder.h. `times`: as there. */
    int (*decode)(void *arg, const void *bytes, size_t n, const struct image_times *times,
                  struct image *out, struct err *e);
    void *decode_arg;
    const struct backend_ops *ops; /* its host threads process pixels */
    struct device *dev;
    uint64_t most_bytes; /* limit of unused features */
    struct model *model; /* with vision_crosses(): outlives it */
};
struct pictures *pictures_new(const struct pictures_options *o, struct err *e); /* `o` is copied */
void pictures_free(struct pictures *p); /* after all media are freed; NULL is allowed */
/* vision_token(); UINT32_MAX: no token is a placeholder */
uint32_t pictures_token(const struct pictures *p);

/* One medium of a request. */
struct media_spec {
    const void *bytes; /* the file of an image */
    size_t n_bytes;
    const uint32_t *ids; /* or a text for the encoder, [n_ids] */
    uint32_t n_ids;
    uint32_t position, tokens; /* in the prompt: from its first placeholder to its last */
    uint64_t digest;           /* image_digest(); 0: unknown */
};

/* The images of a sequence. */
struct media;
/* The images of prompt `ids`, whose first `cached` tokens need no features. ERR_VALIDATION with
 * one sentence: an image is corrupt, or does not match its placeholder tokens. */
struct media *media_new(struct pictures *p, const struct media_spec *specs, uint32_t n,
                        const uint32_t *ids, uint32_t n_ids, uint32_t cached, struct err *e);
void media_free(struct media *m); /* NULL is fine */
/* Tokens before `cached` will not be computed again: releases their images. */
void media_release(struct media *m, uint32_t cached);
/* The end of a step that would end before token `end`: `end`, or more if that would separate
 * tokens that attend to each other. */
uint32_t media_end(const struct media *m, uint32_t end);

/* The next step will compute tokens [from, to): marks their images for pictures_encode(). */
void media_want(struct media *m, uint32_t from, uint32_t to);
/* Reserves working memory for images of up to this many prompt tokens. Texts: of one of this many
 * ids, which is then the longest that is accepted. */
int pictures_reserve(struct pictures *p, uint32_t tokens, struct err *e);
/* True if the model has layers that attend to the rows (vision_crosses(), or texts). */
bool pictures_cross(const struct pictures *p);
bool pictures_alone(const struct pictures *p); /* vision_alone() */
/* With pictures_cross(): allocates keys and values for that many blocks of images' rows. Must come
 * before the first image. */
int pictures_reserve_shown(struct pictures *p, uint32_t n_blocks, enum kv_dtype dtype,
                           struct err *e);
/* Bytes of such a block on this rank; 0 in a stage without such layers. */
uint64_t pictures_shown_bytes(const struct pictures *p, enum kv_dtype dtype);
uint32_t pictures_shown_most(const struct pictures *p);   /* blocks that the largest image takes */
uint32_t pictures_shown_blocks(const struct pictures *p); /* blocks that are reserved */
/* Bytes on this rank: the tower's weights and the memory of pictures_reserve(). */
uint64_t pictures_memory(const struct pictures *p, uint32_t tokens);
/* Encodes marked images, in parts of layers. `most`: approximate limit of multiply-adds (0: no
 * limit). *done: their number; 0 if there was nothing to do or no limit. */
int pictures_encode(struct pictures *p, uint64_t most, uint64_t *done, struct err *e);
/* The end of the tokens [from, to) that can be computed: `to`, or the first token of the first
 * image that is not encoded. */
uint32_t media_ready(const struct media *m, uint32_t from, uint32_t to);

/* The entries of struct ragged for token i, which may lie after the prompt. `row` NULL: the
 * embedding is looked up. The row is valid until media_release() or media_free(). */
struct media_token {
    const float *row;
    uint32_t axes[3];
    struct mutual mutual;
    struct mutual sees; /* rows of media_shown() */
};
struct media_token media_token(const struct media *m, uint32_t i);
bool media_has(const struct media *m, uint32_t i); /* token i is a placeholder of a feature */
bool media_has_axes(const struct media *m);
bool media_is_two_way(const struct media *m);
/* Blocks of its pictures' rows of keys and values; NULL: pictures are no such thing here. */
const uint32_t *media_shown(const struct media *m);

struct pictures_stats {
    uint32_t kept;          /* images with features in memory */
    uint64_t bytes;         /* that these take */
    uint64_t encoded, hits; /* totals: encoded by the tower; found in memory */
    int64_t encode_ns;
};
struct pictures_stats pictures_stats(const struct pictures *p);
#endif
