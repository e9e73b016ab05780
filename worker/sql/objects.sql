
-- ---------------------------------------------------------------------------
-- Whose the users' objects are
-- ---------------------------------------------------------------------------
--
-- What follows a table, comes to a new worker or was granted belongs to the role that owns it on the coordinator, whoever
-- has sent it, and its access list is the coordinator's, grantors included.  Commands cannot do that: a role need
-- not have the rights (any more) that its own object takes, and GRANT records a grantor of its own choice.
-- So the owner of this extension does it for the coordinator, in one statement: nobody sees the object before it is its
-- owner's.  Code of users that definitions compute runs guarded (src/function_guard.c).
--
-- What has a name that is taken: nobody gets a superuser's object, or an extension's, by having a namesake of it.

CREATE FUNCTION strata_worker.replace_privileges(class regclass, object oid, owner oid, privileges aclitem[]) RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_worker_replace_privileges';
REVOKE ALL ON FUNCTION strata_worker.replace_privileges(regclass, oid, oid, aclitem[]) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.replace_privileges(regclass, oid, oid, aclitem[]) IS
    'gives an object this access list, in which its owner stands for that role';

CREATE FUNCTION strata_worker.replace_owner(class regclass, object oid, owner oid) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'strata_worker_replace_owner';
REVOKE ALL ON FUNCTION strata_worker.replace_owner(regclass, oid, oid) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.replace_owner(regclass, oid, oid) IS
    'gives an object to a role';

-- By the name that pg_identify_object() has for it; NULL: there is none, or what it is made of is missing.
CREATE FUNCTION strata_worker.find_object(class regclass, identity text) RETURNS oid
    LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN CASE class
        WHEN 'pg_namespace'::regclass THEN to_regnamespace(identity)::oid
        WHEN 'pg_type'::regclass THEN to_regtype(identity)::oid
        WHEN 'pg_proc'::regclass THEN to_regprocedure(identity)::oid
        WHEN 'pg_collation'::regclass THEN to_regcollation(identity)::oid
        WHEN 'pg_language'::regclass THEN (SELECT oid FROM pg_language WHERE quote_ident(lanname) = identity)
        WHEN 'pg_extension'::regclass THEN (SELECT oid FROM pg_extension WHERE quote_ident(extname) = identity)
    END;
EXCEPTION WHEN undefined_object OR invalid_schema_name OR undefined_table THEN
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.find_object(regclass, text) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.find_object(regclass, text) IS
    'the object of that identity';

CREATE FUNCTION strata_worker.object_owner(class regclass, object oid) RETURNS oid
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE class
        WHEN 'pg_namespace'::regclass THEN (SELECT nspowner FROM pg_namespace WHERE oid = object)
        WHEN 'pg_type'::regclass THEN (SELECT typowner FROM pg_type WHERE oid = object)
        WHEN 'pg_proc'::regclass THEN (SELECT proowner FROM pg_proc WHERE oid = object)
        WHEN 'pg_collation'::regclass THEN (SELECT collowner FROM pg_collation WHERE oid = object)
        WHEN 'pg_language'::regclass THEN (SELECT lanowner FROM pg_language WHERE oid = object)
        WHEN 'pg_extension'::regclass THEN (SELECT extowner FROM pg_extension WHERE oid = object)
    END
$$;
REVOKE ALL ON FUNCTION strata_worker.object_owner(regclass, oid) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.object_owner(regclass, oid) IS
    'the role that owns an object here';

CREATE FUNCTION strata_worker.is_superuser(role oid) RETURNS boolean
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT coalesce((SELECT rolsuper FROM pg_roles WHERE oid = role), false) $$;
REVOKE ALL ON FUNCTION strata_worker.is_superuser(oid) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.is_superuser(oid) IS
    'is the role a superuser of this server?';

-- Does it come with the server, or with an extension?
CREATE FUNCTION strata_worker.is_born_here(class regclass, object oid) RETURNS boolean
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (object < 16384 AND (class, object) IS DISTINCT FROM ('pg_namespace'::regclass, to_regnamespace('public')::oid))
           OR EXISTS (SELECT FROM pg_depend AS d
                       WHERE (d.classid, d.objid, d.objsubid, d.deptype) = (class, object, 0, 'e'))
$$;
REVOKE ALL ON FUNCTION strata_worker.is_born_here(regclass, oid) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.is_born_here(regclass, oid) IS
    'does every server that has the same extensions have the object?';

