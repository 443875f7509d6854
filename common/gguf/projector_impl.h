/* projector_impl.h - private: shared by projector.c and the rows of projector_kinds.c. */
#ifndef COMMON_GGUF_PROJECTOR_IMPL_H
#define COMMON_GGUF_PROJECTOR_IMPL_H
#include "common/gguf/meta.h"
#include "common/gguf/projector.h"

struct projector_kind;

/* Both files, and what is made of them. `s`, `m` and `pixels` may be NULL, of which the functions
 * below need nothing. */
struct projector {
    const struct gguf *file;
    const struct gguf_meta *m;
    const struct projector_kind *kind;
    cJSON *config, *text, *tower, *pixels; /* under construction */
};

/* Of the projector's file: a number without "clip.vision.", a number of a tensor's dimension
 * (innermost first), 0 without that tensor. */
double projector_number(const struct projector *p, const char *key, double def);
double projector_dim(const struct projector *p, const char *tensor, int dim);
bool projector_has(const struct projector *p, const char *tensor);
/* Adds {"height": side, "width": side}. */
void projector_square(cJSON *o, const char *key, double side);

/* A token's key in config.json and its texts, of which the first in the vocabulary is used. */
struct projector_token {
    const char *key, *texts[2];
};
enum { PROJECTOR_TOKENS = 3 };

/* One row of clip.projector_type. */
struct projector_kind {
    const char *word;
    const char *const *archs; /* general.architecture of its text models; NULL: any */
    /* model_type of the whole, or what finds it by the text model's architecture and the tensors */
    const char *type;
    const char *(*find_type)(const struct projector *p);
    const char *tower; /* model_type of vision_config; NULL: that of the whole */
    const char *(*find_tower)(const struct projector *p);
    const char *gelu; /* the activation of files with use_gelu */
    struct projector_token tokens[PROJECTOR_TOKENS];
    void (*more)(const struct projector *p);   /* vision_config, and the whole's own keys */
    void (*pixels)(const struct projector *p); /* preprocessor_config.json; may be NULL */
    struct projector_layout layout;
    const char *last; /* the matrix that makes features; NULL: the file says how wide they are */
    /* The vocabulary may lack the first of `tokens`: then it is the id behind the last one. */
    bool unlisted;
};
/* "mlp" (projector_llava.c). */
const char *projector_llava_type(const struct projector *p);
const char *projector_llava_tower(const struct projector *p);
void projector_llava(const struct projector *p);
void projector_llava_pixels(const struct projector *p);

extern const struct projector_kind projector_kinds[]; /* ends with a word that is NULL */
#endif
