/* pictures_impl.h - private to pictures.c, media*.c and source_*.c. */
#ifndef MODEL_SERVER_ENGINE_PICTURES_IMPL_H
#define MODEL_SERVER_ENGINE_PICTURES_IMPL_H
#include "model-server/encoder/tower.h"
#include "model-server/engine/media/pictures.h"
#include "model-server/engine/media/shown.h"
#include "model-server/model/text/text_encoder.h"

/* Size of a medium: its rows of features, and its tokens in a prompt that stand for them. */
struct medium_shape {
    uint32_t rows, tokens;
    uint32_t grid_h, grid_w, width, height; /* of an image; 0: a text */
    struct vision_tiles tiles;              /* of its plan */
    uint32_t token;                         /* its placeholder, or NO_PLACEHOLDER */
    float interval;                         /* vision_interval() of a video, otherwise 0 */
    bool apart;                             /* vision_frames_apart() of a video */
};

/* A medium: first what the source reads, then its features. */
struct medium {
    uint64_t digest;
    struct medium_shape shape;
    struct vision_plan plan; /* an image: how it is encoded, and its pixels until then */
    struct image picture;
    uint32_t *ids; /* a text: [shape.rows] until it is encoded */
    float *seen;   /* a text with an image: features of the tower, before the encoder reads them */
    float *rows, *unfinished; /* [shape.rows][source->row()]; rows NULL: not encoded yet */
    uint32_t refs;            /* sequences that need it */
    bool wanted;              /* by the next step */
    struct medium *newer, *older;
};

/* What computes the rows of media: a vision tower (source_images.c), or an encoder of texts
 * (source_texts.c). Every rank gets the same calls. */
struct source_ops {
    /* The size of what a request sends. ERR_VALIDATION: it cannot be encoded. */
    int (*shape)(const struct pictures *p, const struct media_spec *s, struct medium_shape *out,
                 struct err *e);
    /* Decodes it: fills m's input and digest, where m->shape is what shape() said. ERR_VALIDATION:
     * it is corrupt. */
    int (*read)(struct pictures *p, const struct media_spec *s, struct medium *m, struct err *e);
    void (*drop)(struct medium *m); /* frees the input */
    /* Starts to encode m[0 .. n) into their `unfinished`; go_on() continues with about `most`
     * multiply-adds. An error, or stop(), ends the work; `m` stays valid until then. */
    int (*begin)(struct pictures *p, struct medium *const *m, uint32_t n, struct err *e);
    int (*go_on)(struct pictures *p, uint64_t most, uint64_t *done, struct err *e);
    bool (*busy)(const struct pictures *p);
    void (*stop)(struct pictures *p);
    uint32_t (*row)(const struct pictures *p);       /* numbers of a row */
    const float *(*token)(const struct pictures *p); /* embedding of a medium's token, or NULL */
    uint32_t (*most_rows)(const struct pictures *p); /* of the largest medium, with `crosses` */
    int (*reserve)(struct pictures *p, uint32_t tokens, struct err *e);
    uint64_t (*memory)(const struct pictures *p, uint32_t tokens); /* with the weights */
};
extern const struct source_ops source_images, source_texts;
/* source_images.c: the pixels of an image whose features are to be at `to`, and their end. */
int source_pixels(const struct pictures *p, const struct medium *m, float *to,
                  struct tower_image *out, struct err *e);
void source_drop_pixels(struct tower_image *images, uint32_t n);
#define SOURCE_ALL UINT64_MAX /* go_on() until it is done */

/* The pool of media of all sequences, with the source that encodes them. Encoded ones that no
 * sequence needs stay until their memory is needed: the least recently used one is evicted first.
 * Engine thread. */
