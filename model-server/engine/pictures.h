/* pictures.h - the pictures of requests: from files to features, kept by what they show.
 *
 * A picture is decoded when a request brings it, encoded before the first step that needs its
 * features, and let go when its tokens are in the KV cache. Where nothing else waits, all pictures
 * of a step are encoded together; beside running streams one after the other, in parts. Features
 * stay in memory of bounded size, the longest unused leave first. Every rank gets the same calls in
 * the same order. One thread. */
#ifndef MODEL_SERVER_ENGINE_PICTURES_H
#define MODEL_SERVER_ENGINE_PICTURES_H
#include "common/image/image.h"
#include "model-server/backend/backend.h"
#include "model-server/encoder/tower.h"

struct pictures;
struct pictures_options {
    const struct vision *vision; /* both outlive it */
    struct tower *tower;
    /* What decodes files: image_decode() of common/image/decoder.h. */
    int (*decode)(void *arg, const void *bytes, size_t n, struct image *out, struct err *e);
    void *decode_arg;
    const struct backend_ops *ops; /* whose host threads work on pixels */
    struct device *dev;
    uint64_t most_bytes; /* of features that are not needed now */
    struct model *model; /* with vision_crosses(): outlives it */
};
struct pictures *pictures_new(const struct pictures_options *o, struct err *e); /* `o` is copied */
void pictures_free(struct pictures *p);            /* all media are free; NULL is fine */
uint32_t pictures_token(const struct pictures *p); /* vision_token() */
bool pictures_two_way(const struct pictures *p);

/* What a request says about one. */
struct media_spec {
    const void *bytes; /* the file */
    size_t n_bytes;
    uint32_t position, tokens; /* of the prompt: from its first placeholder to its last */
    uint64_t digest;           /* image_digest(); 0: not known */
};

/* The pictures of a sequence. */
struct media;
/* Of a prompt `ids`, of which `cached` tokens need no features. ERR_VALIDATION, one sentence: a
 * picture that is broken, or does not go with the tokens that stand for it. */
struct media *media_new(struct pictures *p, const struct media_spec *specs, uint32_t n,
                        const uint32_t *ids, uint32_t n_ids, uint32_t cached, struct err *e);
void media_free(struct media *m); /* NULL is fine */
/* Tokens before `cached` will not be computed again. */
void media_release(struct media *m, uint32_t cached);
/* Where a step that would end before token `end` has to end, so that no tokens that see each other
 * both ways are cut apart: `end`, or more. */
uint32_t media_end(const struct media *m, uint32_t end);

/* Tokens [from, to) will be computed by the next step: their pictures are encoded by
 * pictures_encode(), if they are not. */
void media_want(struct media *m, uint32_t from, uint32_t to);
/* The tower's working memory for pictures of up to so many tokens of prompts, ahead of them. */
int pictures_reserve(struct pictures *p, uint32_t tokens, struct err *e);
/* With vision_crosses(): memory for keys and values of that many blocks of pictures' rows, ahead of
 * the first picture (else pictures cannot be shown); bytes of a block on this rank, which are 0 in
 * a stage without such layers; blocks that the largest picture takes. */
bool pictures_cross(const struct pictures *p); /* vision_crosses() */
int pictures_reserve_shown(struct pictures *p, uint32_t n_blocks, enum kv_dtype dtype,
                           struct err *e);
uint64_t pictures_shown_bytes(const struct pictures *p, enum kv_dtype dtype);
uint32_t pictures_shown_most(const struct pictures *p);
uint32_t pictures_shown_blocks(const struct pictures *p); /* that are reserved */
/* On this rank: the tower's weights, with what pictures_reserve() takes. */
uint64_t pictures_memory(const struct pictures *p, uint32_t tokens);
/* At most about `most` multiplications and additions of the tower (0: whatever it takes), in parts
 * of layers; *done: how many it were, and 0 where there was nothing to do or no limit. */
int pictures_encode(struct pictures *p, uint64_t most, uint64_t *done, struct err *e);
/* Up to where tokens [from, to) can be computed: `to`, or the first token of the first picture that
 * is not encoded. */
uint32_t media_ready(const struct media *m, uint32_t from, uint32_t to);

/* What struct ragged has of token i, also behind the prompt. `row` NULL: its embedding is looked
 * up. The row is valid until media_release() or media_free(). */
struct media_token {
    const float *row;
    uint32_t axes[3];
    struct mutual mutual;
    struct mutual sees; /* rows of media_shown() */
};
struct media_token media_token(const struct media *m, uint32_t i);
bool media_has(const struct media *m, uint32_t i); /* token i stands for a feature */
bool media_has_axes(const struct media *m);
bool media_is_two_way(const struct media *m);
/* Blocks of its pictures' rows of keys and values; NULL: pictures are no such thing here. */
const uint32_t *media_shown(const struct media *m);

struct pictures_stats {
    uint32_t kept;          /* pictures whose features are in memory */
    uint64_t bytes;         /* that these take */
    uint64_t encoded, hits; /* since the beginning: by the tower; found in memory */
    int64_t encode_ns;
};
struct pictures_stats pictures_stats(const struct pictures *p);
#endif
