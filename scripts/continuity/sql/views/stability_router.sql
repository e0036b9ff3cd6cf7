-- one dataset, horizon, host, storage, weight, beta and seed: what the router's penalty changes
-- router_change [] mean weight of the Mamba expert with the penalty, less that without
-- mse_change [] log of mse with the penalty over mse without, same seed and batches
-- violation_change [] violation with the router's penalty over violation without, less 1
-- router_correlation [] correlation of the router's Mamba weight with the violation of the window, without the penalty
SELECT b.dataset, b.horizon, b.host, b.storage, b.weight, b.beta, b.router_weight, b.seed,
    b.router_mean - a.router_mean AS router_change, ln(b.mse / a.mse) AS mse_change,
    b.violation / nullif(a.violation, 0) - 1 AS violation_change, a.router_correlation
FROM stability AS a JOIN stability AS b USING (dataset, horizon, host, storage, weight, beta, seed)
WHERE a.router_weight = 0 AND b.router_weight > 0 AND a.mse > 0 AND b.mse > 0
ORDER BY ALL