-- How: create; part (of what was created before it); born (with the server or an extension); set (privileges of what is
-- there); drop.
CREATE FUNCTION strata_worker.check_place(
    how text, class regclass, object oid, identity text, owner oid, schema_oid oid, schema_owner name) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    present oid := strata_worker.object_owner(class, object);
BEGIN
    IF schema_owner IS NOT NULL AND how <> 'born' AND schema_oid >= 16384 THEN
        PERFORM strata_worker.check_schema_owner(
            (SELECT nspname FROM pg_namespace WHERE oid = schema_oid), schema_owner);
    END IF;
    IF object IS NULL THEN
        IF how IN ('set', 'born') THEN
            RAISE EXCEPTION 'this server has no %', identity USING ERRCODE = 'undefined_object';
        END IF;
    ELSIF strata_worker.is_born_here(class, object) <> (how = 'born') AND class <> 'pg_extension'::regclass
          AND how <> 'part' THEN
        RAISE EXCEPTION '% already exists on this server, and is another one', identity
            USING ERRCODE = 'duplicate_object',
                  DETAIL = 'It belongs to the server or to an extension here, and not to one on the coordinator.';
    ELSIF how IN ('set', 'drop') AND present <> owner
          OR how = 'create' AND strata_worker.is_superuser(present) AND NOT strata_worker.is_superuser(owner) THEN
        RAISE EXCEPTION '% does not belong to role "%" on this server', identity, pg_get_userbyid(owner)
            USING ERRCODE = 'insufficient_privilege',
                  DETAIL = format('It belongs to role "%s".', pg_get_userbyid(present)),
                  HINT = 'Drop it on this server, or give it to that role.';
    END IF;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.check_place(text, regclass, oid, text, oid, oid, name) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.check_place(text, regclass, oid, text, oid, oid, name) IS
    'raises an error unless the object is, or can become, the coordinator''s';

CREATE FUNCTION strata_worker.place_objects(objects json) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET check_function_bodies = off
    SET client_min_messages = warning
AS $$
DECLARE
    guarded boolean;
    thing record;
    found oid;
    owner oid;
BEGIN
    PERFORM strata_worker.check_own_statement('place_objects');
    guarded := strata_worker.guard_functions(true);
    FOR thing IN
        SELECT x.how, x.class::regclass AS class, x.kind, x.identity, x.definition, x.privileges,
               x.owner AS owner_name, x.schema AS schema_name, x.schema_owner
          FROM json_to_recordset(objects) AS x (
               how text, class text, kind text, identity text, definition text, owner name,
               privileges text, schema name, schema_owner name)
    LOOP
        owner := (SELECT oid FROM pg_roles WHERE rolname = thing.owner_name);
        IF owner IS NULL THEN
            RAISE EXCEPTION 'role "%" does not exist', thing.owner_name USING ERRCODE = 'undefined_object';
        END IF;
        found := strata_worker.find_object(thing.class, thing.identity);
        PERFORM strata_worker.check_place(thing.how, thing.class, found, thing.identity, owner,
                    to_regnamespace(quote_ident(thing.schema_name)), thing.schema_owner);
        IF thing.how = 'drop' THEN
            IF found IS NOT NULL THEN
                EXECUTE format('DROP %s %s', thing.kind, thing.identity);
            END IF;
            CONTINUE;
        END IF;
        IF thing.definition IS NOT NULL THEN
            EXECUTE thing.definition;
            found := strata_worker.find_object(thing.class, thing.identity);
        END IF;
        IF strata_worker.object_owner(thing.class, found) <> owner
           AND (thing.how <> 'born' OR NOT strata_worker.is_superuser(owner)) THEN
            IF thing.class = 'pg_extension'::regclass OR thing.how = 'born' THEN
                PERFORM strata_worker.replace_owner(thing.class, found, owner);
            ELSE -- the event trigger for partial aggregates is told
                EXECUTE format('ALTER %s %s OWNER TO %I', thing.kind, thing.identity, thing.owner_name);
            END IF;
        END IF;
        IF thing.class NOT IN ('pg_collation'::regclass, 'pg_extension'::regclass) THEN
            PERFORM strata_worker.replace_privileges(thing.class, found, owner, thing.privileges::aclitem[]);
        END IF;
    END LOOP;
    PERFORM strata_worker.guard_functions(guarded);
END
$$;
COMMENT ON FUNCTION strata_worker.place_objects(json) IS
    'creates, owns, opens or drops objects as the coordinator has them';
