-- Tables and views of a rocpd database. Facts: tables have a suffix (@), views rocpd_X hide it; ids are unique
-- together with guid only; the views below join as the real ones do, with inner joins.

CREATE TABLE "rocpd_metadata@" (
    "id" INTEGER PRIMARY KEY, "tag" TEXT NOT NULL, "value" TEXT NOT NULL
);
CREATE VIEW "rocpd_metadata" AS SELECT * FROM "rocpd_metadata@";
CREATE TABLE "rocpd_string@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "string" TEXT NOT NULL
    UNIQUE
);
CREATE VIEW "rocpd_string" AS SELECT * FROM "rocpd_string@";
CREATE TABLE "rocpd_info_node@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "hash" BIGINT,
    "machine_id" TEXT, "system_name" TEXT, "hostname" TEXT
);
CREATE VIEW "rocpd_info_node" AS SELECT * FROM "rocpd_info_node@";
CREATE TABLE "rocpd_info_process@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "nid", "ppid", "pid"
    INTEGER, "init", "fini", "start", "end", "command", "environment", "extdata"
);
CREATE VIEW "rocpd_info_process" AS SELECT * FROM "rocpd_info_process@";
CREATE TABLE "rocpd_info_thread@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "nid", "ppid", "pid",
    "tid" INTEGER, "name", "start", "end", "extdata"
);
CREATE VIEW "rocpd_info_thread" AS SELECT * FROM "rocpd_info_thread@";
CREATE TABLE "rocpd_info_agent@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "nid", "pid", "type"
    TEXT, "absolute_index" INTEGER, "logical_index", "type_index", "uuid", "name", "model_name",
    "vendor_name", "product_name", "user_name", "extdata"
);
CREATE VIEW "rocpd_info_agent" AS SELECT * FROM "rocpd_info_agent@";
CREATE TABLE "rocpd_info_queue@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "nid", "pid", "name",
    "extdata"
);
CREATE VIEW "rocpd_info_queue" AS SELECT * FROM "rocpd_info_queue@";
CREATE TABLE "rocpd_info_stream@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "nid", "pid", "name",
    "extdata"
);
CREATE VIEW "rocpd_info_stream" AS SELECT * FROM "rocpd_info_stream@";
CREATE TABLE "rocpd_info_pmc@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "nid", "pid", "agent_id",
    "target_arch", "event_code", "instance_id", "name" TEXT, "symbol" TEXT, "description",
    "component", "units", "value_type", "block", "expression", "is_constant", "is_derived",
    "extdata"
);
CREATE VIEW "rocpd_info_pmc" AS SELECT * FROM "rocpd_info_pmc@";
CREATE TABLE "rocpd_info_code_object@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "nid", "pid", "agent_id",
    "uri", "extdata"
);
CREATE VIEW "rocpd_info_code_object" AS SELECT * FROM "rocpd_info_code_object@";
CREATE TABLE "rocpd_info_kernel_symbol@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "nid", "pid",
    "code_object_id", "kernel_name", "display_name", "arch_vgpr_count", "accum_vgpr_count",
    "sgpr_count", "extdata"
);
CREATE VIEW "rocpd_info_kernel_symbol" AS SELECT * FROM "rocpd_info_kernel_symbol@";
CREATE TABLE "rocpd_track@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "nid", "pid", "tid",
    "name_id", "extdata"
);
CREATE VIEW "rocpd_track" AS SELECT * FROM "rocpd_track@";
CREATE TABLE "rocpd_event@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "category_id" INTEGER,
    "stack_id" INTEGER, "parent_stack_id" INTEGER, "correlation_id" INTEGER, "call_stack",
    "line_info", "extdata"
);
CREATE VIEW "rocpd_event" AS SELECT * FROM "rocpd_event@";
CREATE TABLE "rocpd_arg@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "event_id", "position",
    "type", "name", "value", "extdata"
);
CREATE VIEW "rocpd_arg" AS SELECT * FROM "rocpd_arg@";
CREATE TABLE "rocpd_pmc_event@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "event_id" INTEGER,
    "pmc_id" INTEGER, "value" REAL, "extdata"
);
CREATE VIEW "rocpd_pmc_event" AS SELECT * FROM "rocpd_pmc_event@";
CREATE TABLE "rocpd_region@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "nid", "pid", "tid",
    "start" BIGINT, "end" BIGINT, "name_id", "event_id", "extdata"
);
CREATE VIEW "rocpd_region" AS SELECT * FROM "rocpd_region@";
CREATE TABLE "rocpd_sample@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "track_id", "timestamp"
    BIGINT, "event_id", "extdata"
);
CREATE VIEW "rocpd_sample" AS SELECT * FROM "rocpd_sample@";
CREATE TABLE "rocpd_kernel_dispatch@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "nid", "pid", "tid",
    "agent_id", "kernel_id", "dispatch_id", "queue_id", "stream_id", "start" BIGINT, "end" BIGINT,
    "private_segment_size", "group_segment_size", "workgroup_size_x", "workgroup_size_y",
    "workgroup_size_z", "grid_size_x", "grid_size_y", "grid_size_z", "region_name_id", "event_id",
    "extdata"
);
CREATE VIEW "rocpd_kernel_dispatch" AS SELECT * FROM "rocpd_kernel_dispatch@";
CREATE TABLE "rocpd_memory_copy@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "nid", "pid", "tid",
    "start" BIGINT, "end" BIGINT, "name_id", "dst_agent_id", "dst_address", "src_agent_id",
    "src_address", "size", "queue_id", "stream_id", "region_name_id", "event_id", "extdata"
);
CREATE VIEW "rocpd_memory_copy" AS SELECT * FROM "rocpd_memory_copy@";
CREATE TABLE "rocpd_memory_allocate@" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL, "nid", "pid", "tid",
    "agent_id", "type", "level", "start", "end", "address", "size", "queue_id", "stream_id",
    "event_id", "extdata"
);
CREATE VIEW "rocpd_memory_allocate" AS SELECT * FROM "rocpd_memory_allocate@";
CREATE VIEW "kernels" AS
    SELECT k.id, k.guid, t.tid, s.display_name AS name, p.pid, a.absolute_index AS agent_abs_index,
    a.type_index AS agent_type_index, k.dispatch_id, k.stream_id, k.queue_id, k.start, k.end, k.end
    - k.start AS duration, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id FROM
    rocpd_kernel_dispatch k JOIN rocpd_info_agent a ON a.id = k.agent_id AND a.guid = k.guid JOIN
    rocpd_event e ON e.id = k.event_id AND e.guid = k.guid JOIN rocpd_string r ON r.id =
    k.region_name_id AND r.guid = k.guid JOIN rocpd_info_kernel_symbol s ON s.id = k.kernel_id AND
    s.guid = k.guid LEFT JOIN rocpd_info_queue q ON q.id = k.queue_id AND q.guid = k.guid JOIN
    rocpd_info_process p ON p.id = q.pid AND p.guid = q.guid JOIN rocpd_info_thread t ON t.id =
    k.tid AND t.guid = k.guid;
