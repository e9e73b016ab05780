-- ---------------------------------------------------------------------------
-- Which shards are to move where, and their moves one after another
-- ---------------------------------------------------------------------------

CREATE TABLE strata.shard_move (
    move_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    relation oid NOT NULL,
    colocation_id integer NOT NULL,
    shard integer NOT NULL,
    source text NOT NULL,
    target text NOT NULL,
    bytes bigint,
    reason text NOT NULL,
    state text NOT NULL DEFAULT 'planned' CHECK (state IN ('planned', 'running', 'done', 'failed', 'stopped')),
    attempts integer NOT NULL DEFAULT 0,
    row_count bigint,
    error text,
    begun timestamptz,
    ended timestamptz
);
COMMENT ON TABLE strata.shard_move IS
    'moves of shards that rebalance_start() has planned, in their order; those of the last time stay until the next';

/*
 * Pure: shards, each with its group, its worker and its weight, the workers that there are, and those of them that shall be
 * empty.  First, each shard of these goes to where the group has least, the heaviest first.  Then, while that makes a group's two
 * workers with most and least more equal, the shard moves between them that brings them nearest; differences up to
 * `threshold` of the average are left alone.  Between workers that are equal for the group, all groups together decide.
 */
CREATE FUNCTION strata.plan_moves(
    group_ids integer[], shards integer[], places integer[], weights float8[], workers integer[],
    leaving integer[], threshold float8,
    OUT colocation_id integer, OUT shard integer, OUT source integer, OUT target integer, OUT drained boolean)
    RETURNS SETOF record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    staying CONSTANT integer[] := ARRAY(SELECT w FROM unnest(workers) AS w WHERE w <> ALL (leaving) ORDER BY w);
    place integer[] := places;
    heavy integer;
    light integer;
    difference float8;
    average float8;
    found integer;
BEGIN
    IF cardinality(staying) = 0 THEN
        RAISE EXCEPTION 'no worker is left for the shards' USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    FOR colocation_id IN SELECT DISTINCT g FROM unnest(group_ids) AS g ORDER BY g LOOP
        LOOP
            -- what is on each worker, of this group and of all
            SELECT s.i INTO found
              FROM unnest(group_ids, place, weights) WITH ORDINALITY AS s (g, w, weight, i)
             WHERE s.g = colocation_id AND s.w = ANY (leaving)
             ORDER BY s.weight DESC, s.i LIMIT 1;
            SELECT l.w INTO light FROM (
                SELECT w.w, coalesce(sum(s.weight) FILTER (WHERE s.g = colocation_id), 0) AS own,
                       coalesce(sum(s.weight), 0) AS total
                  FROM unnest(staying) AS w (w)
                  LEFT JOIN unnest(group_ids, place, weights) AS s (g, w, weight) ON s.w = w.w
                 GROUP BY w.w) AS l
             ORDER BY l.own, l.total, l.w LIMIT 1;
            IF found IS NULL THEN
                SELECT h.w, h.own - min(h.own) OVER (), avg(h.own) OVER () INTO heavy, difference, average FROM (
                    SELECT w.w, coalesce(sum(s.weight) FILTER (WHERE s.g = colocation_id), 0) AS own,
                           coalesce(sum(s.weight), 0) AS total
                      FROM unnest(staying) AS w (w)
                      LEFT JOIN unnest(group_ids, place, weights) AS s (g, w, weight) ON s.w = w.w
                     GROUP BY w.w) AS h
                 ORDER BY h.own DESC, h.total DESC, h.w LIMIT 1;
                EXIT WHEN difference <= threshold * average;
                SELECT s.i INTO found
                  FROM unnest(group_ids, place, weights) WITH ORDINALITY AS s (g, w, weight, i)
                 WHERE s.g = colocation_id AND s.w = heavy AND s.weight > 0 AND s.weight < difference
                 ORDER BY abs(difference / 2 - s.weight), s.i LIMIT 1;
                EXIT WHEN found IS NULL;
            END IF;
            place[found] := light;
        END LOOP;
    END LOOP;
    FOR found IN 1 .. cardinality(places) LOOP
        IF place[found] <> places[found] THEN
            colocation_id := group_ids[found];
            shard := shards[found];
            source := places[found];
            target := place[found];
            drained := source = ANY (leaving);
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION strata.plan_moves(integer[], integer[], integer[], float8[], integer[], integer[], float8) FROM PUBLIC;
COMMENT ON FUNCTION strata.plan_moves(integer[], integer[], integer[], float8[], integer[], integer[], float8) IS
    'the fewest moves that make workers hold the same of each group';