struct pictures {
    struct pictures_options o;
    const struct source_ops *source;
    struct medium **current; /* [n_current] what the source is encoding, in parts */
    uint32_t n_current;
    union { /* and as the source gets it, [n_current] */
        struct tower_image *images;
        struct text_job *texts;
    } work;
    struct tower_image *seen; /* images of texts, which the tower is encoding; n_seen 0: none */
    uint32_t n_seen;
    struct medium *newest, *oldest;
    struct pictures_stats stats;
    uint32_t token;             /* placeholder of an image's feature, or NO_PLACEHOLDER */
    bool axes, two_way, prefix; /* vision_three_positions() and its neighbours */
    bool canvas;                /* vision_canvas() */
    bool crosses;               /* layers attend to the rows, and a medium is one token */
    struct shown shown;         /* with `crosses` */
    bool no_room;               /* a sequence of the step waits for it */
    struct media *wanted;       /* whose runs the next step needs */
};

/* Images [first, first + n) of a sequence, which are adjacent in the prompt. */
struct media_run {
    uint32_t first, n;
    uint32_t row; /* its first row in the sequence's table */
};

/* The media of one sequence, in the order of the prompt. */
struct media {
    struct pictures *pictures;
    bool axes, two_way;
    uint32_t n;
    struct vision_place *places; /* [n] */
    struct medium_shape *shapes; /* [n] */
    /* [n_grids] `places` for vision_position(): a video may have several */
    struct vision_place *grids;
    uint32_t n_grids;
    struct medium **of; /* [n] NULL: no longer needed */
    /* For the tokens from the start of the first image to the end of the last one: the index of a
     * token's feature in its image, and the run of mutually visible tokens that contains it. */
    uint32_t begin, end;
    uint32_t *feature;
    struct mutual *marks; /* NULL unless two_way, and if the whole prompt is mutually visible */
    uint32_t prefix; /* tokens of the prompt that all attend to each other; 0: only those of its
                        images */

    /* With pictures.crosses: [n_runs] runs, their keys and numbers of rows, and the references. */
    uint32_t n_runs;
    struct media_run *runs;
    uint64_t *keys;
    uint32_t *rows;
    struct shown_run **taken;
    bool has_runs;
    struct mutual *sees; /* [n] rows that tokens from this image to the next one attend to */
    uint32_t *table;     /* blocks of all runs */
    bool wanted;
    struct media *next_wanted;
};

/* A medium's tokens are not features' placeholders: their embeddings are looked up. */
#define NO_PLACEHOLDER UINT32_MAX

/* The medium with this digest that has an input or features, or NULL. */
struct medium *pictures_find(struct pictures *p, uint64_t digest);
/* A copy of `m` with one reference; takes over its input on success. NULL: out of memory. */
struct medium *pictures_add(struct pictures *p, struct medium *m);
void pictures_ref(struct pictures *p, struct medium *m);
void pictures_unref(struct pictures *p, struct medium *m);

/* media_cross.c. Finds the runs of m->places. ERR_VALIDATION: they can never fit. */
int media_cross_open(struct media *m, struct err *e);
void media_cross_name(struct media *m, const uint64_t *digests); /* [n] */
bool media_cross_here(const struct media *m);                    /* all are complete in the pool */
/* Takes all runs: 1. 0: the pool has too few unused blocks. -1: out of memory. */
int media_cross_take(struct media *m, struct err *e);
void media_cross_close(struct media *m); /* gives its runs back, and frees what open() allocated */
/* The next step needs the runs of tokens before `to`: their media are encoded first. */
void media_cross_want(struct media *m, uint32_t to);
void media_cross_release(struct media *m);
/* Where a step over tokens from .. to has to end: before the first run that is not stored yet. */
uint32_t media_cross_ready(const struct media *m, uint32_t from, uint32_t to);
struct mutual media_cross_sees(const struct media *m, uint32_t token);
/* Stores keys and values of wanted runs whose features exist. *done grows unless `most` is 0. */
int media_cross_store(struct pictures *p, uint64_t most, uint64_t *done, struct err *e);
#endif
