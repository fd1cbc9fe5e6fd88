/* exchange_group: the state shared by the files of the group exchange, and no one else. */
#ifndef GRAPEVINE_AVERAGING_GROUP_GROUP_H
#define GRAPEVINE_AVERAGING_GROUP_GROUP_H

#include "averaging/core/deadline.h"
#include "averaging/core/exchange.h"
#include "averaging/core/patience.h"
#include "averaging/core/roster.h"
#include "averaging/group/conduct.h"

enum {
    GROUP_BALLOT_MAX = 1 << 20,
    GROUP_BALLOT_STEP = GROUP_MEMBERS_MAX, /* one proposal is so much above the last at most */
    GROUP_ATTEMPTS_MAX = 4, /* proposals joined in vain before the round is given up */
    GROUP_LEFT_MAX = 4,     /* proposals joined and left that are remembered */
    GROUP_PAST_MAX = 64     /* rounds that a slow member may still think are under way */
};
/* How far one message may move us ahead, so that numbers cannot be used up: more rounds than any
 * swarm runs, and never near the end of the counter. */
#define GROUP_ROUND_LEAP (UINT64_C(1) << 32)

/* What a mere proposal, or the START of others, says of the round number may be a lie. So far ahead
 * such words take us, all of them together, and as much again with time and with rounds that came
 * about with us; beyond it only a START that we are in does, and beyond it in one go not even that
 * again and again. */
#define GROUP_ROUND_NEAR UINT64_C(1024)
enum { GROUP_AHEAD_ROUND = 16, GROUP_AHEAD_SECOND = 4 };

enum group_state {
    GROUP_IDLE,
    GROUP_READY,
    GROUP_FORMING,
    GROUP_JOINED,
    GROUP_SNAPSHOT,
    GROUP_DATA
};

enum chunk_state { CHUNK_NONE, CHUNK_CHECKING, CHUNK_DONE, CHUNK_REDUCING };

enum { GROUP_RATES = 4 };

/* What this peer's network has done lately, see plan.c. */
struct group_rates {
    uint64_t recent[GROUP_RATES]; /* bytes a second, of the last rounds that told; a ring */
    uint32_t count, next;
    uint64_t round; /* of the latest */
};

enum part_state { PART_OPEN, PART_COMMITTED, PART_LOST };

/* What a member says of itself in JOIN: samples since its last round, and bytes a second that it
 * can take in and send out; 0: not known. */
struct statement {
    uint64_t samples, rate;
};

/* One member of START's list: as a contributor to our part, and as the owner of its own. */
struct party {
    struct member_ref ref;
    bool is_linked;
    float weight;       /* of its model in the mean */
    bool is_dropped;    /* nothing more is awaited for our part */
    bool is_unlike;     /* it has no START of this round, or another than we */
    bool is_cut;        /* its link was lost in this round */
    bool is_out;        /* nothing of it is waited for or taken, by our own choice; it has ours */
    uint64_t credit_ns; /* as of our snapshot, and of the latest charge */
    uint32_t awaited;   /* chunks it is to give us, of all parts; direct: those of our own */
    uint32_t granted, received, done; /* of these: allowed, begun to arrive, absorbed */
    uint64_t since_ns, until_ns;      /* when the first and the latest of them were absorbed */
    uint32_t owed;                    /* chunks we are to give it; direct: those of its part */
    uint32_t credit, sent;            /* of these: that it allows, that we sent */
    enum part_state part;
    uint32_t first, count, staged; /* its part; chunks agreed so far */
    uint64_t children;             /* of its part: who gives us theirs, a bit each */
    uint32_t below_at;             /* where these begin in group.below */
    uint32_t parent;               /* of its part: whom we give ours to; its owner: itself */
    uint32_t passed;               /* chunks of its part that the parent was given by us */
    bool has_own;                  /* our own values of its part are absorbed */
    uint64_t rate;                 /* at which it says that our chunks came in */
    bool has_mean;
    struct digest mean; /* the hash in its MEAN */
};

/* What is known of one member of the FORM in force. */
struct invited {
    bool has_joined, has_declined; /* FORMING: its answer */
    bool only_direct;              /* ...says so */
    bool has_aborted;              /* it left before START came */
    bool is_unlike;                /* ...and said that it has no such START */
    struct statement stated;       /* in its JOIN */
    uint32_t credit;               /* it granted before START came */
    uint64_t credit_ns;            /* since when; 0: it did not */
    struct digest start;           /* of the START it then had */
};

/* The highest that was proposed or joined: a later round, or from this ballot on in this one. */
struct promised {
    uint64_t round;
    uint32_t next;
};