CREATE FUNCTION strata.rebalance_plan(
    strategy text DEFAULT 'bytes', drain text DEFAULT NULL, threshold float8 DEFAULT 0.1,
    OUT relation regclass, OUT shard integer, OUT source text, OUT target text, OUT bytes bigint,
    OUT row_estimate bigint, OUT reason text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    leaving integer[] := '{}';
    state record;
BEGIN
    IF strategy IS NULL OR strategy NOT IN ('bytes', 'rows', 'count') THEN
        RAISE EXCEPTION 'unknown strategy "%"', strategy
            USING ERRCODE = 'invalid_parameter_value', HINT = 'There are "bytes", "rows" and "count".';
    ELSIF threshold IS NULL OR NOT threshold BETWEEN 0 AND 1 THEN
        RAISE EXCEPTION 'threshold must be between 0 and 1' USING ERRCODE = 'invalid_parameter_value';
    ELSIF drain IS NOT NULL THEN
        leaving := ARRAY(SELECT w.worker_id FROM strata.worker AS w WHERE w.name = drain);
        IF cardinality(leaving) = 0 THEN
            RAISE EXCEPTION 'worker "%" does not exist', drain
                USING ERRCODE = 'undefined_object', HINT = 'SELECT * FROM strata.workers lists the workers.';
        END IF;
    END IF;
    RETURN QUERY
        WITH shards AS (
            SELECT t.colocation_id, s.shard, min(t.relation::oid) AS relation, min(w.worker_id) AS worker_id,
                   sum(s.bytes)::bigint AS bytes, sum(s.row_estimate)::bigint AS row_estimate
              FROM strata.shards AS s
              JOIN strata.distributed_table AS t ON t.relation = s.relation
              JOIN strata.worker AS w ON w.name = s.worker
             GROUP BY t.colocation_id, s.shard
        ), weighted AS (
            SELECT s.*, CASE strategy WHEN 'bytes' THEN coalesce(s.bytes, 0)
                                      WHEN 'rows' THEN coalesce(s.row_estimate, 0) ELSE 1 END AS weight
              FROM shards AS s
        ), plan AS (
            SELECT p.*
              FROM (SELECT array_agg(s.colocation_id ORDER BY s.colocation_id, s.shard) AS groups,
                           array_agg(s.shard ORDER BY s.colocation_id, s.shard) AS shards,
                           array_agg(s.worker_id ORDER BY s.colocation_id, s.shard) AS places,
                           array_agg(s.weight::float8 ORDER BY s.colocation_id, s.shard) AS weights
                      FROM weighted AS s) AS a
             CROSS JOIN LATERAL strata.plan_moves(
                       a.groups, a.shards, a.places, a.weights,
                       ARRAY(SELECT w.worker_id FROM strata.worker AS w), leaving, threshold) AS p
        )
        SELECT s.relation::regclass, s.shard, here.name, there.name, s.bytes, s.row_estimate,
               CASE WHEN p.drained THEN format('worker "%s" is drained', here.name)
                    ELSE format('worker "%s" has more %s', here.name,
                                CASE strategy WHEN 'count' THEN 'shards' ELSE strategy END) END
          FROM plan AS p
          JOIN shards AS s USING (colocation_id, shard)
          JOIN strata.worker AS here ON here.worker_id = p.source
          JOIN strata.worker AS there ON there.worker_id = p.target
         ORDER BY p.drained DESC, s.bytes DESC NULLS LAST, s.relation, s.shard;
END
$$;
REVOKE ALL ON FUNCTION strata.rebalance_plan(text, text, float8) FROM PUBLIC;
COMMENT ON FUNCTION strata.rebalance_plan(text, text, float8) IS
    'the moves that would make workers hold the same bytes, rows or number of shards of each colocation group, or empty one of them';

CREATE FUNCTION strata.rebalance_start(
    strategy text DEFAULT 'bytes', drain text DEFAULT NULL, threshold float8 DEFAULT 0.1) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    planned integer;
BEGIN
    LOCK TABLE strata.shard_move IN SHARE ROW EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM strata.shard_move WHERE state IN ('planned', 'running')) THEN
        RAISE EXCEPTION 'shards are being moved already'
            USING ERRCODE = 'object_in_use', HINT = 'Wait for strata.rebalance_wait(), or call strata.rebalance_stop().';
    END IF;
    DELETE FROM strata.shard_move;
    INSERT INTO strata.shard_move (relation, colocation_id, shard, source, target, bytes, reason)
    SELECT p.relation, t.colocation_id, p.shard, p.source, p.target, p.bytes, p.reason
      FROM strata.rebalance_plan(strategy, drain, threshold) WITH ORDINALITY AS p
      JOIN strata.distributed_table AS t USING (relation)
     ORDER BY p.ordinality;
    GET DIAGNOSTICS planned = ROW_COUNT;
    RETURN planned;
END
$$;
REVOKE ALL ON FUNCTION strata.rebalance_start(text, text, float8) FROM PUBLIC;
COMMENT ON FUNCTION strata.rebalance_start(text, text, float8) IS
    'has shards moved in the background as rebalance_plan() says, one after another; returns how many';

CREATE FUNCTION strata.rebalance_stop() RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stopped integer;
BEGIN
    UPDATE strata.shard_move SET state = 'stopped', ended = clock_timestamp() WHERE state = 'planned';
    GET DIAGNOSTICS stopped = ROW_COUNT;
    RETURN stopped;
