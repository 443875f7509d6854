/* meta.h - metadata of a GGUF file by keys without the architecture prefix, and the config.json
 * derived from it. */
#ifndef COMMON_GGUF_META_H
#define COMMON_GGUF_META_H
#include "common/gguf/family.h"

enum { GGUF_KEY_MAX = 160, GGUF_LAYERS_MAX = 4096 };

struct gguf_meta {
    const struct gguf_set *s;
    const struct gguf_family *f;
    cJSON *config; /* under construction; NULL: only reading */
};

/* Keys without "<architecture>." */
bool meta_number(const struct gguf_meta *m, const char *key, double *out);
double meta_number_or(const struct gguf_meta *m, const char *key, double def);
bool meta_bool_or(const struct gguf_meta *m, const char *key, bool def);
bool meta_text(const struct gguf_meta *m, const char *key, struct gguf_str *out);
/* NULL: absent */
const struct gguf_value *meta_numbers(const struct gguf_meta *m, const char *key);
bool meta_has(const struct gguf_meta *m, const char *tensor);
/* The model's own layers; later ones predict further tokens and are not used. */
double meta_layers(const struct gguf_meta *m);

/* Numbers that are not finite are skipped: the family that needs them reports their absence. */
void meta_put(const struct gguf_meta *m, const char *key, double v);
void meta_put_in(cJSON *o, const char *key, double v);
/* The first n numbers of a list, or all; NULL: nothing is put. */
void meta_put_list(cJSON *o, const char *key, const struct gguf_value *list, uint64_t n);
/* Copies the number `key` to member `to`, if the file has it. */
void meta_copy(const struct gguf_meta *m, const char *key, const char *to);
/* The same for a list: the elements of the model's own layers. */
void meta_copy_list(const struct gguf_meta *m, const char *key, const char *to);
/* Replaces an existing member. */
void meta_set(const struct gguf_meta *m, const char *key, double v);
/* The part of a head of `head` elements of which `dim` rotate, as partial_rotary_factor says it. */
double meta_part(double dim, double head);
/* Restores a decimal that was stored as a 32-bit float: 1e-5, not 9.99999974e-06. */
double meta_as_written(double v);
#endif
