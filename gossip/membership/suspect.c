/*
 * Suspicion: who does not answer, who says so, and when that is enough. After Lifeguard (Dadgar,
 * Phillips, Currey 2018, arXiv:1707.00788, section IV): a suspect has from 6 to 24 probe periods
 * times log10 of the swarm's size to answer, the less the more members accuse it independently,
 * the more the less this peer is to be trusted itself.
 *
 * Here an accusation is a signed statement about one incarnation of its subject. Nobody is given up
 * on words alone: either this peer's own probes failed, directly and through others, or three
 * members (of a small swarm a third, and never fewer than two) accuse the same life and it has not
 * signed a newer record in all that time. Whoever has an open link that speaks passes an accusation
 * to nobody but its subject, which then rises above it. A link that the other side ended, a dial
 * that failed and a third that says the same count as all the witnesses there are. Loop thread.
 */
#include "gossip/membership/internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/times.h"

#include <math.h>

enum { SUSPECT_PERIODS = 6, SUSPECT_PERIODS_MAX = 24, SHOWN_MAX = 2 };

/* How many distinct accusers are enough. */
static uint32_t witnesses(const struct membership *m)
{
    uint32_t third = (m->book.counted + 1) / 3;

    return third < WITNESSES_MAX ? third : WITNESSES_MAX;
}

static uint32_t witnesses_of(const struct member *member)
{
    return member->words == NULL ? 0 : member->words->others_count;
}

static uint64_t patience(const struct membership *m)
{
    return 1 + m->health;
}

static uint64_t suspect_dead_ns(const struct membership *m, const struct member *member)
{
    double size = log10((double)m->book.counted + 1), least, most;
    uint32_t needed = witnesses(m), have = witnesses_of(member);

    if (member->was_reset && member->failures > 0 && (member->denied > 0 || member->asked == 0)) {
        return member->since_ns + SUSPECT_MIN_NS * patience(m);
    }
    least = SUSPECT_PERIODS * (size > 1 ? size : 1) * (double)(m->period_ns * patience(m));
    if (needed == 0) return member->since_ns + (uint64_t)least;
    most = least * SUSPECT_PERIODS_MAX / SUSPECT_PERIODS;
    if (have > needed) have = needed;
    return member->since_ns +
           (uint64_t)(most - (most - least) * log(have + 1.0) / log(needed + 1.0));
}

void suspect(struct membership *m, struct member *member, bool is_direct, bool was_reset,
             uint64_t now_ns)
{
    bool is_new = member->state != MEMBER_SUSPECT;

    if (is_new) membership_become(m, member, MEMBER_SUSPECT, now_ns);
    if (is_new || (is_direct && !member->is_direct)) {
        member->is_direct = is_direct;
        member->was_reset = was_reset;
        member->asked = member->denied = 0;
        member->inquire_ns = now_ns;
    }
    membership_wake(m, now_ns + 1); /* not this tick: it may be over */
}

void suspect_vouched(struct membership *m, struct member *member, uint64_t now_ns)
{
    if (member->state != MEMBER_SUSPECT || member->contact != NULL) return;
    if (witnesses(m) > 0 && witnesses_of(member) >= witnesses(m))
        return; /* it must say so itself */
    membership_become(m, member, MEMBER_KNOWN, now_ns);
    dialler_retry(m, member, now_ns);
}

/* --- words ----------------------------------------------------------------------------------- */

void words_free(struct membership *m, struct member *member)
{
    m->words_count -= member->words != NULL;
    mem_free(member->words);
    member->words = NULL;
}

void words_clear(struct membership *m, struct member *member)
{
    if (member->words == NULL) return;
    member->words->transmits_left = 0;
    pending_settle(m, member);
    words_free(m, member);
}

void words_send(struct membership *m, struct peer_id to, const struct member *member,
                struct outbox *out)
{
    struct message message = {.type = MESSAGE_ACCUSE};
    uint8_t bytes[(WITNESSES_MAX + 1) * ACCUSATION_BYTES];
    uint32_t count = member->words->others_count;

    (void)m;
    memcpy(bytes, member->words->others, (size_t)count * ACCUSATION_BYTES);
    if (member->words->has_own) {
        memcpy(bytes + count++ * ACCUSATION_BYTES, member->words->own, ACCUSATION_BYTES);
    }
    if (count == 0) return;
    message.as.accuse.accusations = bytes;
    message.as.accuse.accusations_bytes = count * ACCUSATION_BYTES;
    outbox_add(out, to, &message);
}

static struct words *words_of(struct membership *m, struct member *member)
{
    if (member->words == NULL) {
        member->words = mem_alloc(sizeof(*member->words));
        m->words_count += member->words != NULL;
    }
    return member->words;
}

