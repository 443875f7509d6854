/* nearest.h - suggests the known word nearest to a misspelt one. Pure. */
#ifndef COMMON_NEAREST_H
#define COMMON_NEAREST_H
#include <stddef.h>
#include <stdint.h>

enum { NEAREST_MAX = 64 }; /* longer words match nothing */

/* Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
 * UINT32_MAX if a word is longer than NEAREST_MAX. */
uint32_t nearest_distance(const char *a, size_t n_a, const char *b);

/* True if `candidate` is within a third of the word's length, and nearer than *best, which is then
 * updated. Begin with *best = UINT32_MAX. */
int nearest_is(const char *word, size_t n, const char *candidate, uint32_t *best);
#endif
