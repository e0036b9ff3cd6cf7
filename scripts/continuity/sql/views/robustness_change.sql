-- one trained forecaster whose memory is penalised or certified, on one perturbed input, against storage none
-- mse_change [] log of mse over mse of storage none, same seed and perturbation
-- violation_change [] violation over violation of storage none, less 1
-- state_change [] state_norm over state_norm of storage none, less 1
SELECT b.dataset, b.horizon, b.host, b.storage, b.weight, b.beta, b.router_weight, b.seed, perturbation, level, "where",
    ln(b.mse / a.mse) AS mse_change, b.violation / nullif(a.violation, 0) - 1 AS violation_change,
    b.state_norm / nullif(a.state_norm, 0) - 1 AS state_change
FROM robustness AS a
JOIN robustness AS b USING (dataset, horizon, host, router_weight, seed, perturbation, level, "where")
WHERE a.storage = 'none' AND b.storage <> 'none' AND a.mse > 0 AND b.mse > 0
ORDER BY ALL
