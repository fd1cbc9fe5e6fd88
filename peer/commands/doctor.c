/*
 * command_doctor: looks at everything a peer will need and says what is broken, each finding with
 * its fix. Nothing is changed. The way to the swarm is in doctor_network.c.
 */
#include "peer/cli/command.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/plain.h"
#include "base/units.h"
#include "gossip/secure/secure.h"
#include "kernels/backend.h"
#include "kernels/device/device.h"
#include "peer/commands/doctor.h"
#include "peer/env/env.h"
#include "peer/times.h"
#include "replica/data/dataset.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { KEY_FILE_BYTES_MAX = 4096, FILES_LEAST = 1024 };

#define ROOM_LEAST     (UINT64_C(64) << 20)
#define CLOCK_EARLIEST UINT64_C(1704067200) /* 2024 */

void doctor_add(struct doctor *doctor, enum verdict verdict, const char *what, const char *fix,
                const char *format, ...)
{
    struct finding *finding = &doctor->findings[doctor->findings_count++];
    char raw[sizeof finding->text];
    va_list arguments;

    CHECK(doctor->findings_count <= FINDINGS_MAX);
    finding->verdict = verdict;
    snprintf(finding->what, sizeof(finding->what), "%s", what);
    snprintf(finding->fix, sizeof(finding->fix), "%s", fix);
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    plain_text(raw, finding->text, sizeof finding->text); /* others' words, too */
}

/* --- this machine ----------------------------------------------------------------------------- */

static void check_device(struct doctor *doctor)
{
    static const float ones[4] = {1, 1, 1, 1};
    struct backend *backend = NULL;
    struct fault why = {""};
    char text[200];
    double sum = 0;

    if (command_backend(doctor->options, &backend, &why) != RC_OK) {
        doctor_add(doctor, VERDICT_BROKEN, "device cpu", "choose another --device", "%s", why.text);
        return;
    }
    cpu_backend_describe(text, sizeof(text));
    if (backend->ops->squared_norm(backend, ones, 4, &sum) != RC_OK || sum < 3.999 || sum > 4.001) {
        doctor_add(doctor, VERDICT_BROKEN, "device cpu", "reinstall it", "wrong sums from %s",
                   text);
    } else {
        doctor_add(doctor, VERDICT_FINE, "device cpu", "", "%u cores, %s", cpu_cores(), text);
    }
    backend_destroy(backend);
}

/* GPUs are a gift: a machine without any is healthy. One that is there has to work. */
static void check_gpus(struct doctor *doctor)
{
    const struct device_module *module = NULL;
    struct fault why = {""};
    uint32_t count = 0;
    enum rc rc = device_module_open(NULL, &module, &why);

    if (rc == RC_OK) rc = module->devices(&count, &why);
    if (rc != RC_OK) {
        doctor_add(doctor, VERDICT_FINE, "device cuda", "", "none: %s", why.text);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct cuda_backend_options options = {.devices = {i}, .devices_count = 1};
        struct backend *backend = NULL;
        char what[32], card[160] = "";
        snprintf(what, sizeof(what), "device cuda:%u", i);
        rc = module->describe(i, card, sizeof(card), &why);
        if (rc == RC_OK) rc = module->create(&options, &backend, &why);
        doctor_add(doctor, rc == RC_OK ? VERDICT_FINE : VERDICT_BROKEN, what,
                   rc == RC_OK ? "" : "see what nvidia-smi says, or pass --device cpu", "%s (%s)",
                   rc == RC_OK ? card : why.text, module->libraries);
        backend_destroy(backend);
    }
}

static void check_data(struct doctor *doctor)
{
    const char *spec = options_text(doctor->options, "data");
    struct dataset *dataset = NULL;
    struct fault why = {""};
    char what[96];

    snprintf(what, sizeof(what), "data %.80s", spec);
    const struct dataset_options request = {
        .seed = 1, .tokenizer = options_text(doctor->options, "tokenizer")};
    if (dataset_open(spec, &request, &dataset, &why) != RC_OK) {
        doctor_add(doctor, VERDICT_BROKEN, what, "", "%s", why.text);
        return;
    }
    doctor_add(doctor, VERDICT_FINE, what, "", "%llu training and %llu test samples",
               (unsigned long long)dataset_info(dataset)->train_samples,
               (unsigned long long)dataset_info(dataset)->test_samples);
    dataset_close(dataset);
}