/* When we are due to say what our own probes found; UINT64_MAX: not. */
static uint64_t accuse_ns(const struct membership *m, const struct member *member)
{
    uint64_t at_ns = member->since_ns + m->period_ns * patience(m);

    if (!member->is_direct || member->record == NULL || m->linked_count == 0) return UINT64_MAX;
    if (member->words != NULL && member->words->has_own) return UINT64_MAX;
    if (member->accused_ns > 0 && at_ns < member->accused_ns + MEMBER_DAMPED_NS) {
        at_ns = member->accused_ns + MEMBER_DAMPED_NS;
    }
    return at_ns;
}

static void accuse(struct membership *m, struct member *member, uint64_t now_ns)
{
    struct accusation accusation = {.accuser = m->self_id,
                                    .subject = member->id,
                                    .boot = member_brief(member)->boot,
                                    .accuser_incarnation = m->options.incarnation,
                                    .incarnation = member_brief(member)->incarnation};
    struct words *words = words_of(m, member);

    member->accused_ns = now_ns;
    if (words == NULL) return;
    accusation_sign(&accusation, m->options.identity, m->options.run_id, words->own);
    words->has_own = true;
    m->counts.accused++;
    pending_add_words(m, member);
    membership_on_news(m, now_ns);
}

/* --- what others say ------------------------------------------------------------------------- */

/* The word of one member against another, both known, about the life we know. */
static bool is_relevant(const struct membership *m, const struct accusation *accusation,
                        const struct member *subject, const struct member *accuser)
{
    if (accuser == NULL || accuser->record == NULL || accuser == subject) return false;
    if (accuser->state == MEMBER_DEAD || accuser->state == MEMBER_LEFT) return false;
    if (accuser->is_hearsay && !m->view.is_partial) return false; /* where everyone has met all */
    if (accusation->incarnation != member_brief(subject)->incarnation) return false;
    return boot_id_is_equal(accusation->boot, member_brief(subject)->boot);
}

static bool has_spoken(const struct words *words, struct peer_id accuser)
{
    for (uint32_t i = 0; i < words->others_count; i++) {
        if (memcmp(words->others[i], accuser.bytes, PEER_ID_BYTES) == 0) return true;
    }
    return false;
}

/* An accusation on its way in. */
struct word {
    struct member *from; /* whose link brought it */
    const struct member *accuser;
    const uint8_t *bytes;
};

/* Did the accuser sign it? RC_NOT_FOUND: it cannot be told, or `from` has had its share of such
 * questions; then others will tell us. */
static enum rc word_verify(struct membership *m, const struct word *word, uint64_t now_ns)
{
    const struct member *accuser = word->accuser;
    struct member_record record;

    if (!membership_may_check(word->from, now_ns)) return RC_NOT_FOUND;
    if (record_peek(accuser->record->bytes, accuser->record->count, &record) != RC_OK)
        return RC_NOT_FOUND;
    return verified_accusation(m->options.verified, word->bytes, m->options.run_id,
                               record.public_key);
}

/* We know better: the subject speaks to us. It is told, and nobody else; not what is forged, or it
 * would think that of us. */
static enum rc tell_subject(struct membership *m, struct member *subject, const struct word *word,
                            uint64_t now_ns, struct outbox *out)
{
    struct message message = {.type = MESSAGE_ACCUSE};
    uint64_t told_ns = subject->contact->told_ns;
    enum rc rc;

    if (told_ns > 0 && now_ns < told_ns + SUSPECT_TOLD_NS) return RC_OK;
    rc = word_verify(m, word, now_ns);
    if (rc == RC_NOT_FOUND) return RC_OK;
    if (rc != RC_OK) return rc;
    subject->contact->told_ns = now_ns;
    message.as.accuse.accusations = word->bytes;
    message.as.accuse.accusations_bytes = ACCUSATION_BYTES;
    outbox_add(out, subject->id, &message);
    return RC_OK;
}

static enum rc believe(struct membership *m, struct member *subject, const struct word *word,
                       uint64_t now_ns)
{
    struct words *words;
    enum rc rc;

    if (subject->words != NULL && (subject->words->others_count == WITNESSES_MAX ||
                                   has_spoken(subject->words, word->accuser->id))) {
        return RC_OK;
    }
    rc = word_verify(m, word, now_ns);
    if (rc == RC_NOT_FOUND) return RC_OK;
    if (rc != RC_OK) return rc;
    words = words_of(m, subject);
    if (words == NULL) return RC_OK;
    memcpy(words->others[words->others_count++], word->bytes, ACCUSATION_BYTES);
    suspect(m, subject, false, false, now_ns);
    pending_add_words(m, subject);
    membership_on_news(m, now_ns);
    return RC_OK;
}

/* We are accused ourselves. A reason to doubt our own health is only what made us rise, so no more
 * than once a life of our record, and not one member's word over and over. */