/* What all others owe us in a data phase. */
struct stage {
    struct deadline halves; /* how long it took half of them */
    uint64_t usual_ns;      /* by these, in this phase */
    uint64_t half_ns;       /* when half of them were through it; 0: not yet */
};

/* A proposal we joined and turned from: its START may still count on us. */
struct group_left {
    struct member_ref proposer;
    uint64_t round, stream;
    uint32_t ballot;
    bool is_used;
};

/* A round that is over here. */
struct group_past {
    struct member_ref proposer;
    uint64_t round, stream;
    bool is_used;
};

struct group {
    struct exchange base;
    struct exchange_options options;
    struct digest lineage;
    struct exchange_counts counts; /* next_round is what begin() will use */
    uint64_t now_ns;               /* of the latest call */
    struct roster roster;

    enum group_state state;
    uint64_t round, samples;
    struct member_ref order[GROUP_MEMBERS_MAX]; /* of begin() */
    uint32_t order_count, order_self;
    uint64_t ready_ns; /* since when we wait for a proposal */
    uint32_t attempts;

    uint8_t statements[GROUP_MEMBERS_MAX * STATEMENT_BYTES]; /* of our START */
    struct statement stated;                                 /* JOINED: what we said in JOIN */
    struct message_form form; /* FORMING, JOINED: in force; later: the START */
    struct member_ref proposer;
    uint64_t form_ns, wait_until_ns; /* of it: FORMING since, or JOINED since; until */
    uint64_t window_ns;              /* as known at form_ns */
    uint64_t form_half_ns;           /* FORMING: when half of the others had answered; 0: not yet */
    bool is_open; /* FORMING: the window was over and nobody had joined: so late is no answer, but
                     somebody's border */
    struct invited invited[GROUP_MEMBERS_MAX];
    struct promised promised;
    struct promised near;          /* JOINED: as it was before */
    struct promised followed;      /* the highest that others have joined, or we of theirs */
    bool is_far;                   /* what we joined is far ahead */
    uint64_t ahead_left, ahead_ns; /* rounds that words may still take us ahead; as of when */
    struct message_form heard;     /* a FORM that came before we were ready */
    struct member_ref heard_from;
    uint64_t heard_ns;
    bool has_heard;
    struct group_left left[GROUP_LEFT_MAX]; /* a ring */
    uint32_t left_next;
    struct patience patience;
    struct peer_id vain_of; /* READY: whose proposal came to nothing, */
    uint64_t vain_ns;       /* ...since when it has us wait; 0: nobody's */
    bool is_taken_back;
    struct conduct conduct;

    uint64_t stream;     /* JOINED, DATA: of the round's chunks */
    struct digest start; /* DATA: of its START */
    bool has_charged;    /* its proposer, for other STARTs than ours */
    struct party parties[GROUP_MEMBERS_MAX];
    uint32_t parties_count, self;
    struct schedule_plan plan;
    /* Weights of what those who give us theirs have summed up, part by part. In all parts together
     * nobody has more children than in halving, where they are 2^k - 1, and one who is beyond 2^k
     * in each of 2^k parts. */
    float below[GROUP_MEMBERS_MAX];
    bool has_refused;      /* a mean was too far away to be taken over */
    bool has_failed;       /* not direct: a member is missing, so what is open comes to nothing */
    uint64_t dropped;      /* members with is_dropped, a bit each */
    uint64_t *arrived;     /* [chunks] whose sum of it has begun to arrive, a bit a member */
    uint64_t *absorbed;    /* [chunks] of these: is absorbed */
    uint8_t *partials;     /* [chunks] enum chunk_state of the sums that we pass on */
    uint8_t *means;        /* [chunks] enum chunk_state of the agreed values */
    struct digest *hashes; /* [chunks] of the encoded means */
    uint8_t *bitmap;
    uint32_t bitmap_bytes;
    uint64_t snapshot_ns, data_ns, progress_ns; /* begun: snapshot, data; the latest news */
    struct stage given, back;                   /* contributions to our part; the others' parts */
    uint64_t gathered_ns; /* when the latest contribution was in, or given up; 0: none yet */
    struct group_past past[GROUP_PAST_MAX]; /* a ring */
    uint32_t past_next;

    struct deadline arrivals; /* JOIN after FORM */
    uint64_t answer_ns;       /* over the lines of half of those of begin(); 0: not known */

    struct group_rates rates_seen;
    uint64_t direct_until; /* rounds we propose before this one are direct: others have failed */
    uint32_t caution;      /* how many at a time */
};

static inline bool member_ref_is_equal(struct member_ref a, struct member_ref b)
{
    return peer_id_is_equal(a.id, b.id) && boot_id_is_equal(a.boot, b.boot);
}

