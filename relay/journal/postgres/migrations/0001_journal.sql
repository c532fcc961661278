-- Times are milliseconds since the epoch, by this server's clock. Changes go through the functions below: each is one
-- statement to its caller, so that no relay that stops in the middle leaves a transaction open.

CREATE FUNCTION relay.now_ms() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- Where a submission stands. The columns up to admitted_ms are facts; tries counts the turns that sent it since it was last queued with a fresh budget, attempts and open_attempts the sends;
-- the others are the decision, and change only with version.
CREATE TABLE relay.submission (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    chain_id bigint NOT NULL,
    sender bytea NOT NULL,
    nonce bigint NOT NULL,
    hash bytea NOT NULL,
    method text NOT NULL,
    mode text NOT NULL,
    admitted_ms bigint NOT NULL,
    state text NOT NULL CHECK (state IN (
        'queued', 'sealed', 'sent', 'pending', 'mined', 'completed', 'failed', 'superseded', 'cancelled', 'dead_letter'
    )),
    reason text,
    detail text NOT NULL,
    other_hash bytea,
    version bigint NOT NULL,
    fence bigint NOT NULL,
    tries integer NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    open_attempts integer NOT NULL DEFAULT 0 CHECK (open_attempts BETWEEN 0 AND attempts),
    since_ms bigint NOT NULL,
    UNIQUE (hash, chain_id)
);

CREATE INDEX submission_open ON relay.submission (chain_id, sender, nonce, id)
WHERE state NOT IN ('completed', 'failed', 'superseded', 'cancelled');

CREATE INDEX submission_lane ON relay.submission (chain_id, sender, nonce);

CREATE INDEX submission_state ON relay.submission (state, since_ms, id);

-- What is sent. Apart, so that walking the submissions does not read it.
CREATE TABLE relay.payload (
    submission bigint PRIMARY KEY REFERENCES relay.submission ON DELETE CASCADE,
    raw bytea NOT NULL,
    method text NOT NULL,
    params bytea NOT NULL
);

-- Facts: bytes that were about to leave, and what came of it (once).
CREATE TABLE relay.attempt (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    submission bigint NOT NULL REFERENCES relay.submission ON DELETE CASCADE,
    node text NOT NULL,
    fence bigint NOT NULL,
    actor text NOT NULL,
    at_ms bigint NOT NULL,
    answered_ms bigint,
    taken text CHECK (taken IN ('yes', 'no', 'unknown')),
    verdict text NOT NULL DEFAULT '',
    text text NOT NULL DEFAULT ''
);

CREATE INDEX attempt_submission ON relay.attempt (submission);

-- Facts: receipts that were seen.
CREATE TABLE relay.receipt (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    submission bigint NOT NULL REFERENCES relay.submission ON DELETE CASCADE,
    block_number bigint NOT NULL,
    block_hash bytea NOT NULL,
    status integer NOT NULL,
    node text NOT NULL,
    at_ms bigint NOT NULL,
    UNIQUE (submission, block_hash)
);

-- The history: one row for each version.
CREATE TABLE relay.event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    submission bigint NOT NULL REFERENCES relay.submission ON DELETE CASCADE,
    origin text,
    state text NOT NULL,
    reason text,
    detail text NOT NULL,
    actor text NOT NULL,
    fence bigint NOT NULL,
    version bigint NOT NULL,
    at_ms bigint NOT NULL
);

CREATE INDEX event_submission ON relay.event (submission);

-- Events on their way, each to one receiver.
CREATE TABLE relay.outbox (
    event bigint NOT NULL REFERENCES relay.event ON DELETE CASCADE,
    receiver text NOT NULL,
    delivery text NOT NULL DEFAULT 'waiting' CHECK (delivery IN ('waiting', 'delivered', 'dead')),
    due_ms bigint NOT NULL,
    tries integer NOT NULL DEFAULT 0,
    error text NOT NULL DEFAULT '',
    PRIMARY KEY (event, receiver)
);

