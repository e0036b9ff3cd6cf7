-- one encoder: the order of the tasks by mu against the published order, ListOps < Retrieval < Text < Pathfinder < Path-X < Image
-- rho [] Spearman correlation over the published tasks that this study has; NULL below two
-- n_tasks [] those tasks
WITH published (task, published) AS (
    VALUES ('listops', 0.08), ('retrieval', 0.15), ('text', 0.18), ('pathfinder', 0.32), ('pathx', 0.36), ('image', 0.54)
), ranked AS (
    SELECT encoder, rank() OVER (PARTITION BY encoder ORDER BY mu) AS place,
        rank() OVER (PARTITION BY encoder ORDER BY published) AS place_published
    FROM score JOIN published USING (task)
    WHERE mu IS NOT NULL
)
SELECT encoder, CASE WHEN count(*) > 1 THEN corr(place, place_published) END AS rho, count(*) AS n_tasks
FROM ranked GROUP BY encoder ORDER BY encoder
