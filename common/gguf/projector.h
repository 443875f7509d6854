/* projector.h - the vision tower of a GGUF model, which llama.cpp stores in a file of its own
 * (mmproj).
 *
 * Its metadata and those of the text model together are the config.json and
 * preprocessor_config.json of the folder that both were made from. Keys: `clip.*` of
 * gguf-py/gguf/constants.py; what files do not say is what llama.cpp assumes or what all published
 * models of the kind have. */
#ifndef COMMON_GGUF_PROJECTOR_H
#define COMMON_GGUF_PROJECTOR_H
#include "common/gguf/family.h"

/* The path of a model with a projector, which gguf_set_open() reads: `model`, GGUF_PROJECTOR_MARK
 * and the projector's path. `given`: the projector's file; "none": none; NULL: the file beside the
 * model whose name begins with "mmproj" and which fits the text model, if there is one. Takes
 * `model` over and returns a path that the caller frees, possibly `model` itself; NULL after an
 * error: ERR_VALIDATION if `given` is no projector of this model, or if different ones beside it
 * fit. */
char *gguf_with_projector(char *model, const char *given, struct err *e);

/* Makes config.json of the text model and its projector from the text model's `text`, which it
 * takes over. The caller deletes the result. ERR_VALIDATION: a projector that is not known, or of
 * other models. */
cJSON *gguf_projector_config(const struct gguf_meta *m, cJSON *text, struct err *e);
/* preprocessor_config.json; only of a set with a projector. */
cJSON *gguf_projector_pixels(const struct gguf_set *s, struct err *e);
bool gguf_has_projector(const struct gguf_set *s);
/* The text of an image's placeholder that the vocabulary lacks, whose id is the vocabulary's size;
 * NULL: it has one, or there is no projector. */
const char *gguf_projector_unlisted(const struct gguf_set *s);

/* How the converter stores the tensors of a kind. */
struct projector_layout {
    bool plain;         /* names of positions have no suffix, that of the last matrix has one */
    bool channels_last; /* a patch of the tower, where a file has channels first */
    bool paired;        /* rows of q and k are interleaved in rotation pairs */
    bool tables_apart;  /* positions of columns precede those of rows, where a folder's alternate */
    bool axes_apart;    /* q and k: pairs that rotate by column precede those that do by row */
};
/* That of the projector's file `g`; of a kind that is not known all are false. */
struct projector_layout gguf_projector_layout(const struct gguf *g);
#endif