static enum rc on_word_of_us(struct membership *m, const struct accusation *accusation,
                             const struct word *word, uint64_t now_ns)
{
    const struct member *accuser = word->accuser;
    enum rc rc;

    if (!boot_id_is_equal(accusation->boot, m->options.boot)) return RC_OK;
    if (accusation->incarnation != m->options.incarnation) return RC_OK;
    if (m->refute_at_ns != UINT64_MAX) return RC_OK;              /* we rise above this one soon */
    if (accuser == NULL || accuser->record == NULL) return RC_OK; /* nor does anybody believe it */
    rc = word_verify(m, word, now_ns);
    if (rc == RC_NOT_FOUND) return RC_OK;
    if (rc != RC_OK) return rc;
    if (!membership_refute(m, accusation->incarnation, now_ns)) return RC_OK;
    if (m->doubted_ns > 0 && now_ns < m->doubted_ns + SELF_DOUBT_NS &&
        peer_id_is_equal(m->doubted_by, accuser->id)) {
        return RC_OK;
    }
    m->doubted_by = accuser->id;
    m->doubted_ns = now_ns;
    health_worse(m, now_ns);
    return RC_OK;
}

static enum rc on_word(struct membership *m, struct member *from, const uint8_t *bytes,
                       uint32_t *shown, uint64_t now_ns, struct outbox *out)
{
    struct word word = {.from = from, .bytes = bytes};
    struct accusation accusation;
    struct member *subject;

    accusation_read(bytes, &accusation);
    word.accuser = book_find(&m->book, accusation.accuser);
    if (peer_id_is_equal(accusation.subject, m->self_id)) {
        return on_word_of_us(m, &accusation, &word, now_ns);
    }
    subject = book_find(&m->book, accusation.subject);
    if (subject == NULL || subject->record == NULL) return RC_OK;
    if (accusation.incarnation < member_brief(subject)->incarnation &&
        subject->state != MEMBER_DEAD) {
        if ((*shown)++ < SHOWN_MAX) membership_send_record(m, from->id, subject, out);
        return RC_OK;
    }
    if (!is_relevant(m, &accusation, subject, word.accuser)) return RC_OK;
    if (subject->state == MEMBER_ALIVE) {
        return tell_subject(m, subject, &word, now_ns, out);
    }
    if (subject->state == MEMBER_DEAD || subject->state == MEMBER_LEFT) return RC_OK;
    if (subject->state == MEMBER_KNOWN &&
        ((subject->heard_ns > 0 && now_ns < subject->heard_ns + SUSPECT_PERIODS * m->period_ns) ||
         (subject->refuted_ns > 0 && now_ns < subject->refuted_ns + MEMBER_DAMPED_NS))) {
        return RC_OK;
    }
    return believe(m, subject, &word, now_ns);
}

enum rc suspect_on_words(struct membership *m, struct member *from,
                         const struct message_accuse *accuse, uint64_t now_ns, struct outbox *out)
{
    uint32_t shown = 0;

    for (uint32_t at = 0; at + ACCUSATION_BYTES <= accuse->accusations_bytes;
         at += ACCUSATION_BYTES) {
        enum rc rc = on_word(m, from, accuse->accusations + at, &shown, now_ns, out);

        if (rc != RC_OK) return rc;
    }
    return RC_OK;
}

/* --- time ------------------------------------------------------------------------------------ */

/* Its time is up. */
static void judge(struct membership *m, struct member *member, uint64_t now_ns)
{
    uint32_t needed = witnesses(m) > 2 ? witnesses(m) : 2;

    if (member->is_direct || witnesses_of(member) >= needed) {
        membership_become(m, member, MEMBER_DEAD, now_ns);
        member->refuted_ns = now_ns;
    } else { /* hardly anybody agrees */
        membership_become(m, member, MEMBER_KNOWN, now_ns);
        member->refuted_ns = now_ns;
        dialler_retry(m, member, now_ns);
    }
}

void suspect_tick(struct membership *m, struct member *member, uint64_t now_ns, struct outbox *out)
{
    if (member->contact != NULL) return; /* about to be hung up */
    if (member->is_direct && now_ns >= member->inquire_ns) {
        member->inquire_ns = now_ns + m->period_ns;
        inquiry_begin(m, member, now_ns, out);
    }
    if (now_ns >= accuse_ns(m, member)) accuse(m, member, now_ns);
    if (now_ns >= suspect_dead_ns(m, member)) judge(m, member, now_ns);
}

uint64_t suspect_next(const struct membership *m, const struct member *member)
{
    uint64_t at_ns = suspect_dead_ns(m, member), say_ns = accuse_ns(m, member);

    if (member->contact != NULL) return UINT64_MAX;
    if (member->is_direct && member->inquire_ns < at_ns) at_ns = member->inquire_ns;
    return say_ns < at_ns ? say_ns : at_ns;
}
