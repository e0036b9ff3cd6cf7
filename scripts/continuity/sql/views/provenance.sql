-- one run of one stage, the row of `runs` with what identifies its rows in the result table: join on those columns
-- model [] architecture, baseline, control or forecasting host
-- system [] dynamical system of the run
-- dataset [] forecasting set of the run
-- storage [] what was done about the memory
-- weight [] weight of the penalty
-- beta [] rate of dissipation in the penalty
-- router_weight [] weight of the penalty on the router
-- plan [] plan of strides
-- method [] discretization that was trained with
SELECT r."table", r.key, r.run,
    coalesce(json_extract_string(r.cfg, '$.model.name'), json_extract_string(r.cfg, '$.host.name'),
        CASE WHEN json_type(r.cfg, '$.model') = 'VARCHAR' THEN json_extract_string(r.cfg, '$.model') END) AS model,
    coalesce(json_extract_string(r.cfg, '$.system.name'),
        CASE WHEN json_type(r.cfg, '$.system') = 'VARCHAR' THEN json_extract_string(r.cfg, '$.system') END) AS system,
    coalesce(json_extract_string(r.cfg, '$.task.name'),
        CASE WHEN json_type(r.cfg, '$.task') = 'VARCHAR' THEN json_extract_string(r.cfg, '$.task') END) AS task,
    json_extract_string(r.cfg, '$.encoder') AS encoder,
    json_extract_string(r.cfg, '$.dataset.name') AS dataset,
    CAST(json_extract(r.cfg, '$.eta') AS DOUBLE) AS eta,
    CAST(json_extract(r.cfg, '$.eta_target') AS DOUBLE) AS eta_target,
    CAST(json_extract(r.cfg, '$.lr') AS DOUBLE) AS lr,
    json_extract_string(r.cfg, '$.construction') AS construction,
    CASE WHEN r."table" IN ('forecast', 'crossed', 'forecast_search', 'stability')
        THEN CAST(json_extract(r.cfg, '$.horizon') AS BIGINT) END AS horizon,
    json_extract_string(r.cfg, '$.readout') AS readout,
    json_extract_string(r.cfg, '$.method') AS method,
    json_extract_string(r.cfg, '$.plan.name') AS plan,
    json_extract_string(r.cfg, '$.storage') AS storage,
    CAST(json_extract(r.cfg, '$.weight') AS DOUBLE) AS weight,
    CASE WHEN r."table" = 'stability' THEN CAST(json_extract(r.cfg, '$.beta') AS DOUBLE) END AS beta,
    CAST(json_extract(r.cfg, '$.router_weight') AS DOUBLE) AS router_weight,
    CAST(json_extract(r.cfg, '$.seed') AS BIGINT) AS seed,
    r.seconds, r.device, r.threads, r.backend, r.versions, r.host, r.started, r.cfg, r.code
FROM runs AS r
ORDER BY ALL
