/* calibrate.h - runs a calibration text through a model, layer by layer.
 *
 * The text is cut into sequences; every fifth is held out for the report. The activations between
 * two layers are stored in files of the output folder. So an interrupted run can be resumed, and
 * memory holds one layer plus the page cache of these files. */
#ifndef MODEL_SERVER_QUANTIZE_CALIBRATE_H
#define MODEL_SERVER_QUANTIZE_CALIBRATE_H
#include "model-server/model/walk.h"
#include "model-server/quantize/out.h"

enum { HOLD_OUT = 5, SEQUENCE_LEAST = 32 };

struct token_text {
    uint32_t *ids; /* owned */
    uint32_t n, context;
};
/* Tokenizes a file with the tokenizer of `model`; `path` NULL: the built-in text. At most `most`
 * tokens, 0: all. The caller calls token_text_free(). ERR_VALIDATION: the text is too short for
 * five sequences. */
int token_text_read(struct token_text *t, const char *model, const char *path, uint32_t context,
                    uint32_t most, struct err *e);
void token_text_free(struct token_text *t);
/* Returns the i-th held-out sequence, or the i-th calibration sequence. False: there is none. */
bool token_text_sequence(const struct token_text *t, bool held_out, uint32_t i,
                         const uint32_t **ids, uint32_t *n);
uint64_t token_text_hash(const struct token_text *t);

struct calibration {
    const struct token_text *text;
    struct walk *walk;
    size_t hidden, rows, bytes; /* rows: tokens of all sequences */
    char *path[2];
    float *x[2]; /* [rows][hidden] mapped files; the input of layer i is x[i % 2] */
};
/* Opens the files. `next`: the first layer to run; its input exists already unless it is layer 0.
 */
int calibration_open(struct calibration *c, const struct token_text *text, struct walk *walk,
                     const struct out *o, uint32_t next, struct err *e);
void calibration_close(struct calibration *c); /* all zero is fine */
/* Runs all sequences through a loaded layer and stores the input of the next one. A layer may be
 * run repeatedly. */
int calibration_run(struct calibration *c, uint32_t layer, struct err *e);
#endif