CREATE VIEW "regions" AS
    SELECT r.id, r.guid, c.string AS category, n.string AS name, p.pid, t.tid, r.start, r.end, r.end
    - r.start AS duration, r.event_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id
    FROM rocpd_region r JOIN rocpd_event e ON e.id = r.event_id AND e.guid = r.guid JOIN
    rocpd_string n ON n.id = r.name_id AND n.guid = r.guid LEFT JOIN rocpd_string c ON c.id =
    e.category_id AND c.guid = e.guid JOIN rocpd_info_process p ON p.id = r.pid AND p.guid = r.guid
    JOIN rocpd_info_thread t ON t.id = r.tid AND t.guid = r.guid;
CREATE VIEW "counters_collection" AS
    SELECT MIN(m.id) AS id, m.guid, k.dispatch_id, e.stack_id, p.pid, t.tid, k.agent_id,
    a.absolute_index AS agent_abs_index, s.display_name AS kernel_name, i.name AS counter_name,
    SUM(m.value) AS value, k.start, k.end FROM rocpd_pmc_event m JOIN rocpd_info_pmc i ON i.id =
    m.pmc_id AND i.guid = m.guid JOIN rocpd_event e ON e.id = m.event_id AND e.guid = m.guid JOIN
    rocpd_kernel_dispatch k ON k.event_id = m.event_id AND k.guid = m.guid JOIN rocpd_info_agent a
    ON a.id = k.agent_id AND a.guid = k.guid JOIN rocpd_info_kernel_symbol s ON s.id = k.kernel_id
    AND s.guid = k.guid JOIN rocpd_info_process p ON p.id = k.pid AND p.guid = k.guid JOIN
    rocpd_info_thread t ON t.id = k.tid AND t.guid = k.guid GROUP BY m.guid, k.dispatch_id, i.name,
    k.agent_id;
