/* sentence_impl.h - private to sentence.c and sentence_late.c. */
#ifndef COMMON_SENTENCE_IMPL_H
#define COMMON_SENTENCE_IMPL_H
#include "common/json/json.h"
#include "common/model/sentence.h"

enum { SMALL_JSON = 1024 * 1024 };
/* *out: the object of a file of the folder, which has at most `max` bytes, or NULL if there is
 * none. */
int sentence_read_json(const char *dir, const char *name, size_t max, cJSON **out, struct err *e);
/* sentence_late.c: fills s->late and its prompts, after the modules and prompts of `s`. */
int sentence_load_late(struct sentence *s, const char *dir, struct err *e);
/* Adds a prompt, unless there is one of that name or no room. `text` NULL: none. False: out of
 * memory. */
bool sentence_add_prompt(struct sentence *s, const char *name, const char *text);
/* Adds a list's words, or all punctuation where `words` is NULL or null, to s->late.skipped. */
int sentence_skip(struct sentence *s, const cJSON *words, struct err *e);
#endif