/* group.c */
/** See exchange.h, is_busy. */
bool group_is_busy(const struct group *group);
/** The only place where the state changes. */
void group_become(struct group *group, enum group_state next);
/** ABORT to `to`: "I take no part in what `proposer` proposed for `round`". */
void group_send_abort(struct peer_id to, struct member_ref proposer, uint64_t round,
                      enum abort_code code, struct commands *out);
/** Is it about the proposal in force? Proposals of one round are told apart by their proposer. */
bool group_abort_fits(const struct group *group, const struct message_abort *abort);
/** The round is over (or never came about: `is_skipped`). Leaves the state IDLE. */
void group_over(struct group *group, enum over_result result, const char *reason, bool is_skipped,
                struct commands *out);
int group_party_find(const struct group *group, struct peer_id id); /* -1: none */

/* form.c: until START */
void group_form_begin(struct group *group, struct commands *out);
MUST_USE enum rc group_on_form(struct group *group, struct member_ref from,
                               const struct message_form *form, struct commands *out);
MUST_USE enum rc group_on_join(struct group *group, struct member_ref from,
                               const struct message_join *join, struct commands *out);
MUST_USE enum rc group_on_start(struct group *group, struct member_ref from,
                                const struct message_form *start, struct commands *out);
/** ABORT that comes before START does. */
MUST_USE enum rc group_form_on_abort(struct group *group, struct member_ref from,
                                     const struct message_abort *abort, struct commands *out);
void group_form_on_link_up(struct group *group, struct member_ref peer, struct commands *out);
void group_form_on_link_lost(struct group *group, struct peer_id peer, struct commands *out);
void group_form_tick(struct group *group, struct commands *out);
uint64_t group_form_next_ns(const struct group *group);
/** Is this member in the list, with its boot? */
bool group_form_has(const struct message_form *form, struct member_ref member);
/** What was heard and not joined yet will not be: its proposer hears so. */
void group_form_decline(struct group *group, struct commands *out);
void group_form_cancel(struct group *group, struct commands *out);

/* start.c: who has which START */
/** The name of the chunks of what `proposer` proposed for `round`. */
uint64_t group_stream(struct member_ref proposer, uint64_t round);
/** What START says that this member said. */
struct statement group_statement(const struct message_form *start, uint32_t index);
/** Of all that START settles: members with equal ones compute the same round. */
struct digest group_start_digest(const struct message_form *start);
/** May the START of what we joined be taken up? It is FORM's list, thinned out, and says of us what
 *  we said in JOIN. RC_FORMAT: it is a lie; RC_MISMATCH: a schedule that we take no part in. */
MUST_USE enum rc group_start_check(struct group *group, const struct message_form *start,
                                   struct commands *out);
/** All in it hear at once that it goes on without us: as we turned from it, or, if `is_unlike`, as
 *  it may not be what they were told. */
void group_start_refuse(const struct group *group, struct member_ref from,
                        const struct message_form *start, bool is_unlike, struct commands *out);
/** CREDIT and CANCEL of what we joined, before START comes. */
MUST_USE enum rc group_form_on_credit(struct group *group, struct member_ref from,
                                      const struct message_credit *credit);
MUST_USE enum rc group_form_on_cancel(struct group *group, struct member_ref from,
                                      const struct message_cancel *cancel);
/** JOINED: whoever has START hears that we have none, a moment after it has shown that. */
void group_start_say_missing(struct group *group, struct commands *out);
/** When that is due next. */
uint64_t group_start_next_ns(const struct group *group);
/** CREDIT of a round that we are not in: nothing will come of it. */
void group_refuse_credit(const struct group *group, struct member_ref from,
                         const struct message_credit *credit, struct commands *out);
/** CANCEL: "I have no such START, or not yours". */
void group_send_cancel(struct peer_id to, uint64_t stream, struct commands *out);
/** START is there: what was heard of its members before it. */
void group_start_heard(struct group *group, struct commands *out);
/** A member and we do not have the same START: the two of us end it unscored. */
void group_part_ways(struct group *group, uint32_t index, struct commands *out);
MUST_USE enum rc group_on_cancel(struct group *group, struct member_ref from,
                                 const struct message_cancel *cancel, struct commands *out);

/* data.c: from START on */
/** The party `from` is in the running round, or -1. */
int group_party_of(const struct group *group, struct member_ref from);
void group_data_begin(struct group *group, const struct message_form *start, struct commands *out);
/** Allow everyone more, where it is worth a message and there is credit. DATA. */
void group_grant_all(struct group *group, struct commands *out);
void group_allowed(const struct exchange *exchange, uint32_t *chunks, uint32_t *streams);
MUST_USE enum rc group_on_credit(struct group *group, struct member_ref from,
                                 const struct message_credit *credit, struct commands *out);
