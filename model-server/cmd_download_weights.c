/* model-server download-weights: make sure that the files of a model are on this machine. */
#include "common/cleanup.h"
#include "common/flag.h"
#include "common/hub/cache.h"
#include "common/log.h"
#include "model-server/commands.h"

struct download_config {
    const char *model_id, *revision, *extension;
    uint32_t logger_level;
    bool json_output, auto_convert, trust_remote_code, merge_lora;
};

static const char *const levels[] = {"error", "warn", "info", "debug", "trace", "off", NULL};

// clang-format off
#define F(field) .off = offsetof(struct download_config, field)
static const struct flag flags[] = {
    {.name = "model-id", .positional = true, .required = true, .type = FLAG_STR, F(model_id),
     .help = "A folder, or the name of a repository of the Hugging Face hub."},
    {.name = "revision", .type = FLAG_STR, F(revision), .help = "Branch, tag or commit; default: main."},
    {.name = "extension", .type = FLAG_STR, F(extension), .def = ".safetensors", .env = "",
     .help = "What the names of the weight files end with."},
    {.name = "auto-convert", .type = FLAG_BOOL, F(auto_convert), .def = "true", .env = "",
     .help = "Accepted for compatibility; has no effect."},
    {.name = "logger-level", .type = FLAG_ENUM, F(logger_level), .def = "info", .choices = levels, .env = "",
     .help = "Lines above this level are not logged."},
    {.name = "json-output", .type = FLAG_BOOL, F(json_output), .env = "",
     .help = "Log JSON objects instead of text."},
    {.name = "trust-remote-code", .type = FLAG_BOOL, F(trust_remote_code), .env = "",
     .help = "Accepted for compatibility; no code of a checkpoint is ever run."},
    {.name = "merge-lora", .type = FLAG_BOOL, F(merge_lora), .env = "",
     .help = "Accepted for compatibility; has no effect."},
    {0},
};
// clang-format on

static const struct flag_program program = {
    .name = "model-server download-weights",
    .about = "Looks for the weights of a model: a local folder, or a snapshot in the hub's cache.",
    .flags = flags,
};

static int run(const struct download_config *cfg, struct err *e)
{
    char *dir CLEANUP(cleanup_free) = hub_resolve(cfg->model_id, cfg->revision, e);
    if (!dir)
        return -1;
    if (!hub_has_file(dir, cfg->extension))
        return err_set(e, ERR_VALIDATION, "%s: no %s files", dir, cfg->extension);
    log_msg(LOG_INFO, "Files are already present on the host. Skipping download.");
    return 0;
}

int cmd_download_weights(int argc, char **argv)
{
    struct download_config cfg = {0};
    struct err e = ERR_INIT;
    int rc = flags_parse(&program, &cfg, argc, argv, environ, &e);
    if (rc == 0) {
        log_init("model_server", (enum log_level)cfg.logger_level, cfg.json_output, 1);
        rc = run(&cfg, &e);
        if (rc < 0)
            log_msg(LOG_ERROR, "%s", e.msg);
    } else if (rc < 0) {
        fprintf(stderr, "model-server download-weights: %s\n", e.msg);
    }
    flags_free(&program, &cfg);
    return rc < 0 ? 1 : 0;
}
