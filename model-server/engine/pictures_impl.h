/* pictures_impl.h - private to pictures.c and media.c. */
#ifndef MODEL_SERVER_ENGINE_PICTURES_IMPL_H
#define MODEL_SERVER_ENGINE_PICTURES_IMPL_H
#include "model-server/engine/pictures.h"

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
};

/* The image with this digest that has pixels or features, or NULL. */
struct medium *pictures_find(struct pictures *p, uint64_t digest);
/* A new image with one reference; takes over `picture` on success. NULL: out of memory. */
struct medium *pictures_add(struct pictures *p, const struct vision_plan *plan,
                            struct image *picture, uint64_t digest);
void pictures_ref(struct pictures *p, struct medium *m);
void pictures_unref(struct pictures *p, struct medium *m);
#endif
