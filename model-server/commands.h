/* commands.h - the subcommands of model-server. Each is in its own cmd_<name>.c and has one row
 * in main.c; argv[0] is the subcommand's name, the result is the exit status. */
#ifndef MODEL_SERVER_COMMANDS_H
#define MODEL_SERVER_COMMANDS_H

struct subcommand {
    const char *name, *about;
    int (*run)(int argc, char **argv);
};

int cmd_download_weights(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_logits(int argc, char **argv);
int cmd_quality(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_serve(int argc, char **argv);
#endif
