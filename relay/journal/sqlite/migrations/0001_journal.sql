-- Times are milliseconds since the epoch. Ids are never used twice: a late writer must not meet another's row.

-- Where a submission stands. The columns up to admitted_ms are facts; tries counts the turns that sent it since it was last queued with a fresh budget, attempts and open_attempts the sends;
-- the others are the decision, and change only with version.
CREATE TABLE submission (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    chain_id INTEGER NOT NULL,
    sender BLOB NOT NULL,
    nonce INTEGER NOT NULL,
    hash BLOB NOT NULL,
    method TEXT NOT NULL,
    mode TEXT NOT NULL,
    admitted_ms INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN (
        'queued', 'sealed', 'sent', 'pending', 'mined', 'completed', 'failed', 'superseded', 'cancelled', 'dead_letter'
    )),
    reason TEXT,
    detail TEXT NOT NULL,
    other_hash BLOB,
    version INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    open_attempts INTEGER NOT NULL DEFAULT 0 CHECK (open_attempts BETWEEN 0 AND attempts),
    since_ms INTEGER NOT NULL,
    UNIQUE (hash, chain_id)
) STRICT;

CREATE INDEX submission_open ON submission (chain_id, sender, nonce, id)
WHERE state NOT IN ('completed', 'failed', 'superseded', 'cancelled');

CREATE INDEX submission_lane ON submission (chain_id, sender, nonce);

CREATE INDEX submission_state ON submission (state, since_ms, id);

-- What is sent. Apart, so that walking the submissions does not read it.
CREATE TABLE payload (
    submission INTEGER PRIMARY KEY REFERENCES submission ON DELETE CASCADE,
    raw BLOB NOT NULL,
    method TEXT NOT NULL,
    params BLOB NOT NULL
) STRICT;

-- Facts: bytes that were about to leave, and what came of it (once).
CREATE TABLE attempt (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    submission INTEGER NOT NULL REFERENCES submission ON DELETE CASCADE,
    node TEXT NOT NULL,
    fence INTEGER NOT NULL,
    actor TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    answered_ms INTEGER,
    taken TEXT CHECK (taken IN ('yes', 'no', 'unknown')),
    verdict TEXT NOT NULL DEFAULT '',
    text TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX attempt_submission ON attempt (submission);

-- Facts: receipts that were seen.
CREATE TABLE receipt (
    id INTEGER PRIMARY KEY,
    submission INTEGER NOT NULL REFERENCES submission ON DELETE CASCADE,
    block_number INTEGER NOT NULL,
    block_hash BLOB NOT NULL,
    status INTEGER NOT NULL,
    node TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    UNIQUE (submission, block_hash)
) STRICT;

-- The history: one row for each version.
CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    submission INTEGER NOT NULL REFERENCES submission ON DELETE CASCADE,
    origin TEXT,
    state TEXT NOT NULL,
    reason TEXT,
    detail TEXT NOT NULL,
    actor TEXT NOT NULL,
    fence INTEGER NOT NULL,
    version INTEGER NOT NULL,
    at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX event_submission ON event (submission);

-- Events on their way, each to one receiver.
CREATE TABLE outbox (
    event INTEGER NOT NULL REFERENCES event ON DELETE CASCADE,
    receiver TEXT NOT NULL,
    delivery TEXT NOT NULL DEFAULT 'waiting' CHECK (delivery IN ('waiting', 'delivered', 'dead')),
    due_ms INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (event, receiver)
) STRICT, WITHOUT ROWID;

CREATE INDEX outbox_due ON outbox (receiver, due_ms, event) WHERE delivery = 'waiting';

CREATE INDEX outbox_waiting ON outbox (event) WHERE delivery = 'waiting';

CREATE INDEX outbox_dead ON outbox (event) WHERE delivery = 'dead';

-- Idempotency keys, each bound to one submission.
CREATE TABLE idempotency (
    chain_id INTEGER NOT NULL,
    sender BLOB NOT NULL,
    key TEXT NOT NULL,
    submission INTEGER NOT NULL REFERENCES submission ON DELETE CASCADE,
    first_ms INTEGER NOT NULL,
    PRIMARY KEY (chain_id, sender, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_submission ON idempotency (submission);

-- What operators set: every setting, the highest version is in force.
CREATE TABLE lane (
    chain_id INTEGER NOT NULL,
    sender BLOB NOT NULL,
    paused INTEGER NOT NULL,
    version INTEGER NOT NULL,
    detail TEXT NOT NULL,
    actor TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (chain_id, sender, version)
) STRICT, WITHOUT ROWID;

-- Tasks that one instance at a time does.
CREATE TABLE claim (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    fence INTEGER NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The highest count that each endpoint told.
CREATE TABLE seen_count (
    endpoint TEXT NOT NULL,
    chain_id INTEGER NOT NULL,
    sender BLOB NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (endpoint, chain_id, sender)
) STRICT, WITHOUT ROWID;

-- Written to find out whether it can be written.
CREATE TABLE health (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    at_ms INTEGER NOT NULL
) STRICT;
