/* Growing text files: one job a line, in order. Loop thread; the writing is in the store lane. */
#include "peer/files/journal.h"

#include "base/check.h"
#include "base/mem.h"

#include <string.h>
#include <sys/queue.h>

enum { JOURNAL_PENDING_MAX = 1024 }; /* on a stuck disk further lines are dropped */

struct entry {
    struct job job;
    TAILQ_ENTRY(entry) siblings;
    struct journal *journal;
    const char *name;
    char *text;
    bool is_replacing;
    size_t bytes_max;
    enum rc rc;
    struct fault why;
};

struct journal {
    struct env *env;
    TAILQ_HEAD(, entry) entries;
    uint32_t pending;
    enum rc failed, told; /* since the last look; as it was last told */
    bool has_written;     /* since the last look */
    struct fault why;
    void (*on_idle)(void *context); /* NULL: nobody waits */
    void *context;
};

struct journal *journal_create(struct env *env)
{
    struct journal *journal = mem_alloc(sizeof *journal);

    if (journal == NULL) return NULL;
    journal->env = env;
    TAILQ_INIT(&journal->entries);
    return journal;
}

static void entry_free(struct journal *journal, struct entry *entry)
{
    TAILQ_REMOVE(&journal->entries, entry, siblings);
    journal->pending--;
    mem_free(entry->text);
    mem_free(entry);
}

void journal_destroy(struct journal *journal)
{
    struct entry *entry;

    if (journal == NULL) return;
    while ((entry = TAILQ_FIRST(&journal->entries)) != NULL) {
        entry_free(journal, entry);
    }
    mem_free(journal);
}

static void run_entry(struct job *job)
{
    struct entry *entry = (struct entry *)job;
    struct env *env = entry->journal->env;
    struct piece piece = {entry->text, strlen(entry->text)};

    if (entry->is_replacing) {
        entry->rc = env->ops->store_put(env, entry->name, &piece, 1, &entry->why);
    } else {
        entry->rc = env->ops->store_append(env, entry->name, piece.bytes, piece.count,
                                           entry->bytes_max, &entry->why);
    }
}

static void entry_done(struct job *job)
{
    struct entry *entry = (struct entry *)job;
    struct journal *journal = entry->journal;

    if (entry->rc == RC_OK) {
        journal->has_written = true;
    } else {
        journal->failed = entry->rc;
        journal->why = entry->why;
    }
    entry_free(journal, entry);
    if (journal->pending == 0 && journal->on_idle != NULL) {
        void (*on_idle)(void *context) = journal->on_idle;

        journal->on_idle = NULL;
        on_idle(journal->context);
    }
}

void journal_when_idle(struct journal *journal, void (*on_idle)(void *context), void *context)
{
    if (journal->pending == 0) {
        on_idle(context);
        return;
    }
    journal->on_idle = on_idle;
    journal->context = context;
}

static void submit(struct journal *journal, const char *name, const char *text, bool is_replacing,
                   size_t bytes_max)
{
    size_t count = strlen(text);
    struct entry *entry;

    if (journal->pending >= JOURNAL_PENDING_MAX) return;
    entry = mem_alloc(sizeof *entry);
    if (entry == NULL) return;
    entry->text = mem_alloc(count + 2);
    if (entry->text == NULL) {
        mem_free(entry);
        return;
    }
    memcpy(entry->text, text, count);
    entry->text[count] = '\n';
    entry->journal = journal;
    entry->name = name;
    entry->is_replacing = is_replacing;
    entry->bytes_max = bytes_max;
    entry->job.name = is_replacing ? "replace" : "append";
    entry->job.run = run_entry;
    entry->job.done = entry_done;
    entry->job.cost_ns = 1000;
    TAILQ_INSERT_TAIL(&journal->entries, entry, siblings);
    journal->pending++;
    journal->env->ops->submit(journal->env, LANE_STORE, &entry->job);
}

void journal_add(struct journal *journal, const char *name, const char *line, size_t bytes_max)
{
    submit(journal, name, line, false, bytes_max);
}

void journal_replace(struct journal *journal, const char *name, const char *text)
{
    submit(journal, name, text, true, 0);
}

enum journal_news journal_news(struct journal *journal, struct fault *why)
{
    enum rc failed = journal->failed, told = journal->told;
    bool is_over = failed == RC_OK && told != RC_OK && journal->has_written;

    journal->failed = RC_OK;
    journal->has_written = false;
    if (is_over) journal->told = RC_OK;
    if (is_over) return JOURNAL_WORKS;
    if (failed == RC_OK || failed == told) return JOURNAL_NOTHING;
    journal->told = failed;
    *why = journal->why;
    return JOURNAL_FAILS;
}
