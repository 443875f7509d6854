/* lora.h - one adapter in PEFT's format: adapter_config.json and adapter_model.safetensors; or a
 * GGUF file of llama.cpp's converter. It is checked against its model (arXiv 2106.09685;
 * https://huggingface.co/docs/peft).
 *
 * It maps updates to the matrices of layers, and determines this rank's part of them. Matrices
 * that are split by output rows split B, those split by input columns split A. A rank adds
 * its share before the sum over ranks. */
#ifndef MODEL_SERVER_MODEL_LORA_LORA_H
#define MODEL_SERVER_MODEL_LORA_LORA_H
#include "common/file/file_stamp.h"
#include "model-server/model/arch.h"
#include "model-server/model/checkpoint/tensor_file.h"
#include "model-server/model/lora/lora_head.h"
#include "model-server/model/split.h"

/* Matrices of a layer that may have updates: qkv, o, up and down of its sublayers. */
enum lora_site {
    LORA_QKV,
    LORA_O,
    LORA_UP,
    LORA_DOWN,
    /* latent attention: the rotated parts of q (LORA_QKV has the others), the first of q's pair
     * of matrices, the matrix of the latent */
    LORA_Q_ROPE,
    LORA_Q_A,
    LORA_KV_A,
    /* recurrent layers: the matrix before the convolution (RWKV: of receptance; keys and values
     * read mixes of their own), that of beta and decay, the last one */
    LORA_MIX_IN,
    LORA_MIX_KEYS,
    LORA_MIX_VALUES,
    LORA_MIX_GATES,
    LORA_MIX_OUT,
    LORA_EMBED,  /* the table of embeddings, with layer 0: decoder_spec.inside */
    LORA_Q_GATE, /* gated attention: the rows after each head's q, or the gate's matrix */
    LORA_SITES
};

/* One pair of A and B. */
struct lora_pair {
    const struct tensor *a, *b; /* [rank, inputs], [outputs, rank] of the whole model */
    enum role role;
    enum lora_site site;
    enum dtype dtype;
    uint32_t layer, rank;
    float scale;
    /* on this rank: inputs [column, column + columns); n outputs, from row `first` of the site on
     */
    uint32_t column, columns, first, n;
    uint32_t most_columns, most_n; /* on any rank */
};

struct lora_source {
    const char *path; /* the tensors' */
    struct file_stamp stamp;
};

struct lora_adapter {
    struct tensor_file file;
    struct gguf_set *gguf;     /* of an adapter in one file: lora_gguf.h; NULL: a folder */
    struct checkpoint *inside; /* of an adapter inside a checkpoint: lora_inside.h */
    void **copies;             /* what of it is not as in the file */
    uint32_t n_copies;
    struct lora_pair *pairs; /* by layer */
    uint32_t n;
    struct lora_head head;
    struct lora_source *sources; /* the mapped files of its tensors */
    uint32_t n_sources;
};

/* What an adapter is for. */
struct lora_base {
    const struct arch *arch;
    const struct decoder_spec *spec;
    const struct split *split;
    /* the matrix behind the last layer that an adapter may change; name NULL: none */
    struct {
        const char *name;
        uint32_t inputs, outputs;
    } head;
};

/* `dir`: a folder, or a GGUF file. ERR_VALIDATION, one line that names file and field or tensor:
 * another kind of adapter, a tensor of an unsupported matrix, a shape that does not match the
 * model. Tensors stay mapped until lora_close(); after a failure there is nothing to close. */
int lora_open(struct lora_adapter *l, const char *dir, const struct lora_base *base, struct err *e);
/* The same of adapter `index` of those inside the checkpoint in `dir`: decoder_spec.inside. */
int lora_open_inside(struct lora_adapter *l, const char *dir, uint32_t index,
                     const struct lora_base *base, struct err *e);
void lora_close(struct lora_adapter *l);
/* Fails if a file was written in place since lora_open(): its tensors may not be read. One system
 * call a file, of which an adapter usually has one. */
int lora_check(const struct lora_adapter *l, struct err *e);

/* This rank's part of row r of A, `columns` elements, and of column r of B, n elements, as stored.
 */
void lora_copy_a(const struct lora_pair *p, uint32_t r, void *dst);
void lora_copy_b(const struct lora_pair *p, const struct lora_base *base, uint32_t r, void *dst);
#endif