static enum rc parse_key(bool is_swarm_key, const char *text, size_t bytes, struct fault *why)
{
    uint8_t key[SECRET_BYTES];
    struct identity identity;
    enum rc rc;

    if (is_swarm_key) {
        rc = swarm_key_parse(text, bytes, key, why);
        explicit_bzero(key, sizeof(key));
        return rc;
    }
    rc = identity_parse(text, bytes, &identity, why);
    mem_wipe(&identity, sizeof identity);
    return rc;
}

static void check_key(struct doctor *doctor, const char *flag, bool is_swarm_key)
{
    const char *path = options_text(doctor->options, flag);
    struct fault why = {""};
    struct stat status;
    void *text = NULL;
    size_t bytes = 0;
    char what[96];
    enum rc rc;

    if (path == NULL) return;
    snprintf(what, sizeof(what), "%s %.70s", flag, path);
    rc = file_read(path, KEY_FILE_BYTES_MAX, &text, &bytes, &why);
    if (rc == RC_OK) rc = parse_key(is_swarm_key, text, bytes, &why);
    if (rc != RC_OK) {
        doctor_add(doctor, VERDICT_BROKEN, what,
                   is_swarm_key ? "make one with 'grapevine keygen --swarm-key --out FILE'"
                                : "make one with 'grapevine keygen --out FILE'",
                   "%s", why.text);
    } else if (stat(path, &status) != 0 || (status.st_mode & 077) != 0) {
        char fix[200];

        snprintf(fix, sizeof(fix), "chmod 600 %.180s", path);
        doctor_add(doctor, VERDICT_BROKEN, what, fix, "others on this machine can read it");
    } else {
        doctor_add(doctor, VERDICT_FINE, what, "", "well formed, and only you can read it");
    }
    if (text != NULL) explicit_bzero(text, bytes);
    mem_free(text);
}

/* The folder, or the nearest one above it that is there. */
static void nearest_folder(const char *folder, char *path, size_t cap)
{
    char *slash;

    snprintf(path, cap, "%s", folder);
    while (access(path, F_OK) != 0) {
        slash = strrchr(path, '/');
        if (slash == NULL) {
            snprintf(path, cap, ".");
            return;
        }
        slash[slash == path ? 1 : 0] = '\0';
        if (slash == path) return;
    }
}

static void check_folder(struct doctor *doctor)
{
    const char *folder = options_text(doctor->options, "out");
    char path[1024], what[96], words[32];
    struct statvfs disk;
    struct stat status;
    uint64_t room;

    if (folder == NULL) return;
    nearest_folder(folder, path, sizeof path);
    snprintf(what, sizeof what, "out %.80s", folder);
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) {
        doctor_add(doctor, VERDICT_BROKEN, what, "choose another --out", "%s is no folder", path);
    } else if (access(path, W_OK | X_OK) != 0 || statvfs(path, &disk) != 0) {
        doctor_add(doctor, VERDICT_BROKEN, what, "choose another --out, or change who may write it",
                   "nothing can be written to %s: %s", path, strerror(errno));
    } else {
        room = (uint64_t)disk.f_bavail * disk.f_frsize;
        units_format_bytes(room, words, sizeof words);
        doctor_add(doctor, room < ROOM_LEAST ? VERDICT_BROKEN : VERDICT_FINE, what,
                   room < ROOM_LEAST
                       ? "make room, or choose another --out: a checkpoint is written "
                         "beside the last one before it takes its place"
                       : "",
                   "%s free", words);
    }
}

/* Each link is an open file. */
static void check_open_files(struct doctor *doctor)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= FILES_LEAST) return;
    doctor_add(doctor, VERDICT_BROKEN, "open files", "ulimit -n 1024",
               "at most %llu, and each link is one: a swarm may need %d",
               (unsigned long long)limit.rlim_cur, (int)FILES_LEAST);
}

/* Certificates name times of day; nothing else here needs the clock to be right. */
static void check_clock(struct doctor *doctor)
{
    if (uv_wall_s() < CLOCK_EARLIEST) {
        doctor_add(doctor, VERDICT_BROKEN, "clock", "set it (timedatectl set-ntp true)",
                   "the time of day lies in the past; certificates would not be accepted");
        return;
    }
    doctor_add(doctor, VERDICT_FINE, "clock", "", "the time of day makes sense");
}

