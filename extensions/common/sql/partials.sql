-- ---------------------------------------------------------------------------
-- Schema strata_partial: one "partial" aggregate for each aggregate that can be
-- combined.  It runs the same transition, but its result is the state itself:
-- serialized (bytea) where the state is internal, else as it is.  Workers
-- compute partials, the coordinator combines and finalizes them.
--
-- This file is part of both extensions, so that a partial has the same name and
-- result type on every node: <aggregate> for those of pg_catalog,
-- "<schema>.<aggregate>" for all others, with the same argument types.  A dot in
-- one of the names is written %2E and a percent sign %25, so that "a.b".c and
-- a."b.c" have two partials.
-- ---------------------------------------------------------------------------

CREATE SCHEMA strata_partial;
GRANT USAGE ON SCHEMA strata_partial TO PUBLIC;
COMMENT ON SCHEMA strata_partial IS
    'aggregates that return their transition state, generated from pg_aggregate';

-- Parsed here and without settings, so that queries can have it inlined.
CREATE FUNCTION strata_partial.partial_name(schema_name text, aggregate text) RETURNS text
    LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN schema_name = 'pg_catalog' THEN aggregate
                ELSE replace(replace(schema_name, '%', '%25'), '.', '%2E') || '.'
                     || replace(replace(aggregate, '%', '%25'), '.', '%2E') END;
REVOKE ALL ON FUNCTION strata_partial.partial_name(text, text) FROM PUBLIC;
COMMENT ON FUNCTION strata_partial.partial_name(text, text) IS
    'the name of an aggregate''s partial in schema strata_partial';

-- Every aggregate that can be split, with the name of its partial and, when that
-- exists, the partial's OID.  Left out: ordered-set aggregates, those without a
-- combine function or whose internal state cannot be serialized, min and max of
-- enums and records (CREATE AGGREGATE takes no state of these types), those whose partial's
-- name would not fit, and those with an initial value of a user's own type: reading
-- it may run code of the user's (a domain's CHECK), and partials are made by a superuser.
CREATE VIEW strata_partial.candidates AS
SELECT original.oid AS aggregate,
       named.partial_name,
       partial.oid AS partial
  FROM pg_catalog.pg_aggregate AS a
  JOIN pg_catalog.pg_proc AS original ON original.oid = a.aggfnoid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = original.pronamespace
 CROSS JOIN LATERAL (SELECT strata_partial.partial_name(n.nspname, original.proname)) AS named (partial_name)
  LEFT JOIN (pg_catalog.pg_proc AS partial
             JOIN pg_catalog.pg_aggregate AS twin ON twin.aggfnoid = partial.oid)
         ON partial.proname::text = named.partial_name
        AND partial.pronamespace = 'strata_partial'::regnamespace
        AND partial.proargtypes = original.proargtypes
        -- else it was made for another aggregate that had the name
        AND twin.aggtransfn = a.aggtransfn
 WHERE a.aggkind = 'n'
   AND a.aggcombinefn <> 0
   AND (a.aggtranstype <> 'internal'::regtype OR (a.aggserialfn <> 0 AND a.aggdeserialfn <> 0))
   AND a.aggtranstype NOT IN ('anyenum'::regtype, 'record'::regtype)
   AND (a.agginitval IS NULL OR a.aggtranstype < 16384
        -- whoever owns an extension can make a type of his own its member
        OR EXISTS (SELECT FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_roles AS r ON r.oid = t.typowner
                    WHERE t.oid = a.aggtranstype AND r.rolsuper AND t.typtype = 'b' AND t.typelem = 0))
   AND n.nspname <> 'strata_partial'
   AND n.nspname !~ '^pg_(temp|toast)'
   AND octet_length(named.partial_name) < 64;
REVOKE ALL ON strata_partial.candidates FROM PUBLIC;
COMMENT ON VIEW strata_partial.candidates IS
    'aggregates that can be computed in parts, and their partial aggregates';

