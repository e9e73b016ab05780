
-- ---------------------------------------------------------------------------
-- Roles of this server as rows that can be compared with another server's.
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.role_attributes(role oid) RETURNS text
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT concat_ws(' ', CASE WHEN r.rolsuper THEN 'SUPERUSER' ELSE 'NOSUPERUSER' END,
                     CASE WHEN r.rolinherit THEN 'INHERIT' ELSE 'NOINHERIT' END,
                     CASE WHEN r.rolcreaterole THEN 'CREATEROLE' ELSE 'NOCREATEROLE' END,
                     CASE WHEN r.rolcreatedb THEN 'CREATEDB' ELSE 'NOCREATEDB' END,
                     CASE WHEN r.rolreplication THEN 'REPLICATION' ELSE 'NOREPLICATION' END,
                     CASE WHEN r.rolbypassrls THEN 'BYPASSRLS' ELSE 'NOBYPASSRLS' END)
      FROM pg_roles AS r WHERE r.oid = role
$$;
COMMENT ON FUNCTION strata.role_attributes(oid) IS
    'attributes of a role as SQL, all but those that concern logging in';

-- kind        role          key          detail                        value
-- role        the role      -            -                             its attributes as SQL
-- member      granted role  the member   who granted it (since 16)     options as SQL
-- setting     the role      setting      true: in this database only   the value
-- comment     the role      -            -                             its comment
-- database    its owner     -            -                             -
--
-- Left out is how clients log in (LOGIN, PASSWORD, VALID UNTIL, CONNECTION LIMIT), which is the
-- coordinator's business; and the bootstrap superuser, who differs by nature.
CREATE FUNCTION strata.role_state(
    OUT kind text, OUT role name, OUT key text, OUT detail text, OUT value text)
    RETURNS SETOF record
    LANGUAGE sql STABLE ROWS 100
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'role', r.rolname, NULL::text, NULL::text,
           strata.role_attributes(r.oid)
      FROM pg_roles AS r
     WHERE r.oid >= 16384
    UNION ALL
    SELECT 'member', granted.rolname, member.rolname,
           CASE WHEN m.options ? 'inherit_option' THEN grantor.rolname END,
           CASE WHEN m.options ? 'inherit_option'
                THEN format('ADMIN %s, INHERIT %s, SET %s', m.options ->> 'admin_option',
                            m.options ->> 'inherit_option', m.options ->> 'set_option')
                WHEN m.admin_option THEN 'ADMIN OPTION' END
      FROM (SELECT *, to_jsonb(a) AS options FROM pg_auth_members AS a) AS m
      JOIN pg_roles AS granted ON granted.oid = m.roleid
      JOIN pg_roles AS member ON member.oid = m.member
      LEFT JOIN pg_roles AS grantor ON grantor.oid = m.grantor
     WHERE member.oid >= 16384
       -- who may use all tables is decided on the coordinator alone
       AND granted.rolname NOT IN ('pg_read_all_data', 'pg_write_all_data')
    UNION ALL
    SELECT 'setting', r.rolname, split_part(item, '=', 1), (s.setdatabase <> 0)::text,
           substr(item, strpos(item, '=') + 1)
      FROM pg_db_role_setting AS s
      JOIN pg_roles AS r ON r.oid = s.setrole
      LEFT JOIN pg_database AS d ON d.oid = s.setdatabase
     CROSS JOIN LATERAL unnest(s.setconfig) AS item
     WHERE r.oid >= 16384 AND (s.setdatabase = 0 OR d.datname = current_database())
    UNION ALL
    SELECT 'comment', r.rolname, NULL, NULL, d.description
      FROM pg_shdescription AS d JOIN pg_roles AS r ON r.oid = d.objoid
     WHERE d.classoid = 'pg_authid'::regclass AND r.oid >= 16384
    UNION ALL
    SELECT 'database', pg_get_userbyid(d.datdba), NULL, NULL, NULL
      FROM pg_database AS d
     WHERE d.datname = current_database() AND d.datdba >= 16384
$$;
REVOKE ALL ON FUNCTION strata.role_state() FROM PUBLIC;
COMMENT ON FUNCTION strata.role_state() IS
    'roles, memberships, settings and comments of roles on this server, without what concerns logging in; and who owns this database';
