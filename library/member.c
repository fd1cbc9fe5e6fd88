/*
 * The calls of include/grapevine.h, and the two threads of a member: the trainer's, which makes
 * them, and the loop's, which runs the peer. The trainer asks the loop by a call, of which there is
 * one at a time; the loop asks the trainer through the learner (library/external.h).
 */
#include "library/member.h"

#include "base/check.h"
#include "base/mem.h"
#include "peer/cli/command.h"
#include "replica/plane/mixture.h"

#include "version.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

_Static_assert((int)EXTERNAL_STEP == GV_STEP && (int)EXTERNAL_WAITS == GV_WAITS &&
                   (int)EXTERNAL_SNAPSHOT == GV_SNAPSHOT &&
                   (int)EXTERNAL_DIFFERENCE == GV_DIFFERENCE &&
                   (int)EXTERNAL_REPLACE == GV_REPLACE && (int)EXTERNAL_ENDED == GV_ENDED &&
                   (int)EXTERNAL_STATE == GV_STATE,
               "events go out as they come in");

static _Thread_local struct fault open_fault; /* of gv_open() */

const char *gv_version(void)
{
    return GRAPEVINE_VERSION;
}

uint32_t gv_abi(void)
{
    return GV_ABI;
}

const char *gv_last_error(const gv_member *member)
{
    return member == NULL ? open_fault.text : member->why.text;
}

int member_error(enum rc rc)
{
    if (rc == RC_NOMEM) return GV_NO_MEMORY;
    return rc == RC_USAGE || rc == RC_PARSE || rc == RC_SHAPE ? GV_USAGE : GV_FAILED;
}

/* ---- the loop's thread ---- */

static void lock(gv_member *member)
{
    CHECK(pthread_mutex_lock(&member->lock) == 0);
}

static void unlock(gv_member *member)
{
    CHECK(pthread_mutex_unlock(&member->lock) == 0);
}

/* With the lock held, in the loop's thread or once it is over. */
static void answer(gv_member *member)
{
    struct session *session = &member->session;
    struct json *status;

    if (member->call == CALL_STATUS) {
        node_report(session->node, &member->report);
    } else if (member->call == CALL_JSON) {
        status = node_status(session->node, SIZE_MAX);
        mem_free(member->json);
        member->json = json_format(status);
        json_destroy(status);
    } else if (member->call == CALL_LEAVE && !member->loop_is_over) {
        node_stop(session->node, SIGTERM);
    } else if (member->call == CALL_STOP && !member->loop_is_over) {
        session->env->ops->stop(session->env);
    } else if (member->call == CALL_STATE && !member->loop_is_over) {
        node_ask_state(session->node);
    }
    member->call = CALL_NONE;
    CHECK(pthread_cond_signal(&member->answered) == 0);
}

static void on_bell(void *context)
{
    gv_member *member = context;
    uint64_t rings;

    if (read(member->bell, &rings, sizeof rings) != (ssize_t)sizeof rings) return;
    lock(member);
    if (member->call != CALL_NONE) answer(member);
    unlock(member);
}

static void *loop_main(void *context)
{
    gv_member *member = context;

    uv_env_run(member->session.env);
    lock(member);
    member->loop_is_over = true;
    member->has_failed = member->session.result.rc != RC_OK;
    if (member->call != CALL_NONE) answer(member);
    unlock(member);
    external_end(member->session.learner);
    return NULL;
}

/* From the trainer's thread: the answer is there on return. */
void member_call(gv_member *member, enum member_call call)
{
    const uint64_t one = 1;

    lock(member);
    member->call = call;
    if (member->loop_is_over) {
        answer(member);
    } else {
        CHECK(write(member->bell, &one, sizeof one) == (ssize_t)sizeof one);
    }
    while (member->call != CALL_NONE) {
        CHECK(pthread_cond_wait(&member->answered, &member->lock) == 0);
    }
    unlock(member);
}

/* Signals are for the program's own threads; those that the loop starts inherit this. */
static enum rc start_loop(gv_member *member)
{
    sigset_t all, before;
    int status;

