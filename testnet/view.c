/* view: see view.h. */
#include "testnet/view.h"

#include "base/mem.h"
#include "testnet/folder.h"
#include "testnet/table.h"

#include <math.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void view_erase(struct view *view)
{
    if (view->lines_drawn > 0) fprintf(stderr, "\033[%zuA\033[J", view->lines_drawn);
    view->lines_drawn = 0;
}

static struct table_row row_of(uint32_t peer, const struct local_peer *state)
{
    return (struct table_row){
        .peer = peer,
        .state = local_state_name(state),
        .step = state->step,
        .round = state->round,
        .neighbours = state->neighbours,
        .bytes_sent = state->bytes_sent,
        .rss_bytes = state->rss_bytes,
        .loss = state->loss,
        .accuracy = state->accuracy,
        .samples_per_s = state->samples_per_s,
    };
}

static void on_report(void *context, uint32_t peer, const struct local_peer *state)
{
    struct view *view = context;
    const struct table_row row = row_of(peer, state);

    if (view->is_live) return;
    text_clear(&view->text);
    table_add_line(&view->text, &row);
    if (text_is_whole(&view->text)) log_info(&view->log, "%s", view->text.bytes);
}

static void on_note(void *context, bool is_error, const char *line)
{
    struct view *view = context;

    view_erase(view);
    log_line(&view->log, is_error ? LOG_ERROR : LOG_WARN, "%s", line);
}

void view_settle(struct view *view, const struct local_peer *first)
{
    struct fault why = {""};

    if (view->aside == NULL || first->address[0] == '\0') return;
    if (folder_settle(view->aside, &why) != RC_OK) on_note(view, false, why.text);
    view->aside = NULL;
}

/* What runs, for how long, and how long the last of those who train has to go. */
static void add_heading(struct text *text, const char *what, const struct local_peer *peers,
                        uint32_t count, double elapsed_s)
{
    double goal_s = NAN;

    for (uint32_t i = 0; i < count; i++) {
        if (peers[i].state == LOCAL_TRAINING) goal_s = fmax(goal_s, peers[i].goal_s);
    }
    text_add(text, "%s: %.1f s", what, elapsed_s);
    if (!isnan(goal_s)) text_add(text, ", %.0f s left", ceil(fmax(goal_s - elapsed_s, 0)));
    text_add(text, "\n");
}

static void on_tick(void *context, const struct local_peer *peers, uint32_t count, double elapsed_s)
{
    struct view *view = context;
    struct winsize size = {.ws_row = 0};

    view_settle(view, &peers[0]);
    if (!view->is_live) return;
    struct table_row *rows = mem_array(count, sizeof *rows);
    if (rows == NULL) return;
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = row_of(i, &peers[i]);
    }
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) {
        size = (struct winsize){.ws_row = 24, .ws_col = 100};
    }
    text_clear(&view->text);
    add_heading(&view->text, view->what, peers, count, elapsed_s);
    const size_t lines = 1 + table_add(&view->text, rows, count, size.ws_col,
                                       size.ws_row > 2 ? size.ws_row - 2U : 1);
    mem_free(rows);
    view_erase(view);
    if (!text_is_whole(&view->text)) return;
    fputs(view->text.bytes, stderr);
    view->lines_drawn = lines;
}

void view_watch(struct view *view, const char *what, struct local_options *request)
{
    view->what = what;
    view->lines_drawn = 0; /* the last table of an earlier run stays */
    request->context = view;
    request->on_report = on_report;
    request->on_note = on_note;
    request->on_tick = on_tick;
}