CREATE FUNCTION strata_partial.definition(aggregate oid, partial_name text) RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('CREATE AGGREGATE strata_partial.%I(%s) (SFUNC = %s, STYPE = %s',
                  partial_name,
                  CASE WHEN p.pronargs = 0 THEN '*'
                       ELSE pg_get_function_identity_arguments(p.oid) END,
                  a.aggtransfn, format_type(a.aggtranstype, NULL))
           || CASE WHEN a.aggtransspace <> 0 THEN format(', SSPACE = %s', a.aggtransspace)
                   ELSE '' END
           || CASE WHEN a.aggtranstype = 'internal'::regtype
                   THEN format(', FINALFUNC = %s, SERIALFUNC = %s, DESERIALFUNC = %s',
                               a.aggserialfn, a.aggserialfn, a.aggdeserialfn)
                   ELSE '' END
           || format(', COMBINEFUNC = %s', a.aggcombinefn)
           || CASE WHEN a.agginitval IS NOT NULL THEN format(', INITCOND = %L', a.agginitval)
                   ELSE '' END
           || CASE WHEN a.aggsortop <> 0
                   THEN (SELECT format(', SORTOP = OPERATOR(%I.%s)', n.nspname, o.oprname)
                           FROM pg_operator AS o
                           JOIN pg_namespace AS n ON n.oid = o.oprnamespace
                          WHERE o.oid = a.aggsortop)
                   ELSE '' END
           || format(', PARALLEL = %s)', CASE p.proparallel WHEN 's' THEN 'SAFE'
                                                            WHEN 'r' THEN 'RESTRICTED'
                                                            ELSE 'UNSAFE' END)
      FROM pg_aggregate AS a
      JOIN pg_proc AS p ON p.oid = a.aggfnoid
     WHERE a.aggfnoid = aggregate
$$;
REVOKE ALL ON FUNCTION strata_partial.definition(oid, text) FROM PUBLIC;
COMMENT ON FUNCTION strata_partial.definition(oid, text) IS
    'the CREATE AGGREGATE command of an aggregate''s partial';

-- Whose the partial is: the extensions' own partials are members of the
-- extension that is being created.  The partial of anybody else's aggregate must
-- go with that aggregate and never hold it (or, by CASCADE, this extension), so
-- it is no member; it only goes when one of the two extensions goes.
CREATE FUNCTION strata_partial.adopt(aggregate oid, partial regprocedure) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    owned boolean;
    extension_name name;
    original pg_proc;
    grantee record;
BEGIN
    SELECT * INTO STRICT original FROM pg_proc WHERE oid = aggregate;
    owned := original.pronamespace = 'pg_catalog'::regnamespace
             OR EXISTS (SELECT FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
                         WHERE d.classid = 'pg_proc'::regclass AND d.objid = aggregate
                           AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
                           AND e.extname IN ('hll', 'strata', 'strata_worker'));
    IF NOT owned THEN
        FOR extension_name IN
            SELECT e.extname FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
             WHERE d.classid = 'pg_proc'::regclass AND d.objid = partial
               AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
               AND e.extname IN ('strata', 'strata_worker')
        LOOP
            EXECUTE format('ALTER EXTENSION %I DROP AGGREGATE %s', extension_name, partial);
        END LOOP;
        FOR extension_name IN
            SELECT e.extname FROM pg_extension AS e
             WHERE (e.extname IN ('strata', 'strata_worker')
                    OR e.oid IN (SELECT d.refobjid FROM pg_depend AS d
                                  WHERE d.classid = 'pg_proc'::regclass AND d.objid = aggregate
                                    AND d.refclassid = 'pg_extension'::regclass
                                    AND d.deptype = 'e'))
               AND NOT EXISTS (SELECT FROM pg_depend AS d
                                WHERE d.classid = 'pg_proc'::regclass AND d.objid = partial
                                  AND d.refclassid = 'pg_extension'::regclass
                                  AND d.refobjid = e.oid)
        LOOP
            EXECUTE format('ALTER ROUTINE %s DEPENDS ON EXTENSION %I', partial, extension_name);
        END LOOP;
    END IF;

    -- The partial may be called by whom the aggregate may be called.
    IF original.proowner <> (SELECT oid FROM pg_roles WHERE rolname = current_user) THEN
        EXECUTE format('ALTER AGGREGATE %s OWNER TO %I', partial,
                       pg_get_userbyid(original.proowner));
    END IF;
    IF original.proacl IS NOT NULL THEN
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', partial);
        FOR grantee IN SELECT acl.grantee AS role FROM aclexplode(original.proacl) AS acl
                        WHERE acl.privilege_type = 'EXECUTE'
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', partial,
                           CASE WHEN grantee.role = 0 THEN 'PUBLIC'
                                ELSE quote_ident(pg_get_userbyid(grantee.role)) END);
        END LOOP;
    END IF;
END
$$;
REVOKE ALL ON FUNCTION strata_partial.adopt(oid, regprocedure) FROM PUBLIC;
COMMENT ON FUNCTION strata_partial.adopt(oid, regprocedure) IS
    'gives a partial aggregate the owner, privileges and dependencies of its original';

CREATE FUNCTION strata_partial.create_partials() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    candidate record;
    created integer := 0;