    CHECK(sigfillset(&all) == 0 && pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    status = pthread_create(&member->loop, NULL, loop_main, member);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    member->has_loop = status == 0;
    return status == 0
               ? RC_OK
               : fault_set(&member->why, RC_IO, "cannot start a thread: %s", strerror(status));
}

/* ---- beginning and end ---- */

static enum rc read_config(const char *config, gv_member *member, struct fault *why)
{
    enum rc rc =
        options_parse_config(COMMAND_PEER, "config", config, strlen(config), &member->options, why);

    return rc == RC_OK ? member_check_options(member->options, why) : rc;
}

int gv_open(const char *config, gv_member **out)
{
    struct fault *why = &open_fault;
    gv_member *member;
    enum rc rc;

    why->text[0] = '\0';
    if (config == NULL || out == NULL) {
        fault_set(why, RC_USAGE, "gv_open: config and member may not be NULL");
        return GV_USAGE;
    }
    *out = NULL;
    member = mem_alloc(sizeof *member);
    if (member == NULL) return member_error(fault_set(why, RC_NOMEM, "out of memory"));
    member->process = getpid();
    member->bell = -1;
    member->session.folder.lock.fd = -1;
    CHECK(pthread_mutex_init(&member->lock, NULL) == 0);
    CHECK(pthread_cond_init(&member->answered, NULL) == 0);
    rc = read_config(config, member, why);
    if (rc != RC_OK) {
        gv_close(member);
        return member_error(rc);
    }
    member->session.options = member->options;
    member->session.trainer = &member_trainer;
    member->session.terminal = command_log(member->options);
    if (member->session.terminal.level == LOG_INFO) member->session.terminal.level = LOG_WARN;
    member->session.log = (struct log){LOG_DEBUG, session_on_line, &member->session};
    member->session.is_within = true;
    *out = member;
    return 0;
}

static enum rc start(gv_member *member, const gv_tensor *tensors, size_t count)
{
    struct session *session = &member->session;
    struct fault *why = &member->why;
    enum rc rc = member_describe(member, tensors, count, why);

