/* uv_process: the loop of a process_host, for what else runs on it (proxy.c). */
#ifndef GRAPEVINE_PEER_ENV_UV_PROCESS_H
#define GRAPEVINE_PEER_ENV_UV_PROCESS_H

#include "peer/env/process.h"

#include <uv.h>

uv_loop_t *process_host_loop(struct process_host *host);

#endif
