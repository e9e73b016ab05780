"""Whose is it, and who may: every object that workers have, beside the coordinator's.

Owners and access lists (grantee, grantor, grant option) are compared by the names of roles; their order means nothing.
"""

from __future__ import annotations

from tests.cluster import Cluster, Node

# Of everything that has an owner: its catalog, OID, owner, access list.  Tables grant nothing on workers.
THINGS = """
SELECT 'pg_namespace'::regclass::oid AS class, oid, nspowner AS owner, nspacl AS acl FROM pg_namespace
UNION ALL SELECT 'pg_proc'::regclass, oid, proowner, proacl FROM pg_proc
UNION ALL SELECT 'pg_type'::regclass, oid, typowner, typacl FROM pg_type
UNION ALL SELECT 'pg_language'::regclass, oid, lanowner, lanacl FROM pg_language
UNION ALL SELECT 'pg_collation'::regclass, oid, collowner, NULL FROM pg_collation
UNION ALL SELECT 'pg_conversion'::regclass, oid, conowner, NULL FROM pg_conversion
UNION ALL SELECT 'pg_operator'::regclass, oid, oprowner, NULL FROM pg_operator
UNION ALL SELECT 'pg_opclass'::regclass, oid, opcowner, NULL FROM pg_opclass
UNION ALL SELECT 'pg_opfamily'::regclass, oid, opfowner, NULL FROM pg_opfamily
UNION ALL SELECT 'pg_ts_dict'::regclass, oid, dictowner, NULL FROM pg_ts_dict
UNION ALL SELECT 'pg_ts_config'::regclass, oid, cfgowner, NULL FROM pg_ts_config
UNION ALL SELECT 'pg_extension'::regclass, oid, extowner, NULL FROM pg_extension
UNION ALL SELECT 'pg_statistic_ext'::regclass, oid, stxowner, NULL FROM pg_statistic_ext
UNION ALL SELECT 'pg_parameter_acl'::regclass, oid, 10, paracl FROM pg_parameter_acl
UNION ALL SELECT 'pg_class'::regclass, oid, relowner, NULL FROM pg_class WHERE relkind IN ('r', 'p', 'c')
"""

# What a server has of its own: our schemas, our extensions, what is made for one of several partitions.
OURS = """
(coalesce(i.schema, '') ~ '^(strata|partman|pg_toast|pg_temp)'
 OR coalesce(i.name, '') ~ '^(strata|pg_partman|partman|pg_toast|pg_temp|hll$)'
 OR (t.class, t.oid) IN (SELECT d.classid, d.objid FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
                          WHERE (d.refclassid, d.deptype) = ('pg_extension'::regclass, 'e')
                            AND e.extname ~ '^(strata|pg_partman|hll$)')
 OR (t.class, t.oid) IN (SELECT p.class, p.oid FROM pg_class AS r JOIN pg_type AS y ON y.typrelid = r.oid
                          CROSS JOIN LATERAL (VALUES ('pg_class'::regclass::oid, r.oid),
                                              ('pg_type'::regclass, y.oid), ('pg_type'::regclass, y.typarray)) AS p (class, oid)
                          WHERE r.relispartition))
"""

# Nearly all that came with PostgreSQL is as it came, on every node: what nobody has touched is left out.
CAN_DIFFER = "(t.oid >= 16384 OR t.owner <> 10 OR t.acl IS NOT NULL)"

OWNERS = f"""
SELECT i.type, i.identity, t.owner::regrole::text, t.acl IS NULL,
       ARRAY(SELECT format('%s: %s to %s%s', a.grantor::regrole, a.privilege_type,
                           CASE a.grantee WHEN 0 THEN 'public' ELSE a.grantee::regrole::text END,
                           CASE WHEN a.is_grantable THEN ' with grant option' ELSE '' END)
               FROM aclexplode(t.acl) AS a ORDER BY 1)
  FROM ({THINGS}) AS t CROSS JOIN LATERAL pg_identify_object(t.class, t.oid, 0) AS i
 WHERE {CAN_DIFFER} AND {{where}} AND NOT {OURS}
 ORDER BY 1, 2
"""

# A shell's columns, and the types of what only the coordinator has, are answered for by the table.
EVERYWHERE = "(t.oid < 16384 OR t.class = 'pg_parameter_acl'::regclass OR strata.object_is_everywhere(t.class, t.oid))"
# Stands for itself on each node: views, sequences and local tables have a row type that workers lack.
NOT_LOCAL = "(t.class <> 'pg_class'::regclass OR t.oid >= 16384)"


def read_owners(node: Node, coordinator: bool = False) -> dict[tuple[str, str], tuple]:
    where = NOT_LOCAL + (f" AND {EVERYWHERE}" if coordinator else "")
    with node.connect() as session:
        session.execute("SET search_path = pg_catalog")
        rows = session.execute(OWNERS.format(where=where)).fetchall()
    return {(kind, name): tuple(rest) for kind, name, *rest in rows}


def assert_same_owners(cluster: Cluster, *, at_least: int = 0) -> dict[tuple[str, str], tuple]:
    """Each worker has what the coordinator says it has, nothing else, and all of it is the same role's."""
    expected = read_owners(cluster.coordinator, coordinator=True)
    for worker in cluster.workers:
        found = read_owners(worker)
        different = {
            thing: (expected.get(thing), found.get(thing))
            for thing in expected.keys() | found.keys()
            if expected.get(thing) != found.get(thing)
        }
        assert different == {}, "\n".join(
            f"{worker.name}: {thing}: here {here}, there {there}"
            for thing, (here, there) in sorted(different.items())
        )
    return expected
