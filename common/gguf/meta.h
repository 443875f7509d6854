/* meta.h - the metadata of a GGUF file, whose keys begin with the architecture, and the config.json
 * that is made of it. */
#ifndef COMMON_GGUF_META_H
#define COMMON_GGUF_META_H
#include "common/gguf/family.h"

enum { GGUF_KEY_MAX = 160, GGUF_LAYERS_MAX = 4096 };

struct gguf_meta {
    const struct gguf_set *s;
    const struct gguf_family *f;
    cJSON *config; /* being made; NULL: only keys are read */
};

/* Keys without "<architecture>." */
bool meta_number(const struct gguf_meta *m, const char *key, double *out);
double meta_number_or(const struct gguf_meta *m, const char *key, double def);
bool meta_bool_or(const struct gguf_meta *m, const char *key, bool def);
bool meta_text(const struct gguf_meta *m, const char *key, struct gguf_str *out);
const struct gguf_value *meta_numbers(const struct gguf_meta *m, const char *key); /* or NULL */
bool meta_has(const struct gguf_meta *m, const char *tensor);
/* The model's own layers: those behind them predict further tokens, and are not read. */
double meta_layers(const struct gguf_meta *m);

/* Numbers that are not finite are left out: what is missing is said by the family that needs it. */
void meta_put(const struct gguf_meta *m, const char *key, double v);
void meta_put_in(cJSON *o, const char *key, double v);
/* The number `key`, where the file has it. */
void meta_copy(const struct gguf_meta *m, const char *key, const char *to);
/* In the place of what is there. */
void meta_set(const struct gguf_meta *m, const char *key, double v);
/* A number that was decimal before it became 32 bits: 1e-5, not 9.99999974e-06. */
double meta_as_written(double v);
#endif
