/*
 * local_lines: the lines between the peers of a testnet, as `--link` says they are, and partitions.
 * Each peer is dialled through a gate of ours (peer/env/proxy.h), which it gives out as its
 * address.
 */
#include "testnet/local_internal.h"

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "peer/env/process.h"
#include "peer/env/proxy.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TABLE_BYTES_MAX = 64 * 1024 * 1024, PURPOSE_SIDES = 0x7369646573 };

/* ---- who dialled ---- */

/* The inode of this machine's socket on `port`, from the kernel's table; 0: none. */
static uint64_t inode_of(uint16_t port)
{
    void *bytes = NULL;
    size_t count;
    uint64_t found = 0;
    char *line;

    if (file_read("/proc/net/tcp", TABLE_BYTES_MAX, &bytes, &count, NULL) != RC_OK) return 0;
    for (line = strchr(bytes, '\n'); line != NULL && found == 0; line = strchr(line + 1, '\n')) {
        unsigned local_port;
        uint64_t inode;

        if (sscanf(line + 1, " %*u: %*x:%x %*x:%*x %*x %*x:%*x %*x:%*x %*x %*u %*u %" SCNu64,
                   &local_port, &inode) == 2 &&
            local_port == port) {
            found = inode;
        }
    }
    mem_free(bytes);
    return found;
}

static bool has_socket(int pid, uint64_t inode)
{
    char path[300], wanted[48], target[48];
    struct dirent *entry;
    bool is_found = false;
    DIR *folder;

    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    snprintf(wanted, sizeof wanted, "socket:[%" PRIu64 "]", inode);
    folder = opendir(path);
    if (folder == NULL) return false;
    while (!is_found && (entry = readdir(folder)) != NULL) {
        ssize_t length;

        snprintf(path, sizeof path, "/proc/%d/fd/%.16s", pid, entry->d_name);
        length = readlink(path, target, sizeof target - 1);
        if (length <= 0) continue;
        target[length] = '\0';
        is_found = strcmp(target, wanted) == 0;
    }
    closedir(folder);
    return is_found;
}

static uint32_t who(void *context, uint16_t port)
{
    struct local *local = context;
    uint64_t inode = inode_of(port);

    for (uint32_t i = 0; inode != 0 && i < local->options->peers; i++) {
        const struct runner *runner = &local->runners[i];
        int pid =
            runner->child == LOCAL_NO_CHILD ? 0 : process_pid(local->host, (uint32_t)runner->child);

        if (pid > 0 && has_socket(pid, inode)) return i;
    }
    return PROXY_UNKNOWN;
}

/* ---- gates ---- */

static bool has_rule(const struct chaos *chaos, enum chaos_kind kind)
{
    for (size_t i = 0; i < chaos->rules_count; i++) {
        if (chaos->rules[i].kind == kind) return true;
    }
    return false;
}

enum rc local_lines_open(struct local *local, struct fault *why)
{
    const struct local_options *options = local->options;
    const struct proxy_options request = {.gates = options->peers,
                                          .latency_ns = options->link.latency_ns,
                                          .jitter_ns = options->link.jitter_ns,
                                          .bytes_per_s = options->link.bytes_per_s,
                                          .loss = options->link.loss,
                                          .seed = options->seed,
                                          .context = local,
                                          .who = who};

    rng_init(&local->rng, options->seed, PURPOSE_SIDES);
    if (!options->has_link && !has_rule(&options->chaos, CHAOS_PARTITION)) return RC_OK;
    return proxy_create(local->host, &request, &local->lines, why);
}

const char *local_dial_address(const struct local *local, uint32_t peer)
{
    if (local->lines != NULL) return proxy_address(local->lines, peer);
    return local->runners[peer].seen.address;
}

void local_lines_up(struct local *local, uint32_t peer)
{
    if (local->lines == NULL) return;
    proxy_set_target(local->lines, peer, local->runners[peer].seen.address);
}

/* ---- partitions ---- */

void local_part(struct local *local, const struct chaos_rule *rule, uint64_t now)
{
    uint32_t peers = local->options->peers;
    uint32_t *order = mem_array(peers, sizeof *order);
    bool *sides = mem_array(peers, sizeof *sides);

    if (order != NULL && sides != NULL && local->lines != NULL) {
        for (uint32_t i = 0; i < peers; i++) {
            order[i] = i;
        }
        rng_shuffle(&local->rng, order, peers);
        for (uint32_t i = 0; i < peers / 2; i++) {
            sides[order[i]] = true;
        }
        proxy_set_sides(local->lines, sides);
        local->whole_ns = now + rule->after_ns;
        local->faults++;
        local_note(local, false, "chaos: %u of %u peers cut off for %.3g s", peers / 2, peers,
                   (double)rule->after_ns / 1e9);
        struct json *event = local_event(local, "fault", order[0]);
        json_set_text(event, "kind", chaos_name(rule->kind));
        local_record(local, event);
    }
    mem_free(order);
    mem_free(sides);
}

void local_heal(struct local *local, uint64_t now)
{
    if (local->whole_ns == 0 || now < local->whole_ns) return;
    local->whole_ns = 0;
    proxy_set_sides(local->lines, NULL);
}
