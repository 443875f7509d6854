/* service_media.h - pictures of a Request: those that a router has placed among input_ids, and
 * those that stand between texts (input_chunks, as TGI sends them), which are placed here. */
#ifndef MODEL_SERVER_SERVICE_MEDIA_H
#define MODEL_SERVER_SERVICE_MEDIA_H
#include "common/buf.h"
#include "common/vision/vision.h"
#include "model-server/service_impl.h"

enum { SERVICE_MOST_MEDIA = 1024 }; /* of a request */

/* spec->media from q->media. -1: no memory. What is wrong is in spec->refusal. */
int read_media(const struct service *s, const Generate__V3__Request *q, struct rpc_mem *m,
               struct seq_spec *spec);

/* Texts and pictures in one text, pictures as the placeholders that they come to, and spec->media
 * but for their positions. As above; out->oom as well. */
int join_chunks(const struct service *s, const Generate__V3__Input *in, struct rpc_mem *m,
                struct seq_spec *spec, struct buf *out);
/* Positions of spec->media, from left to right in spec->prompt. */
void place_media(const struct service *s, struct seq_spec *spec);
#endif
