/* media.h - images of a Request: those that a router has placed among input_ids, and
 * those between texts (input_chunks, as TGI sends them), which are placed here. And the text that
 * an encoder reads. */
#ifndef MODEL_SERVER_SERVICE_MEDIA_H
#define MODEL_SERVER_SERVICE_MEDIA_H
#include "common/buf.h"
#include "common/vision/vision.h"
#include "model-server/service/impl.h"

enum { SERVICE_MOST_MEDIA = 1024 }; /* of a request */

/* With model_info.attends_text: moves the prompt in `spec` to the encoder. -1: out of memory. */
int encode_prompt(const struct service *s, struct rpc_mem *m, struct seq_spec *spec);
/* With tables of positions: refuses a text that is longer than the encoder's, and ends the answer
 * with the decoder's. */
void limit_positions(const struct service *s, struct rpc_mem *m, struct seq_spec *spec);
/* Fills spec->media from q->media. -1: out of memory. Errors are in spec->refusal. */
int read_media(const struct service *s, const Generate__V3__Request *q, struct rpc_mem *m,
               struct seq_spec *spec);

/* The images of a text, [n] in `m`. NULL: out of memory. */
struct media_spec *media_specs(Generate__V3__Media *const *media, size_t n, struct rpc_mem *m);

/* Joins texts and images to one text, with placeholders for images, and fills spec->media except
 * positions. Errors as above; out->oom as well. */
int join_chunks(const struct service *s, const Generate__V3__Input *in, struct rpc_mem *m,
                struct seq_spec *spec, struct buf *out);
/* Sets the positions of spec->media, from left to right in spec->prompt. */
void place_media(const struct service *s, struct seq_spec *spec);
#endif
