
-- As before, but for aggregates that PostgreSQL has got since the extension was created.
CREATE OR REPLACE FUNCTION strata_partial.adopt(aggregate oid, partial regprocedure) RETURNS void
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
    IF owned THEN
        -- made after the extension: by the first of CREATE AGGREGATE after pg_upgrade, of what the new major brought
        FOR extension_name IN
            SELECT e.extname FROM pg_extension AS e
             WHERE e.extname IN ('strata', 'strata_worker')
               AND NOT EXISTS (SELECT FROM pg_depend AS d
                                WHERE d.classid = 'pg_proc'::regclass AND d.objid = partial
                                  AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e')
             ORDER BY e.extname LIMIT 1
        LOOP
            EXECUTE format('ALTER EXTENSION %I ADD AGGREGATE %s', extension_name, partial);
        END LOOP;
    ELSE
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
