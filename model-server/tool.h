/* tool.h - shared by the commands beside `serve`: options for the model and its loading, and a
 * model loaded with them. Their options have no environment variables: the environment of a
 * service must not change a tool. */
#ifndef MODEL_SERVER_TOOL_H
#define MODEL_SERVER_TOOL_H
#include "common/flag/options.h"
#include "model-server/model/model.h"

struct tool_options {
    const char *model, *shape, *device, *quantize, *rope_scaling;
    uint32_t dtype, activations, kv_dtype, threads, log_level;
    double rope_factor;
    /* NULL, or returns operations that replace the device's */
    const struct backend_ops *(*watch)(const struct backend_ops *ops);
};

extern const char *const tool_dtypes[], *const tool_levels[];

// clang-format off
/* Rows of a flag table whose configuration has a `struct tool_options` as its member `at`. */
#define TOOL_ROW(config, at, n, t, field) \
    .name = (n), .type = FLAG_##t, .off = offsetof(struct config, at.field), .env = ""
#define TOOL_ROWS(config, at)                                                                      \
    {TOOL_ROW(config, at, "model", STR, model), .positional = true,                                \
     .help = "Folder with config.json and safetensors weights, or a GGUF file."},                  \
    {TOOL_ROW(config, at, "dtype", ENUM, dtype), .def = "auto", .choices = tool_dtypes,            \
     .help = "Type of the weights on the device; auto: as stored, computed with in fp32. A 16-bit type "   \
             "that is asked for may be computed with too."},                               \
    {TOOL_ROW(config, at, "quantize", STR, quantize),                                              \
     .help = "Linear layers in fewer bits, made at load: eetq (int8), w8a8, int4 or fp8."},              \
    {OPTION_ACTIVATIONS, .off = offsetof(struct config, at.activations), .env = ""},               \
    {TOOL_ROW(config, at, "device", STR, device), .def = "auto",                                   \
     .help = "Backend: cpu, cuda or auto."},                                                       \
    {TOOL_ROW(config, at, "threads", U32, threads), .def = "0", .min = 0, .max = 256,              \
     .help = "Worker threads of the CPU backend; 0: all allowed cores."},                          \
    {TOOL_ROW(config, at, "rope-scaling", STR, rope_scaling),                                      \
     .help = "linear or dynamic: replaces the scaling of config.json."},                           \
    {TOOL_ROW(config, at, "rope-factor", F64, rope_factor), .def = "1",                            \
     .help = "Factor of --rope-scaling."},                                                         \
    {TOOL_ROW(config, at, "log-level", ENUM, log_level), .def = "warn", .choices = tool_levels,    \
     .help = "Lines above this level are not logged."}
#define TOOL_ROW_KV(config, at)                                                                    \
    {TOOL_ROW(config, at, "kv-cache-dtype", ENUM, kv_dtype), .def = "auto",                        \
     .choices = kv_dtype_choices,                                                                  \
     .help = "Type of keys and values in the cache; auto: as the weights are stored."}
#define TOOL_ROW_SHAPE(config, at)                                                                 \
    {TOOL_ROW(config, at, "shape", STR, shape),                                                    \
     .help = "Random weights of this shape instead of a checkpoint: a name (`--shape help` lists " \
             "them) or the path of a config.json."}
// clang-format on

struct tool {
    const struct backend_ops *ops;
    struct device *dev;
    struct model *model;
    enum kv_dtype kv_dtype; /* as requested, or the type for --kv-cache-dtype auto */
    double load_s;
};

/* Opens the device and loads the model. ERR_VALIDATION unless exactly one of model and shape is
 * given. tool_close() after a failure too. */
int tool_open(struct tool *t, const struct tool_options *o, struct err *e);
void tool_close(struct tool *t);

/* A command's main(): parses the command line into `config` (all zero; `program` has its rows,
 * and `o` lies in it), then calls run(config). Prints the error; returns the exit status. */
int tool_main(const struct flag_program *program, void *config, const struct tool_options *o,
              int (*run)(const void *config, struct err *e), int argc, char **argv);
#endif
