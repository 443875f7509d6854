/* pictures_impl.h - private to pictures.c, media.c and media_cross.c. */
#ifndef MODEL_SERVER_ENGINE_PICTURES_IMPL_H
#define MODEL_SERVER_ENGINE_PICTURES_IMPL_H
#include "model-server/engine/pictures.h"
#include "model-server/engine/shown.h"

/* An image: first decoded, then as features. */
struct medium {
    uint64_t digest;
    struct vision_plan plan;
    struct image picture; /* rgb NULL: encoded */
    float *rows;          /* [plan.n_features][tower_row()]; NULL: not encoded yet */
    uint32_t refs;        /* sequences that need it */
    bool wanted;          /* by the next step */
    struct medium *newer, *older;
};

struct pictures {
    struct pictures_options o;
    struct medium *current; /* the image that the tower is encoding, in parts; NULL: none */
    struct tower_image at_work;
    struct medium *newest, *oldest;
    struct pictures_stats stats;
    bool crosses;         /* vision_crosses() */
    struct shown shown;   /* with `crosses` */
    bool no_room;         /* a sequence of the step waits for it */
    struct media *wanted; /* whose runs the next step needs */
};

/* Images [first, first + n) of a sequence, which are adjacent in the prompt. */
struct media_run {
    uint32_t first, n;
    uint32_t row; /* its first row in the sequence's table */
};

struct media {
    struct pictures *pictures;
    bool axes, two_way;
    uint32_t n;
    struct vision_place *places; /* [n] */
    uint32_t *features;          /* [n] */
    struct medium **of;          /* [n] NULL: no longer needed */
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

/* The image with this digest that has pixels or features, or NULL. */
struct medium *pictures_find(struct pictures *p, uint64_t digest);
/* A new image with one reference; takes over `picture` on success. NULL: out of memory. */
struct medium *pictures_add(struct pictures *p, const struct vision_plan *plan,
                            struct image *picture, uint64_t digest);
void pictures_ref(struct pictures *p, struct medium *m);
void pictures_unref(struct pictures *p, struct medium *m);

/* media_cross.c. Finds the runs of m->places. ERR_VALIDATION: they can never fit. */
int media_cross_open(struct media *m, struct err *e);
void media_cross_name(struct media *m, const uint64_t *digests); /* [n] */
bool media_cross_here(const struct media *m);                    /* all are complete in the pool */
/* Takes all runs: 1. 0: the pool has too few unused blocks. -1: out of memory. */
int media_cross_take(struct media *m, struct err *e);
void media_cross_close(struct media *m);
void media_cross_want(struct media *m, uint32_t to);
void media_cross_release(struct media *m);
uint32_t media_cross_ready(const struct media *m, uint32_t from, uint32_t to);
struct mutual media_cross_sees(const struct media *m, uint32_t token);
/* Stores keys and values of wanted runs whose features exist. *done grows unless `most` is 0. */
int media_cross_store(struct pictures *p, uint64_t most, uint64_t *done, struct err *e);
#endif