MUST_USE enum rc group_on_mean(struct group *group, struct member_ref from,
                               const struct message_mean *mean, struct commands *out);
MUST_USE enum rc group_on_abort(struct group *group, struct member_ref from,
                                const struct message_abort *abort, struct commands *out);
MUST_USE enum rc group_on_chunk(struct group *group, const struct chunk_ref *chunk,
                                struct chunk_use *use);
void group_on_chunk_checked(struct group *group, const struct chunk_ref *chunk, enum rc rc,
                            struct digest hash, struct commands *out);
void group_on_job_done(struct group *group, enum exchange_job job, uint32_t first, enum rc rc,
                       struct digest hash, struct commands *out);
void group_data_on_link_lost(struct group *group, struct peer_id peer, struct commands *out);
void group_data_cancel(struct group *group, enum abort_code code, struct commands *out);
/** Reduce what is complete, end what has ended. */
void group_data_advance(struct group *group, struct commands *out);
/** All who are to give us this chunk of `part` have, or are awaited no more; and we have added
 * ours. */
bool group_is_complete(const struct group *group, uint32_t part, uint32_t chunk);
struct command *group_send_range(struct group *group, struct peer_id to, enum data_kind kind,
                                 uint32_t first, uint32_t count, struct commands *out);

/* relay.c: where the sums of several members are passed on */
/** This round is such a one: not direct. What follows does nothing, or says no, in others. */
bool group_relays(const struct group *group);
/** We pass on sums, and the mean, of this part, which is another's. */
bool group_relay_passes(const struct group *group, uint32_t part);
/** More of this chunk, in a part of another, has come in: sum it up if that was all. */
void group_relay_sum(struct group *group, uint32_t part, uint32_t chunk, struct commands *out);
/** It is summed up, if it was to be: false, if not. */
bool group_relay_summed(struct group *group, uint32_t chunk, struct commands *out);
/** Sums, and our own values, to `index`, as its credit allows. */
void group_relay_offers(struct group *group, uint32_t index, struct commands *out);
/** The mean of a chunk comes before we have given our sum of it. */
bool group_relay_is_early(const struct group *group, const struct party *part, uint32_t chunk);
/** A member is lost: what is open comes to nothing, for all. */
void group_relay_fail(struct group *group);
bool group_relay_has_mixed(const struct group *group);

/* lost.c: who is lost to a running round */
/** Nothing more is awaited of this member: neither its contribution nor its part. Not direct: the
 *  same for all, what is open comes to nothing. */
void group_party_lose(struct group *group, uint32_t index);
/** The mean of its part came, and is too far away to be taken over. */
void group_part_refuse(struct group *group, uint32_t index);
/** ...as it left, says something else of the round than we, or is out of reach: once may be. */
void group_party_left(struct group *group, uint32_t index, struct commands *out);
/** No contribution of this member is awaited any more. */
void group_party_drop(struct group *group, uint32_t index);
/** The round has mixed nothing. */
void group_came_to_nothing(struct group *group, struct commands *out);

/* turn.c: which of several proposals of one round */
/** Is this FORM one that may still be joined, after those proposed or joined so far? */
bool group_is_above_promise(const struct group *group, const struct message_form *form);
/** FORMING: theirs goes on, and nothing is lost with ours. */
bool group_gives_way(const struct group *group, struct member_ref from,
                     const struct message_form *form);
/** What we joined, or propose, has its window, and this one waits for it. Who proposes anew has
 *  left its own; and nobody is kept from a later round by what nobody has joined. */
bool group_has_window(const struct group *group, struct member_ref from,
                      const struct message_form *form);
bool group_is_leaping_ballot(const struct group *group, const struct message_form *form);
/** Of our next proposal; may be above GROUP_BALLOT_MAX. */
uint32_t group_next_ballot(const struct group *group);
/** A proposal was joined, of ours or by us: more can be above it. */
void group_follow(struct group *group, const struct message_form *form);
/** It may be joined later. */
void group_remember(struct group *group, struct member_ref from, const struct message_form *form);
/** JOINED: when what was heard of this round meanwhile is turned to. */
uint64_t group_turn_ns(const struct group *group);
/** FORMING: how many have joined ours. */
uint32_t group_joined_count(const struct group *group);

