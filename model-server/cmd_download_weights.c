/* model-server download-weights: ensures that the files of a model are on this machine. */
#include "common/cleanup.h"
#include "common/flag/flag.h"
#include "common/hub/cache.h"
#include "common/hub/download.h"
#include "common/log/log.h"
#include "model-server/commands.h"
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

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
     .help = "A folder, a GGUF file, or the name of a repository of the Hugging Face hub; "
             "org/name:Q4_K_M means one of its GGUF models."},
    {.name = "revision", .type = FLAG_STR, F(revision), .help = "Branch, tag or commit; default: main."},
    {.name = "extension", .type = FLAG_STR, F(extension), .def = ".safetensors", .env = "",
     .help = "Accepted for compatibility: always .safetensors."},
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
    .about = "Makes sure that a model or an adapter is on this machine: a local folder, or a "
             "repository of the "
             "hub, which is downloaded into the hub's cache where it is not there already.",
    .flags = flags,
};

/* A descriptor that is readable once a stop was requested. */
static int stop_signals(struct err *e)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL); // NOLINT(concurrency-mt-unsafe): libcurl's threads inherit
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? err_sys(e, "signalfd") : fd;
}

static int run(const struct download_config *cfg, struct err *e)
{
    struct hub_settings settings;
    struct stat st;
    const char *folder = hub_weights_override();
    int stop CLEANUP(cleanup_fd) = -1;
    if (strcmp(cfg->extension, ".safetensors") != 0)
        return err_set(e, ERR_VALIDATION, "--extension %s: only .safetensors are read here",
                       cfg->extension);
    folder = folder ? folder : cfg->model_id;
    if (folder != cfg->model_id || stat(folder, &st) == 0) {
        char *model CLEANUP(cleanup_free) = hub_resolve(folder, NULL, e);
        if (!model)
            return -1;
        if (hub_parts(model) == HUB_NO_WEIGHTS)
            return err_set(e, ERR_VALIDATION,
                           "%s: no (or not all) .safetensors files, no .gguf file", folder);
        log_msg(LOG_INFO, "Files are already present on the host. Skipping download.");
        return 0;
    }
    hub_settings_read(&settings);
    return (stop = stop_signals(e)) < 0
               ? -1
               : hub_download(&settings, cfg->model_id, cfg->revision, stop, e);
}

int cmd_download_weights(int argc, char **argv)
{
    struct download_config cfg = {0};
    struct err e = ERR_INIT;
    int rc = flags_parse(&program, &cfg, argc, argv, environ, &e);
    int status = rc < 0 ? FLAGS_USAGE : 0;
    if (rc == 0) {
        log_init("model_server", (enum log_level)cfg.logger_level, cfg.json_output, 1);
        rc = run(&cfg, &e);
        status = rc < 0 ? 1 : 0;
        if (rc < 0)
            log_msg(LOG_ERROR, "%s", e.msg);
    } else if (rc < 0) {
        fprintf(stderr, "model-server download-weights: %s\n", e.msg);
    }
    flags_free(&program, &cfg);
    return status;
}
