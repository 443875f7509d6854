/* calibrate.h - a text on its way through a model, one layer after the other.
 *
 * The text is cut into sequences; each fifth is held out for the report. The rows between two
 * layers are in files of the output's folder, so that a run that ended goes on, and memory holds
 * one layer and what the system keeps of the files. */
#ifndef MODEL_SERVER_QUANTIZE_CALIBRATE_H
#define MODEL_SERVER_QUANTIZE_CALIBRATE_H
#include "model-server/model/walk.h"
#include "model-server/quantize/out.h"

enum { HOLD_OUT = 5, SEQUENCE_LEAST = 32 };

struct token_text {
    uint32_t *ids; /* owned */
    uint32_t n, context;
};
/* Tokens of a file, or where `path` is NULL of the text that is shipped; by the tokenizer of
 * `model`. `most` tokens, 0: all. ERR_VALIDATION: too short for five sequences. */
int token_text_read(struct token_text *t, const char *model, const char *path, uint32_t context,
                    uint32_t most, struct err *e);
void token_text_free(struct token_text *t);
/* The i-th sequence that is held out, or that is not. False: there is no further one. */
bool token_text_sequence(const struct token_text *t, bool held_out, uint32_t i,
                         const uint32_t **ids, uint32_t *n);
uint64_t token_text_hash(const struct token_text *t);

struct calibration {
    const struct token_text *text;
    struct walk *walk;
    size_t hidden, rows, bytes; /* rows: of all sequences */
    char *path[2];
    float *x[2]; /* [rows][hidden] before layer i: x[i % 2] */
};
/* `next`: the first layer that is to come; its rows are there where that is not 0. */
int calibration_open(struct calibration *c, const struct token_text *text, struct walk *walk,
                     const struct out *o, uint32_t next, struct err *e);
void calibration_close(struct calibration *c); /* all zero is fine */
/* All sequences through a layer that is loaded: the results are the next layer's rows. A layer may
 * be run more than once. */
int calibration_run(struct calibration *c, uint32_t layer, struct err *e);
#endif