END
$$;
REVOKE ALL ON FUNCTION strata.rebalance_stop() FROM PUBLIC;
COMMENT ON FUNCTION strata.rebalance_stop() IS
    'no further shard moves; the one that is on its way arrives; returns how many do not move';

CREATE FUNCTION strata.move_progress(
    OUT pid integer, OUT relation regclass, OUT shard integer, OUT source text, OUT target text, OUT phase text,
    OUT row_count bigint, OUT row_estimate bigint, OUT begun timestamptz)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'strata_move_progress';
REVOKE ALL ON FUNCTION strata.move_progress() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION strata.move_progress() TO pg_monitor;
COMMENT ON FUNCTION strata.move_progress() IS
    'the moves of shards that run now, of the rebalancer and of move_shard(): what each does, and how many rows it has brought of all its tables';

CREATE VIEW strata.rebalance_status AS
SELECT m.move_id, m.relation::regclass AS relation, m.shard, m.source, m.target, m.state, p.phase, m.bytes,
       coalesce(m.row_count, p.row_count) AS row_count, p.row_estimate, m.reason, m.attempts, m.error, m.begun, m.ended
  FROM strata.shard_move AS m
  LEFT JOIN strata.move_progress() AS p
    ON m.state = 'running' AND (p.relation, p.shard, p.target) = (m.relation, m.shard, m.target);
COMMENT ON VIEW strata.rebalance_status IS
    'the moves that rebalance_start() has planned, what became of them, and how far the one is that runs';
GRANT SELECT ON strata.rebalance_status TO pg_monitor;

CREATE FUNCTION strata.rebalance_wait() RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    failed record;
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'strata.rebalance_wait() would wait for ever in a transaction of this isolation level'
            USING ERRCODE = 'active_sql_transaction', HINT = 'Use READ COMMITTED.';
    ELSIF EXISTS (SELECT FROM strata.shard_move WHERE xmin = pg_current_xact_id_if_assigned()::xid AND state = 'planned') THEN
        RAISE EXCEPTION 'the moves begin when this transaction has committed'
            USING ERRCODE = 'active_sql_transaction', HINT = 'Call strata.rebalance_wait() afterwards.';
    END IF;
    WHILE EXISTS (SELECT FROM strata.rebalance_status WHERE state IN ('planned', 'running')) LOOP
        PERFORM pg_sleep(0.1);
    END LOOP;
    SELECT count(*) AS count, min(error) AS error INTO failed FROM strata.rebalance_status WHERE state = 'failed';
    IF failed.count > 0 THEN
        RAISE EXCEPTION '% shards were not moved', failed.count
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = failed.error,
                  HINT = 'SELECT * FROM strata.rebalance_status shows the reasons.';
    END IF;
END
$$;
REVOKE ALL ON FUNCTION strata.rebalance_wait() FROM PUBLIC;
COMMENT ON FUNCTION strata.rebalance_wait() IS
    'waits until the planned moves have ended; an error if one has failed';

-- The service's two steps: what runs is visible, and one that was left running by a server that died runs again.
CREATE FUNCTION strata.begin_move() RETURNS bigint
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE strata.shard_move SET state = 'running', attempts = attempts + 1, begun = clock_timestamp()
     WHERE move_id = (SELECT m.move_id FROM strata.shard_move AS m
                       WHERE m.state IN ('planned', 'running') ORDER BY m.state DESC, m.move_id LIMIT 1)
    RETURNING move_id
$$;
REVOKE ALL ON FUNCTION strata.begin_move() FROM PUBLIC;
COMMENT ON FUNCTION strata.begin_move() IS 'chooses the next of the planned moves';

CREATE FUNCTION strata.finish_move(id bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '200ms'
AS $$
DECLARE
    move record;
    moved bigint;
BEGIN
    SELECT * INTO STRICT move FROM strata.shard_move WHERE move_id = id;
    moved := strata.move_shard(move.relation, move.shard, move.target);
    UPDATE strata.shard_move SET state = 'done', row_count = moved, error = NULL, ended = clock_timestamp()
     WHERE move_id = id;
END
$$;
REVOKE ALL ON FUNCTION strata.finish_move(bigint) FROM PUBLIC;
COMMENT ON FUNCTION strata.finish_move(bigint) IS 'moves a shard, and notes that in the same transaction';

CREATE FUNCTION strata.note_move_error(id bigint, message text, again boolean) RETURNS void
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE strata.shard_move
       SET state = CASE WHEN again THEN 'planned' ELSE 'failed' END, error = message,
           ended = CASE WHEN NOT again THEN clock_timestamp() END
     WHERE move_id = id AND state = 'running'
$$;
REVOKE ALL ON FUNCTION strata.note_move_error(bigint, text, boolean) FROM PUBLIC;
COMMENT ON FUNCTION strata.note_move_error(bigint, text, boolean) IS
    'a shard was not moved: it is tried again, or not';
