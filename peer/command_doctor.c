/*
 * command_doctor: looks at everything a peer will need and says what is broken, each finding with
 * its fix. Nothing is changed. Reaching a bootstrap address is tested as far as TCP: whether the
 * swarm behind it is ours, only joining can tell.
 */
#include "peer/command.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "gossip/wire/secure.h"
#include "kernels/backend.h"
#include "kernels/device.h"
#include "peer/bootstrap.h"
#include "peer/env/env.h"
#include "replica/dataset.h"
#include "replica/json.h"

#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_FILE_BYTES_MAX = 4096, FINDINGS_MAX = BOOTSTRAP_MAX + 16 };

static const uint64_t dial_limit_ns = UINT64_C(6000000000);
static const uint64_t tick_ns = UINT64_C(20000000);

enum verdict { VERDICT_FINE, VERDICT_BROKEN };

struct finding {
    enum verdict verdict;
    char what[96];
    char text[480]; /* how it is; for trouble, its fix after the semicolon */
};

struct doctor {
    const struct options *options;
    struct finding findings[FINDINGS_MAX];
    size_t findings_count;
    /* reaching out */
    struct env *env;
    struct bootstrap bootstrap;
    uint64_t links[BOOTSTRAP_MAX]; /* LINK_NONE: answered */
    size_t links_open;
    uint64_t started_ns;
};

static void add(struct doctor *doctor, enum verdict verdict, const char *what, const char *format,
                ...) __attribute__((format(printf, 4, 5)));

static void add(struct doctor *doctor, enum verdict verdict, const char *what, const char *format,
                ...)
{
    struct finding *finding = &doctor->findings[doctor->findings_count++];
    va_list arguments;

    CHECK(doctor->findings_count <= FINDINGS_MAX);
    finding->verdict = verdict;
    snprintf(finding->what, sizeof(finding->what), "%s", what);
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof(finding->text), format, arguments);
    va_end(arguments);
}

/* --- this machine ----------------------------------------------------------------------------- */

static void check_device(struct doctor *doctor)
{
    static const float ones[4] = {1, 1, 1, 1};
    struct backend *backend = NULL;
    struct fault why = {""};
    char text[200];
    double sum = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (command_backend(doctor->options, &backend, &why) != RC_OK) {
        add(doctor, VERDICT_BROKEN, "device cpu", "%s", why.text);
        return;
    }
    cpu_backend_describe(text, sizeof(text));
    if (backend->ops->squared_norm(backend, ones, 4, &sum) != RC_OK || sum < 3.999 || sum > 4.001)
        add(doctor, VERDICT_BROKEN, "device cpu", "wrong sums from %s; reinstall it", text);
    else
        add(doctor, VERDICT_FINE, "device cpu", "%ld cores, %s", cores, text);
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
        add(doctor, VERDICT_FINE, "device cuda", "none: %s", why.text);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct cuda_backend_options options = {.devices = {i}, .devices_count = 1};
        struct backend *backend = NULL;
        char what[32], card[160] = "";
        snprintf(what, sizeof(what), "device cuda:%u", i);
        rc = module->describe(i, card, sizeof(card), &why);
        if (rc == RC_OK) rc = module->create(&options, &backend, &why);
        add(doctor, rc == RC_OK ? VERDICT_FINE : VERDICT_BROKEN, what, "%s (%s)",
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
    if (dataset_open(spec, &(struct dataset_options){.seed = 1}, &dataset, &why) != RC_OK) {
        add(doctor, VERDICT_BROKEN, what, "%s", why.text);
        return;
    }
    add(doctor, VERDICT_FINE, what, "%llu training and %llu test samples",
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
    identity_wipe(&identity);
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
        add(doctor, VERDICT_BROKEN, what, "%s; make one with 'grapevine keygen%s --out FILE'",
            why.text, is_swarm_key ? " --swarm-key" : "");
    } else if (stat(path, &status) != 0 || (status.st_mode & 077) != 0) {
        add(doctor, VERDICT_BROKEN, what, "others on this machine can read it; chmod 600 %s", path);
    } else {
        add(doctor, VERDICT_FINE, what, "well formed, and only you can read it");
    }
    if (text != NULL) explicit_bzero(text, bytes);
    mem_free(text);
}

static void check_port(struct doctor *doctor)
{
    const char *address = options_text(doctor->options, "listen");
    bool is_open = options_text(doctor->options, "swarm-key") != NULL;
    char bound[ADDRESS_BYTES_MAX], what[96];
    struct fault why = {""};

    if (address == NULL) address = is_open ? "0.0.0.0:7077" : "127.0.0.1:7077";
    snprintf(what, sizeof(what), "listen %.80s", address);
    if (doctor->env->ops->listen(doctor->env, address, bound, sizeof(bound), &why) != RC_OK)
        add(doctor, VERDICT_BROKEN, what, "%s; stop what uses it or choose another --listen",
            why.text);
    else
        add(doctor, VERDICT_FINE, what, "can be bound");
}

/* --- the way to the swarm --------------------------------------------------------------------- */

static void on_answer(struct doctor *doctor, uint64_t link, const char *trouble)
{
    for (size_t i = 0; i < doctor->bootstrap.count; i++) {
        char what[96];

        if (doctor->links[i] != link) continue;
        doctor->links[i] = LINK_NONE;
        doctor->links_open--;
        snprintf(what, sizeof(what), "bootstrap %s", doctor->bootstrap.addresses[i]);
        if (trouble == NULL)
            add(doctor, VERDICT_FINE, what, "reachable");
        else
            add(doctor, VERDICT_BROKEN, what,
                "not reachable: %s; check the address, the firewall, and that the peer runs",
                trouble);
    }
}

static void on_connected(void *context, uint64_t link)
{
    struct doctor *doctor = context;

    on_answer(doctor, link, NULL);
    doctor->env->ops->hangup(doctor->env, link);
}

static void on_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    (void)rc;
    on_answer(context, link, why);
}

