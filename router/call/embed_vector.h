/* embed_vector.h - how vectors are written: numbers, or their signs as bits. */
#ifndef ROUTER_CALL_EMBED_VECTOR_H
#define ROUTER_CALL_EMBED_VECTOR_H
#include "common/buf.h"
#include <stdbool.h>
#include <stdint.h>

/* The bits of VECTOR_UBINARY are those of numbers above 0, eight to a byte, the first one highest;
 * the last byte is filled with zeros. A number of VECTOR_BINARY is such a byte minus 128. So write
 * sentence-transformers, Cohere, Jina and Voyage them. */
enum vector_type { VECTOR_FLOAT, VECTOR_BINARY, VECTOR_UBINARY, VECTOR_TYPES };

/* The type of a word, "float", "binary" or "ubinary"; VECTOR_TYPES: another word. */
enum vector_type vector_type_of(const char *word);
/* Appends x [n] as a list, or as a string of base64 of its elements: float32 in little-endian
 * order, or bytes. */
void vector_write(struct buf *out, const float *x, uint32_t n, enum vector_type type, bool base64);
#endif