CREATE INDEX outbox_due ON relay.outbox (receiver, due_ms, event) WHERE delivery = 'waiting';

CREATE INDEX outbox_waiting ON relay.outbox (event) WHERE delivery = 'waiting';

CREATE INDEX outbox_dead ON relay.outbox (event) WHERE delivery = 'dead';

-- Idempotency keys, each bound to one submission.
CREATE TABLE relay.idempotency (
    chain_id bigint NOT NULL,
    sender bytea NOT NULL,
    key text NOT NULL,
    submission bigint NOT NULL REFERENCES relay.submission ON DELETE CASCADE,
    first_ms bigint NOT NULL,
    PRIMARY KEY (chain_id, sender, key)
);

CREATE INDEX idempotency_submission ON relay.idempotency (submission);

-- What operators set: every setting, the highest version is in force.
CREATE TABLE relay.lane (
    chain_id bigint NOT NULL,
    sender bytea NOT NULL,
    paused boolean NOT NULL,
    version bigint NOT NULL,
    detail text NOT NULL,
    actor text NOT NULL,
    at_ms bigint NOT NULL,
    PRIMARY KEY (chain_id, sender, version)
);

-- Tasks that one instance at a time does.
CREATE TABLE relay.claim (
    name text PRIMARY KEY,
    owner text NOT NULL,
    fence bigint NOT NULL,
    until_ms bigint NOT NULL
);

-- The highest count that each endpoint told.
CREATE TABLE relay.seen_count (
    endpoint text NOT NULL,
    chain_id bigint NOT NULL,
    sender bytea NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (endpoint, chain_id, sender)
);

-- Written to find out whether it can be written.
CREATE TABLE relay.health (
    one integer PRIMARY KEY CHECK (one = 1),
    at_ms bigint NOT NULL
);

-- A change: its event, and the event's place in the outbox.
CREATE FUNCTION relay.changed(origin text, moved relay.submission, actor text, receivers text []) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    event_id bigint;
BEGIN
    INSERT INTO relay.event (submission, origin, state, reason, detail, actor, fence, version, at_ms)
    VALUES (
        moved.id, changed.origin, moved.state, moved.reason, moved.detail, changed.actor, moved.fence, moved.version,
        relay.now_ms()
    )
    RETURNING id INTO event_id;
    INSERT INTO relay.outbox (event, receiver, due_ms)
    SELECT event_id, receiver, relay.now_ms() FROM unnest(receivers) AS each (receiver);
END $$;

-- What holds an idempotency key; nothing if what held it has released it (`lifecycle.releases_key`).
CREATE FUNCTION relay.holder(its_chain bigint, its_sender bytea, its_key text)
RETURNS TABLE (moved relay.submission, age_ms bigint)
LANGUAGE plpgsql AS $$
DECLARE
    bound relay.idempotency;
    held relay.submission;
BEGIN
    SELECT * INTO bound FROM relay.idempotency
    WHERE chain_id = its_chain AND sender = its_sender AND key = its_key;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT * INTO held FROM relay.submission WHERE id = bound.submission;
    IF held.state = 'failed' THEN
        -- Whoever takes it up again at this moment is waited for: then it holds its key.
        SELECT * INTO held FROM relay.submission WHERE id = bound.submission FOR SHARE;
    END IF;
    IF held.id IS NULL OR held.state = 'failed' AND (held.mode = 'verdict' OR held.attempts = 0) THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT held, relay.now_ms() - bound.first_ms;
END $$;

