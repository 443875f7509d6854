/* lmtp.h - `launcher lmtp`: a client for people and pipes. */
#ifndef LAUNCHER_LMTP_H
#define LAUNCHER_LMTP_H

/* One line, one request; its text as it comes. The exit code: 0 if all were answered. */
int lmtp_client(int argc, char **argv);
#endif