/* Only --discover needs it. What is sent has to come back to the sender, too. */
static void check_multicast(struct doctor *doctor)
{
    static const char fix[] = "allow UDP to 239.71.86.1:7077, or name peers by HOST:PORT";
    uint8_t probe[16], heard[sizeof probe];
    char host[UV_HOST_BYTES], hosts[UV_HOSTS_MAX][UV_HOST_BYTES];
    struct fault why = {""};
    size_t count;
    int fd = -1;
    const uint64_t end_ns = uv_clock_ns() + DOCTOR_MULTICAST_NS;
    bool is_heard = false;

    memcpy(probe, "gvprobe", 8); /* no beacon */
    memcpy(probe + 8, &end_ns, sizeof end_ns);
    if (uv_multicast_open(&fd, &why) != RC_OK) {
        doctor_add(doctor, VERDICT_NOTE, "multicast", fix, "--discover does not work: %s",
                   why.text);
        return;
    }
    const uint32_t hosts_count = uv_multicast_hosts("0.0.0.0", hosts);
    uint32_t sent = 0;
    for (uint32_t i = 0; i < hosts_count; i++) {
        sent += uv_multicast_send(fd, probe, sizeof probe, hosts[i]);
    }
    while (!is_heard && uv_clock_ns() < end_ns) {
        is_heard = uv_multicast_receive(fd, DOCTOR_TICK_NS, heard, sizeof heard, &count, host) &&
                   count == sizeof probe && memcmp(heard, probe, sizeof probe) == 0;
    }
    uv_multicast_close(fd);
    if (is_heard) {
        doctor_add(doctor, VERDICT_FINE, "multicast", "",
                   "--discover finds peers on this machine, and sends by %u interfaces", sent);
    } else {
        doctor_add(doctor, VERDICT_NOTE, "multicast", fix,
                   "--discover does not work: nothing comes back of what %u interfaces sent", sent);
    }
}

/* --- the report ------------------------------------------------------------------------------- */

static const char *verdict_text(enum verdict verdict)
{
    static const char *const texts[] = {"fine", "note", "broken"};

    return texts[verdict];
}

static void print_json(const struct doctor *doctor, bool is_broken)
{
    struct json *json = json_object_create();
    struct json *findings = json_array_create();

    for (size_t i = 0; i < doctor->findings_count; i++) {
        const struct finding *finding = &doctor->findings[i];
        struct json *entry = json_object_create();

        json_set_text(entry, "what", finding->what);
        json_set_text(entry, "verdict", verdict_text(finding->verdict));
        json_set_text(entry, "text", finding->text);
        json_set_text(entry, "fix", finding->fix[0] == '\0' ? NULL : finding->fix);
        json_append(findings, entry);
    }
    json_set_bool(json, "healthy", !is_broken);
    json_set(json, "findings", findings);
    command_print_json(json);
}

int command_doctor(struct options *options)
{
    struct fault why = {""};
    struct doctor *doctor = mem_alloc(sizeof(*doctor));
    struct bootstrap bootstrap;
    bool is_broken = false;
    enum rc rc = RC_NOMEM;

    /* A look-up cannot be called off, and name servers that are silent cost 10 s and more. */
    (void)setenv("RES_OPTIONS", "timeout:2 attempts:1", 0);
    if (doctor != NULL) {
        doctor->options = options;
        rc = bootstrap_parse(options_text(options, "bootstrap"), &bootstrap, &why);
    }
    if (rc == RC_OK) rc = secure_start();
    if (rc == RC_OK) {
        check_device(doctor);
        check_gpus(doctor);
        check_data(doctor);
        check_key(doctor, "identity", false);
        check_key(doctor, "swarm-key", true);
        check_folder(doctor);
        check_open_files(doctor);
        check_clock(doctor);
        check_multicast(doctor);
        rc = doctor_network(doctor, &bootstrap, &why);
    }
    for (size_t i = 0; rc == RC_OK && i < doctor->findings_count; i++) {
        const struct finding *finding = &doctor->findings[i];

        is_broken = is_broken || finding->verdict == VERDICT_BROKEN;
        if (!options_flag(options, "json")) {
            printf("%-6s  %s: %s%s%s\n", verdict_text(finding->verdict), finding->what,
                   finding->text, finding->fix[0] == '\0' ? "" : "; ", finding->fix);
        }
    }
    if (rc == RC_OK && options_flag(options, "json")) print_json(doctor, is_broken);
    mem_free(doctor);
    if (rc != RC_OK) return command_failed(rc, &why);
    return is_broken ? EXIT_FAILED : EXIT_DONE;
}
