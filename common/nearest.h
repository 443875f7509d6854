/* nearest.h - the known word that a misspelt one may mean. Pure. */
#ifndef COMMON_NEAREST_H
#define COMMON_NEAREST_H
#include <stddef.h>
#include <stdint.h>

enum { NEAREST_MAX = 64 }; /* longer words are compared with none */

/* How many letters have to be put in, left out, changed or swapped with their neighbour to make `b`
 * out of `a` (optimal string alignment). UINT32_MAX if one is longer than NEAREST_MAX. */
uint32_t nearest_distance(const char *a, size_t n_a, const char *b);

/* Is `candidate` at most a third of the word's length away, and nearer than *best? Then *best is
 * its distance. Begin with *best = UINT32_MAX. */
int nearest_is(const char *word, size_t n, const char *candidate, uint32_t *best);
#endif