/* ahead.c: how far words may take us */
/** A later round number was heard of, and is believed. */
void group_set_next(struct group *group, uint64_t round);
/** Words may take us so many more rounds ahead; or as many as time has earned since. */
void group_ahead_earn(struct group *group, uint64_t rounds);
void group_ahead_refill(struct group *group);
/** Farther than words alone may take us. */
bool group_is_far(const struct group *group, uint64_t round);
/** Even a START of such a round is taken up only now and then. */
bool group_is_leap(const struct group *group, uint64_t round);
/** A later round was heard of, from one of whom we need not believe everything. */
void group_hear_round(struct group *group, uint64_t round);

/* form_wait.c: how long the forming of a group waits */
/** How long this one may have us wait; it may have used that up. */
uint64_t group_credit_ns(const struct group *group, struct peer_id id);
/** Its credit was used up: it is not waited for just now. */
bool group_rests(const struct group *group, struct peer_id id);
/** There are no rounds with it just now. */
bool group_leaves_out(const struct group *group, struct peer_id id);
/** It had us wait until now, and for nothing since `free_ns`; it is charged that so many times. */
void group_charge(struct group *group, struct peer_id id, bool has_come, uint32_t times,
                  uint64_t free_ns);
/** At begin(): how long answers take over the lines of those who are there. */
void group_lines_learn(struct group *group);
/** How long answers to our FORM take. */
uint64_t group_window_ns(const struct group *group);
/** FORMING: sets until when those who have not answered are waited for. */
void group_forming_wait(struct group *group);
/** Our window is over and nobody has joined: leave the proposal open? Then for how long is set. */
bool group_leave_open(struct group *group);
/** Somebody joins it: if it is the first, the others have one more window. */
void group_open_joined(struct group *group);
/** Nobody waits for this round yet: it may be begun, or given up, without a loss. */
bool group_lingers(const struct group *group);
/** FORMING: a member answers, says no, or is gone; or all who have not answered are given up. They
 *  are charged for what we waited. */
void group_charge_answer(struct group *group, uint32_t index);
void group_charge_missing(struct group *group);
/** JOINED: what we joined does not begin with us; its proposer is charged when another does. */
void group_came_back(struct group *group, bool is_taken_back);
/** `proposer` proposes; those that had us wait until now are charged. */
void group_charge_turn(struct group *group, struct peer_id proposer);
/** JOINED: how long to wait for the START of `group->proposer`, whatever its FORM says. */
uint64_t group_join_wait_ns(const struct group *group, const struct message_form *form);
/** JOINED: who is not in START is charged, if we waited for it. */
void group_charge_absent(struct group *group, const struct message_form *start);
/** A FORM was heard before we were ready, and is likely to be open still. */
bool group_hears_open(const struct group *group);
/** Until when what another has proposed can be joined; 0: there is nothing, or not now. */
uint64_t group_invited_until_ns(const struct group *group);

/* data_wait.c: how long the data phase waits for whom */
/** Our snapshot is there. */
void group_wait_begin(struct group *group);
/** Some of this member's contribution to our part is still to come. */
bool group_is_awaited(const struct group *group, uint32_t index);
/** How much later a member may be that has a slow line, where others have a usual one. */
uint64_t group_slow_ns(const struct group *group, uint64_t took_ns);
/** A member's contribution to our part is complete, or awaited no more. */
void group_wait_first_over(struct group *group, uint32_t index);
/** The part that is its is complete, or about to be lost. */
void group_wait_second_over(struct group *group, uint32_t index);
/** A mean comes back, of these members, a bit each. */
void group_wait_returned(struct group *group, uint64_t contributors);
void group_data_tick(struct group *group, struct commands *out);
uint64_t group_data_next_ns(const struct group *group);

/* plan.c: by which schedule, and with which parts */
/** For our START, whose members' statements are there: the schedule. */
void group_plan_choose(struct group *group, struct message_form *start);
/** May a START say this? RC_FORMAT: nobody may; RC_MISMATCH: a schedule that we take no part in. */
MUST_USE enum rc group_plan_check(const struct group *group, const struct message_form *start);
/** From START: who gives whom what. */
void group_plan_begin(struct group *group, const struct message_form *start);
/** The weight of all whose values are in what `child` gives us of `part`: its own, in direct
 * rounds. */
float group_weight_below(const struct group *group, uint32_t part, uint32_t child);
/** Bytes a second that we can take in and send out; 0: not known. */
uint64_t group_rate(const struct group *group);
/** For MEAN: at which rate the chunks of this member came in; 0: too few to tell. */
uint64_t group_rate_of(const struct group *group, uint32_t index);
/** The round is over, and was direct (or not): learn from it. */
void group_plan_learn(struct group *group, bool has_committed);

#endif
