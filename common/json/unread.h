/* unread.h - which members of an object no reader has looked up.
 *
 * A watched object remembers the members that the functions of json.h find in it, so that the
 * caller can report what had no effect. The look-ups write into the tree: watch only a tree that
 * one thread uses at a time. */
#ifndef COMMON_JSON_UNREAD_H
#define COMMON_JSON_UNREAD_H
#include "common/json/json.h"

/* Watches this object from now on, not the objects in it. No effect on other values, and on NULL.
 */
void json_watch(const cJSON *o);

/* The first member behind `after` (NULL: of all) that was not looked up since json_watch() and is
 * not null. NULL: none, or `o` is not watched. */
const cJSON *json_unread(const cJSON *o, const cJSON *after);
#endif