    if (rc == RC_OK) rc = session_open(session, member->options, why);
    if (rc != RC_OK) return rc;
    member->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (member->bell < 0) return fault_set(why, RC_IO, "cannot start: too many open files");
    rc = uv_env_watch(session->env, member->bell, on_bell, member);
    if (rc != RC_OK) return fault_set(why, rc, "cannot start: %s", rc_text(rc));
    external_start(session->learner);
    return start_loop(member);
}

int gv_start(gv_member *member, const gv_tensor *tensors, size_t count)
{
    enum rc rc;

    if (member == NULL) return GV_USAGE;
    if (member->process != getpid()) return GV_FORKED;
    if (member->is_started || tensors == NULL || count == 0 || count > UINT16_MAX) {
        fault_set(&member->why, RC_USAGE, "gv_start: %s",
                  member->is_started ? "called a second time"
                                     : "describe between 1 and 65535 tensors");
        return GV_USAGE;
    }
    member->is_started = true;
    member->caller = pthread_self();
    rc = start(member, tensors, count);
    return rc == RC_OK ? 0 : member_error(rc);
}

void gv_close(gv_member *member)
{
    struct session *session;

    /* In a child there are none of its threads, and its connections are the parent's. */
    if (member == NULL || member->process != getpid()) return;
    session = &member->session;
    if (member->has_loop) {
        external_abandon(session->learner);
        member_call(member, CALL_STOP);
        CHECK(pthread_join(member->loop, NULL) == 0);
    }
    if (session->trainer != NULL && member->is_started) {
        const bool is_undone = !member->has_loop || (session->result.rc != RC_OK &&
                                                     session->result.report.own_steps == 0 &&
                                                     peer_folder_is_bare(&session->folder));

        session_close(session);
        peer_folder_close(&session->folder, is_undone);
    }
    if (!member->is_started) tensor_file_destroy(session->given);
    if (member->bell >= 0) (void)close(member->bell);
    CHECK(pthread_mutex_destroy(&member->lock) == 0);
    CHECK(pthread_cond_destroy(&member->answered) == 0);
    schema_deinit(&member->schema);
    options_destroy(member->options);
    mem_free(member->tensors);
    mem_free(member->buffers);
    mem_free(member->json);
    mem_free(member->state);
    mem_free(member);
}

/* ---- between ---- */

int member_refuse(gv_member *member, int error, const char *name, const char *what)
{
    fault_set(&member->why, RC_USAGE, "%s: %s", name, what);
    return error;
}

/* 0, or why `name` may not be called. */
int member_enter(gv_member *member, const char *name)
{
    if (member == NULL) return GV_USAGE;
    if (member->process != getpid()) {
        return member_refuse(
            member, GV_FORKED, name,
            "this process is a child of the one that has the member; open one here, after "
            "fork()");
    }
    if (!member->has_loop)
        return member_refuse(member, GV_USAGE, name, "gv_start() has to succeed first");
    if (!pthread_equal(member->caller, pthread_self())) {
        return member_refuse(member, GV_THREAD, name, "called from another thread than gv_start()");
    }
    return 0;
}

/* What of an event is an error. */
int member_event(gv_member *member, enum external_event event)
{
    if (event != EXTERNAL_ENDED) return (int)event;
    if (!member->has_failed) return GV_ENDED;
    member->why = member->session.result.why;
    return GV_FAILED;
}

int gv_values(const gv_member *member, size_t *parameters, size_t *buffers)
{
    if (member == NULL || !member->is_started) return GV_USAGE;
    if (parameters != NULL) *parameters = member->parameters;
    if (buffers != NULL) *buffers = member->buffers_count;
    return 0;
}

int gv_poll(gv_member *member)
{
    const int error = member_enter(member, "gv_poll");

    return error != 0 ? error : member_event(member, external_next(member->session.learner));
}

int gv_wait(gv_member *member)
{
    const int error = member_enter(member, "gv_wait");
    struct pollfd bell;

    if (error != 0) return error;
    bell = (struct pollfd){.fd = external_bell(member->session.learner), .events = POLLIN};
    for (;;) {
        const int event = member_event(member, external_next(member->session.learner));

        if (event != GV_WAITS) return event;
        if (poll(&bell, 1, -1) >= 0) continue;
        return member_refuse(member, errno == EINTR ? GV_INTERRUPTED : GV_FAILED, "gv_wait",
                             strerror(errno));
    }
}

int gv_step(gv_member *member, uint64_t samples, double loss)
{
    const int error = member_enter(member, "gv_step");

    if (error != 0) return error;
    if (!external_step(member->session.learner, samples, loss)) {
        return member_refuse(member, GV_USAGE, "gv_step",
                             "no step is due; ask gv_wait() what is, until it says GV_STEP");
    }
    return member_event(member, external_next(member->session.learner));
}

/* ---- values ---- */

/* The work that is due, if it is one that `name` does. */
static int enter_work(gv_member *member, const char *name, bool is_snapshot,
                      const struct external_work **work)
{
    const int error = member_enter(member, name);

    if (error != 0) return error;
    *work = external_work(member->session.learner);
    if (*work != NULL && ((*work)->event == EXTERNAL_SNAPSHOT) == is_snapshot) return 0;
    return member_refuse(member, GV_USAGE, name, "it is not due; ask gv_wait() what is");
}

static int done(gv_member *member, enum rc rc)
{
    external_done(member->session.learner, rc);
    return 0;
}

static const char no_memory[] = "a tensor has no memory of the host's; use the form with a plane";

int gv_snapshot(gv_member *member)
{
    const struct external_work *work = NULL;
    const int error = enter_work(member, "gv_snapshot", true, &work);

    if (error != 0) return error;
    if (!values_are_here(member)) return member_refuse(member, GV_USAGE, "gv_snapshot", no_memory);
    return done(member, values_read(member, work->parameters_out, work->buffers_out));
}

int gv_snapshot_from(gv_member *member, const float *plane)
{
    const struct external_work *work = NULL;
    const int error = enter_work(member, "gv_snapshot_from", true, &work);

    if (error != 0) return error;
    if (plane == NULL) return member_refuse(member, GV_USAGE, "gv_snapshot_from", "plane is NULL");
    if (work->parameters_out != NULL) {
        memcpy(work->parameters_out, plane, member->parameters * sizeof *plane);
    }
    if (work->buffers_out != NULL) {
        memcpy(work->buffers_out, plane + member->parameters,
               member->buffers_count * sizeof *plane);
    }
    return done(member, RC_OK);
}

static const struct schema *schema_of(const gv_member *member)
{
    return member->session.learner->ops->schema(member->session.learner);
}

int gv_apply(gv_member *member)
{
    const struct external_work *work = NULL;
    const int error = enter_work(member, "gv_apply", false, &work);
    enum rc rc = RC_OK;

    if (error != 0) return error;
    if (!values_are_here(member)) return member_refuse(member, GV_USAGE, "gv_apply", no_memory);
    if (work->event == EXTERNAL_REPLACE) {
        values_write(member, work->parameters, work->buffers);
    } else {
        rc = values_read(member, NULL, member->buffers);
        if (rc == RC_OK) rc = values_add(member, work->difference);
        if (rc == RC_OK) {
            mixture_apply(schema_of(member), work->difference, member->buffers);
            values_write(member, NULL, member->buffers);
        }
    }
    return done(member, rc);
}

int gv_apply_into(gv_member *member, float *plane)
{
    const struct external_work *work = NULL;
    const int error = enter_work(member, "gv_apply_into", false, &work);
    const float *parameters;

    if (error != 0) return error;
    if (plane == NULL) return member_refuse(member, GV_USAGE, "gv_apply_into", "plane is NULL");
    parameters = work->event == EXTERNAL_REPLACE ? work->parameters : work->difference;
    if (parameters != NULL) memcpy(plane, parameters, member->parameters * sizeof *plane);
    if (work->event == EXTERNAL_DIFFERENCE) {
        mixture_apply(schema_of(member), work->difference, plane + member->parameters);
    } else if (work->buffers != NULL) {
        memcpy(plane + member->parameters, work->buffers, member->buffers_count * sizeof *plane);
    }
    return done(member, RC_OK);
}

/* ---- seeing, and leaving ---- */

int gv_status(gv_member *member, gv_status_view *status)
{
    const int error = member_enter(member, "gv_status");
    const struct node_report *report;
    uint64_t untold_samples;
    uint32_t untold;
    gv_status_view view;

    if (error != 0) return error;
    if (status == NULL || status->size < sizeof(size_t) + sizeof(uint64_t)) {
        return member_refuse(member, GV_USAGE, "gv_status", "size has to be that of the struct");
    }
    member_call(member, CALL_STATUS);
    report = &member->report;
    untold = external_untold(member->session.learner, report->step, &untold_samples);
    view = (gv_status_view){.size = status->size,
                            .step = report->step + untold,
                            .own_steps = report->own_steps + untold,
                            .samples = report->samples + untold_samples,
                            .round = report->round,
                            .rounds_ok = report->rounds_ok,
                            .rounds_aborted = report->rounds_aborted,
                            .bytes_sent = report->bytes_sent,
                            .bytes_received = report->bytes_received,
                            .members = report->neighbours + 1,
                            .consensus_distance = report->consensus_distance};
    snprintf(view.address, sizeof view.address, "%s", node_address(member->session.node));
    snprintf(view.last_abort_reason, sizeof view.last_abort_reason, "%s",
             report->last_abort_reason == NULL ? "" : report->last_abort_reason);
    memcpy(status, &view, status->size < sizeof view ? status->size : sizeof view);
    return 0;
}

int gv_json(gv_member *member, char *text, size_t cap, size_t *needed)
{
    const int error = member_enter(member, "gv_json");
    size_t bytes;

    if (error != 0) return error;
    member_call(member, CALL_JSON);
    if (member->json == NULL)
        return member_refuse(member, GV_NO_MEMORY, "gv_json", "out of memory");
    bytes = strlen(member->json) + 1;
    if (needed != NULL) *needed = bytes;
    if (text == NULL || cap < bytes) {
        return member_refuse(member, GV_TOO_SMALL, "gv_json", "more bytes are needed");
    }
    memcpy(text, member->json, bytes);
    return 0;
}

int gv_leave(gv_member *member)
{
    const int error = member_enter(member, "gv_leave");

    if (error != 0) return error;
    member_call(member, CALL_LEAVE);
    return 0;
}