-- Submissions onto the disk, or those that are there. The locks are taken in one order, so that two groups never wait
-- for each other.
CREATE FUNCTION relay.admit(
    chain_ids bigint [], senders bytea [], nonces bigint [], hashes bytea [], raws bytea [], methods text [],
    params bytea [], modes text [], keys text [], actors text [], receivers text []
) RETURNS TABLE (fresh boolean, same_bytes boolean, age_ms bigint, moved relay.submission)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    bound record;
BEGIN
    PERFORM pg_advisory_xact_lock(lock) FROM (
        SELECT hashtextextended(encode(hash, 'hex'), chain_id) AS lock
        FROM unnest(hashes, chain_ids) AS each (hash, chain_id)
        UNION
        SELECT hashtextextended(encode(sender, 'hex') || key, chain_id)
        FROM unnest(senders, keys, chain_ids) AS each (sender, key, chain_id) WHERE key <> ''
        ORDER BY lock
    ) AS locks;
    FOR n IN 1 .. cardinality(hashes) LOOP
        IF keys[n] <> '' THEN
            SELECT * INTO bound FROM relay.holder(chain_ids[n], senders[n], keys[n]);
            IF FOUND THEN
                moved := bound.moved;
                age_ms := bound.age_ms;
                fresh := false;
                same_bytes := moved.hash = hashes[n];
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        INSERT INTO relay.submission (
            chain_id, sender, nonce, hash, method, mode, admitted_ms, state, detail, version, fence, since_ms
        )
        SELECT
            chain_ids[n], senders[n], nonces[n], hashes[n], methods[n], modes[n], clock.now, 'queued', '', 1, 0, clock.now
        FROM (SELECT relay.now_ms() AS now OFFSET 0) AS clock
        ON CONFLICT (hash, chain_id) DO NOTHING
        RETURNING * INTO moved;
        fresh := FOUND;
        same_bytes := true;
        age_ms := 0;
        IF fresh THEN
            INSERT INTO relay.payload (submission, raw, method, params)
            VALUES (moved.id, raws[n], methods[n], params[n]);
            PERFORM relay.changed(NULL, moved, actors[n], receivers);
        ELSE
            SELECT * INTO moved FROM relay.submission WHERE hash = hashes[n] AND chain_id = chain_ids[n];
        END IF;
        IF keys[n] <> '' THEN
            INSERT INTO relay.idempotency (chain_id, sender, key, submission, first_ms)
            VALUES (chain_ids[n], senders[n], keys[n], moved.id, relay.now_ms())
            ON CONFLICT (chain_id, sender, key)
            DO UPDATE SET submission = excluded.submission, first_ms = excluded.first_ms;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Rows that are about to change, locked in one order.
CREATE FUNCTION relay.lock_rows(submissions bigint []) RETURNS void LANGUAGE sql AS $$
    SELECT id FROM relay.submission WHERE id = ANY (submissions) ORDER BY id FOR NO KEY UPDATE
$$;

-- The intent to send, onto the disk.
CREATE FUNCTION relay.seal(
    submissions bigint [], origins text [], versions bigint [], fences bigint [], reasons text [], details text [],
    actors text [], nodes text [], allowed boolean [], receivers text []
) RETURNS TABLE (sealed boolean, attempt bigint, moved relay.submission)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM relay.lock_rows(submissions);
    FOR n IN 1 .. cardinality(submissions) LOOP
        UPDATE relay.submission AS its SET
            state = 'sealed',
            reason = reasons[n],
            detail = details[n],
            version = its.version + 1,
            fence = greatest(its.fence, fences[n]),
            tries = its.tries + 1,
            attempts = its.attempts + 1,
            open_attempts = its.open_attempts + 1,
            since_ms = CASE WHEN its.state = 'sealed' THEN its.since_ms ELSE relay.now_ms() END
        WHERE allowed[n] AND its.id = submissions[n] AND its.version = versions[n] AND its.state = origins[n]
            AND (fences[n] = 0 OR its.fence <= fences[n])
        RETURNING its.* INTO moved;
        sealed := FOUND;
        attempt := NULL;
        IF sealed THEN
            PERFORM relay.changed(origins[n], moved, actors[n], receivers);
            INSERT INTO relay.attempt (submission, node, fence, actor, at_ms)
            VALUES (moved.id, nodes[n], fences[n], actors[n], relay.now_ms())
            RETURNING id INTO attempt;
        ELSE
            SELECT * INTO moved FROM relay.submission WHERE id = submissions[n];
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Facts, kept whoever brings them.
CREATE FUNCTION relay.note(
    answered bigint [], takens text [], verdicts text [], texts text [],
    mined bigint [], block_numbers bigint [], block_hashes bytea [], statuses integer [], nodes text []
) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    its_submission bigint;
BEGIN
    PERFORM relay.lock_rows(ARRAY(SELECT submission FROM relay.attempt WHERE id = ANY (answered)) || mined);
    FOR n IN 1 .. cardinality(answered) LOOP
        UPDATE relay.attempt SET
            answered_ms = relay.now_ms(), taken = takens[n], verdict = verdicts[n], text = texts[n]
        WHERE id = answered[n] AND taken IS NULL
        RETURNING submission INTO its_submission;
        IF FOUND AND takens[n] = 'no' THEN
            UPDATE relay.submission SET open_attempts = open_attempts - 1 WHERE id = its_submission;
        END IF;
    END LOOP;
    FOR n IN 1 .. cardinality(mined) LOOP
        INSERT INTO relay.receipt (submission, block_number, block_hash, status, node, at_ms)
        SELECT mined[n], block_numbers[n], block_hashes[n], statuses[n], nodes[n], relay.now_ms()
        FROM relay.submission WHERE id = mined[n]
        ON CONFLICT (submission, block_hash) DO NOTHING;
    END LOOP;
