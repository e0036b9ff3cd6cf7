-- one dataset, horizon, host, storage, weight and beta: violation against error over seeds
-- mse [squared sd of the channel] geometric mean of mse over seeds
-- violation [] mean violation over seeds, own storage, D counted
-- violation_low [] smallest violation of a seed
-- violation_high [] largest violation of a seed
-- dominated [] whether another cell of the same dataset, horizon and host has neither more violation nor more error
-- n_seeds [] runs averaged
WITH cell AS (
    SELECT dataset, horizon, host, storage, weight, beta, exp(avg(ln(mse))) AS mse, avg(violation) AS violation,
        min(violation) AS violation_low, max(violation) AS violation_high, count(*) AS n_seeds
    FROM stability WHERE router_weight = 0 AND mse > 0 AND violation IS NOT NULL GROUP BY ALL
)
SELECT *, EXISTS (
        FROM cell AS other
        WHERE (other.dataset, other.horizon, other.host) = (cell.dataset, cell.horizon, cell.host)
            AND other.mse <= cell.mse AND other.violation <= cell.violation
            AND (other.mse < cell.mse OR other.violation < cell.violation)
    ) AS dominated
FROM cell
ORDER BY ALL