BEGIN
    FOR candidate IN
        SELECT c.aggregate, c.partial_name, original.proargtypes
          FROM strata_partial.candidates AS c JOIN pg_proc AS original ON original.oid = c.aggregate
         WHERE c.partial IS NULL ORDER BY c.aggregate
    LOOP
        -- One odd aggregate must not take the others (or a user's CREATE AGGREGATE) with it.
        BEGIN
            EXECUTE strata_partial.definition(candidate.aggregate, candidate.partial_name);
            PERFORM strata_partial.adopt(candidate.aggregate, p.oid)
               FROM pg_proc AS p
              WHERE p.pronamespace = 'strata_partial'::regnamespace
                AND p.proname = candidate.partial_name AND p.proargtypes = candidate.proargtypes;
            created := created + 1;
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'aggregate % cannot be computed in parts',
                candidate.aggregate::regprocedure
                USING DETAIL = SQLERRM, ERRCODE = SQLSTATE;
        END;
    END LOOP;
    RETURN created;
END
$$;
COMMENT ON FUNCTION strata_partial.create_partials() IS
    'creates the partial aggregates that are missing; returns how many';

-- Keeps schema strata_partial in step with the users' aggregates: `event` is what
-- the event trigger was fired for.
CREATE FUNCTION strata_partial.follow_aggregates(event text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    changed oid[] := '{}';
    stale record;
BEGIN
    IF event = 'ddl_command_end' THEN
        -- CREATE OR REPLACE may have changed the functions of an aggregate that we know.
        changed := ARRAY(SELECT objid FROM pg_event_trigger_ddl_commands());
    ELSE
        PERFORM FROM pg_event_trigger_dropped_objects(); -- an error unless called by the event trigger
    END IF;
    FOR stale IN
        SELECT p.oid FROM pg_proc AS p
         WHERE p.pronamespace = 'strata_partial'::regnamespace AND p.prokind = 'a'
        EXCEPT -- another may have got the name of one that was renamed
        SELECT c.partial FROM strata_partial.candidates AS c WHERE c.aggregate <> ALL (changed)
    LOOP
        EXECUTE format('DROP AGGREGATE %s', stale.oid::regprocedure);
    END LOOP;
    IF event = 'ddl_command_end' THEN
        PERFORM strata_partial.create_partials();
    END IF;
END
$$;
COMMENT ON FUNCTION strata_partial.follow_aggregates(text) IS
    'creates and drops partial aggregates after a DDL command';

-- A dump restores its partials by itself.  It works with an empty search_path, which
-- tells it from a user; therefore this function has no SET clause.  Most commands concern
-- no aggregate, and ours only those that are partials.
CREATE FUNCTION strata_partial.notice_aggregates() RETURNS event_trigger
    LANGUAGE plpgsql
AS $$
DECLARE
    concerned boolean;
BEGIN
    IF pg_catalog.current_setting('search_path') OPERATOR(pg_catalog.=) '' THEN
        RETURN;
    END IF;
    IF TG_EVENT OPERATOR(pg_catalog.=) 'sql_drop' THEN
        concerned := EXISTS (SELECT FROM pg_catalog.pg_event_trigger_dropped_objects()
                              WHERE object_type OPERATOR(pg_catalog.=) 'aggregate'
                                AND schema_name OPERATOR(pg_catalog.<>) 'strata_partial');
    ELSE
        concerned := EXISTS (SELECT FROM pg_catalog.pg_event_trigger_ddl_commands()
                              WHERE object_type OPERATOR(pg_catalog.=) 'schema'
                                 OR object_type OPERATOR(pg_catalog.=) 'aggregate'
                                AND schema_name OPERATOR(pg_catalog.<>) 'strata_partial');
    END IF;
    IF concerned THEN
        PERFORM strata_partial.follow_aggregates(TG_EVENT);
    END IF;
END
$$;
REVOKE ALL ON FUNCTION strata_partial.notice_aggregates() FROM PUBLIC;
COMMENT ON FUNCTION strata_partial.notice_aggregates() IS
    'event trigger: partial aggregates come and go with their originals';

SELECT strata_partial.create_partials();

CREATE EVENT TRIGGER strata_aggregate_created ON ddl_command_end
    WHEN TAG IN ('CREATE AGGREGATE', 'ALTER AGGREGATE', 'ALTER FUNCTION', 'ALTER ROUTINE',
                 'ALTER SCHEMA')
    EXECUTE FUNCTION strata_partial.notice_aggregates();
COMMENT ON EVENT TRIGGER strata_aggregate_created IS 'creates the partial of a new aggregate';

-- Whatever is dropped may take aggregates with it: a schema, a type, a role's objects.
CREATE EVENT TRIGGER strata_aggregate_dropped ON sql_drop
    EXECUTE FUNCTION strata_partial.notice_aggregates();
COMMENT ON EVENT TRIGGER strata_aggregate_dropped IS 'drops the partial of a dropped aggregate';