END $$;

-- Decisions, if nothing is against them; their facts in any case.
CREATE FUNCTION relay.decide(
    submissions bigint [], origins text [], versions bigint [], targets text [], fences bigint [], reasons text [],
    details text [], actors text [], other_hashes bytea [], modes text [], guards text [], attested boolean [],
    renews boolean [],
    answered bigint [], takens text [], verdicts text [], texts text [],
    mined bigint [], block_numbers bigint [], block_hashes bytea [], statuses integer [], nodes text [],
    receivers text []
) RETURNS TABLE (decided boolean, moved relay.submission)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM relay.lock_rows(
        ARRAY(SELECT submission FROM relay.attempt WHERE id = ANY (answered)) || mined || submissions
    );
    PERFORM relay.note(
        answered, takens, verdicts, texts, mined, block_numbers, block_hashes, statuses, nodes
    );
    FOR n IN 1 .. cardinality(submissions) LOOP
        UPDATE relay.submission AS its SET
            state = targets[n],
            reason = reasons[n],
            detail = details[n],
            other_hash = coalesce(other_hashes[n], its.other_hash),
            mode = coalesce(modes[n], its.mode),
            version = its.version + 1,
            fence = greatest(its.fence, fences[n]),
            tries = CASE WHEN renews[n] THEN 0 ELSE its.tries END,
            since_ms = CASE WHEN its.state = targets[n] THEN its.since_ms ELSE relay.now_ms() END
        WHERE its.id = submissions[n] AND its.version = versions[n] AND its.state = origins[n]
            AND (fences[n] = 0 OR its.fence <= fences[n])
            AND CASE guards[n]
                WHEN 'none' THEN true
                WHEN 'unsent' THEN its.attempts = 0
                WHEN 'certain' THEN its.open_attempts = 0
                WHEN 'attested' THEN its.open_attempts = 0 OR attested[n]
                ELSE false
            END
        RETURNING its.* INTO moved;
        decided := FOUND;
        IF decided THEN
            PERFORM relay.changed(origins[n], moved, actors[n], receivers);
        ELSE
            SELECT * INTO moved FROM relay.submission WHERE id = submissions[n];
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- One more send of the same bytes, in the same turn.
CREATE FUNCTION relay.attempt(its_submission bigint, its_node text, its_fence bigint, its_actor text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    UPDATE relay.submission SET
        attempts = attempts + 1, open_attempts = open_attempts + 1
    WHERE id = its_submission;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO relay.attempt (submission, node, fence, actor, at_ms)
    VALUES (its_submission, its_node, its_fence, its_actor, relay.now_ms())
    RETURNING id INTO made;
    RETURN made;
END $$;