/** Somebody took us for a peer while we held the port. */
static void on_accepted(void *context, uint64_t link, const char *remote)
{
    struct doctor *doctor = context;

    (void)remote;
    doctor->env->ops->hangup(doctor->env, link);
}

static void on_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    (void)context, (void)link, (void)frame, (void)count;
}

static void on_drain(void *context, uint64_t link)
{
    (void)context, (void)link;
}

static void on_wake(void *context)
{
    struct doctor *doctor = context;
    uint64_t now_ns = doctor->env->ops->now_ns(doctor->env);
    uint64_t waited_ns = now_ns - doctor->started_ns;

    if (doctor->links_open > 0 && waited_ns < dial_limit_ns) {
        doctor->env->ops->wake_at(doctor->env, now_ns + tick_ns);
        return;
    }
    for (size_t i = 0; i < doctor->bootstrap.count; i++) {
        if (doctor->links[i] != LINK_NONE) on_answer(doctor, doctor->links[i], "no answer");
    }
    if (waited_ns >= tick_ns / 2)
        add(doctor, VERDICT_FINE, "clock", "timers and the monotonic clock agree");
    else
        add(doctor, VERDICT_BROKEN, "clock",
            "a timer fired early; the monotonic clock of this "
            "machine does not run, check its clock source");
    doctor->env->ops->stop(doctor->env);
}

static void on_signal(void *context, int signal)
{
    struct doctor *doctor = context;

    (void)signal;
    doctor->env->ops->stop(doctor->env);
}

/** Dial everybody at once and wait for the answers. */
static void check_reach(struct doctor *doctor)
{
    struct env *env = doctor->env;

    doctor->started_ns = env->ops->now_ns(env);
    for (size_t i = 0; i < doctor->bootstrap.count; i++) {
        char what[96];

        if (env->ops->dial(env, doctor->bootstrap.addresses[i], &doctor->links[i]) == RC_OK) {
            doctor->links_open++;
            continue;
        }
        doctor->links[i] = LINK_NONE;
        snprintf(what, sizeof(what), "bootstrap %s", doctor->bootstrap.addresses[i]);
        add(doctor, VERDICT_BROKEN, what, "cannot be dialled; write HOST:PORT");
    }
    env->ops->wake_at(env, doctor->started_ns + tick_ns);
    uv_env_run(env);
}

static enum rc check_network(struct doctor *doctor, struct fault *why)
{
    struct uv_env_options options = {.folder = NULL};
    struct env_events events = {.context = doctor,
                                .on_accepted = on_accepted,
                                .on_connected = on_connected,
                                .on_frame = on_frame,
                                .on_drain = on_drain,
                                .on_lost = on_lost,
                                .on_wake = on_wake,
                                .on_signal = on_signal};
    enum rc rc = uv_env_create(&options, &doctor->env, why);

    if (rc != RC_OK) return rc;
    doctor->env->ops->set_events(doctor->env, &events);
    check_port(doctor);
    check_reach(doctor);
    uv_env_destroy(doctor->env);
    return RC_OK;
}

/* --- the report ------------------------------------------------------------------------------- */

static const char *verdict_text(enum verdict verdict)
{
    static const char *const texts[] = {"fine", "broken"};

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
    bool is_broken = false;
    enum rc rc = RC_NOMEM;

    if (doctor != NULL) {
        doctor->options = options;
        rc = bootstrap_parse(options_text(options, "bootstrap"), &doctor->bootstrap, &why);
    }
    if (rc == RC_OK) rc = secure_start();
    if (rc == RC_OK) {
        check_device(doctor);
        check_gpus(doctor);
        check_data(doctor);
        check_key(doctor, "identity", false);
        check_key(doctor, "swarm-key", true);
        rc = check_network(doctor, &why);
    }
    for (size_t i = 0; rc == RC_OK && i < doctor->findings_count; i++) {
        const struct finding *finding = &doctor->findings[i];

        is_broken = is_broken || finding->verdict == VERDICT_BROKEN;
        if (!options_flag(options, "json"))
            printf("%-6s  %s: %s\n", verdict_text(finding->verdict), finding->what, finding->text);
    }
    if (rc == RC_OK && options_flag(options, "json")) print_json(doctor, is_broken);
    mem_free(doctor);
    if (rc != RC_OK) return command_failed(rc, &why);
    return is_broken ? EXIT_FAILED : EXIT_DONE;
}
